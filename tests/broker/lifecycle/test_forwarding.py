"""Forwarding: a queue sends each message on in the step in which it comes."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Accepted, Properties, Rejected
from tests.broker.harness import Network
from tests.broker.lifecycle.letters import bodies, browse, death, drain, figure, send
from tests.broker.recovery.kit import send as send_durable
from tests.broker.recovery.kit import stored_network
from tests.broker.topics.test_rules import asker_of
from tests.broker.transactions.kit import ACCEPTED, Controller, post, provisional


def to(address: str) -> QueuePolicy:
    """The policy of a queue that forwards, with a sub-queue for what cannot be forwarded."""
    return QueuePolicy(forward_to=address, sub_queues=("$Lost",), forward_failed="/$Lost")


def test_a_message_goes_on_at_once(net: Network) -> None:
    net.declare("in", QueuePolicy(forward_to="out"))
    net.declare("out")
    receiver = net.connect().receiver("out", credit=1)
    (delivery,) = net.connect().sender("in").send(b"a")
    assert delivery.remote_state == Accepted()
    assert receiver.bodies() == [b"a"]
    assert net.queue("in").message_count() == 0
    assert figure(net, "in", "forwarded") == 1


def test_a_subscription_forwards_to_a_queue(net: Network) -> None:
    topic = net.space.create("news", TopicPolicy())
    assert isinstance(topic, Topic)
    topic.declare_subscription("audit", policy=to("archive"))
    net.connect().sender("news").send(b"a")
    assert bodies(net, "archive") == [b"a"]


def test_four_hops_are_the_most(net: Network) -> None:
    for number in range(1, 6):
        net.declare(f"q{number}", to(f"q{number + 1}"))
    net.declare("q6")
    client = net.connect()
    client.sender("q2").send(b"four")
    assert bodies(net, "q6") == [b"four"]
    client.sender("q1").send(b"five")
    (dead,) = drain(net, "q5/$Lost")
    assert (death(dead)["reason"], death(dead)["source"]) == ("forwarding", "q5")
    assert death(dead)["condition"] == "amqp:not-allowed"
    assert [browse(net, f"q{number}") for number in range(1, 6)] == [[]] * 5


def test_a_loop_ends_where_it_closes(net: Network) -> None:
    net.declare("a", to("b"))
    net.declare("b", to("a"))
    net.connect().sender("a").send(b"x")
    assert browse(net, "a/$Lost") == []
    assert bodies(net, "b/$Lost") == [b"x"]


def test_without_a_place_for_it_the_sender_is_told(net: Network) -> None:
    net.declare("in", QueuePolicy(forward_to="out", duplicate_window=60_000))
    full = net.declare("out", QueuePolicy(max_length=1))
    sender = net.connect().sender("in")
    send(sender, b"a", properties=Properties(message_id="1"))
    refused = send(sender, b"b", properties=Properties(message_id="2"))
    assert isinstance(refused.remote_state, Rejected)
    full.purge()
    net.finish()
    # The refused message is no duplicate of itself.
    send(sender, b"b", properties=Properties(message_id="2"))
    assert bodies(net, "out") == [b"b"]


def test_a_missing_target() -> None:
    net = Network(auto_create=False)
    net.declare("in", to("nowhere"))
    net.connect().sender("in").send(b"a")
    (dead,) = drain(net, "in/$Lost")
    assert death(dead)["condition"] == "amqp:not-found"


def test_a_scheduled_message_goes_on_when_it_is_due(net: Network) -> None:
    net.declare("in", to("out"))
    sender = net.connect().sender("in")
    due = Timestamp(net.wall + 5000)
    send(sender, b"a", annotations={"x-opt-scheduled-enqueue-time": due})
    send(sender, b"b", annotations={"x-opt-delivery-delay": 3000})
    assert figure(net, "in", "scheduled") == 1
    net.advance(4)
    assert browse(net, "out") == [b"b"]
    net.advance(2)
    assert browse(net, "out") == [b"b", b"a"]


def test_a_transaction_reserves_room_where_the_message_goes(net: Network) -> None:
    net.declare("in", QueuePolicy(forward_to="out"))
    net.declare("out", QueuePolicy(max_length=1))
    control = Controller(net.connect())
    sender = control.client.sender("in")
    txn = control.declare()
    (first,) = post(sender, txn, b"a")
    assert provisional(first, txn) == ACCEPTED
    (other,) = net.connect().sender("in").send(b"b")
    assert isinstance(other.remote_state, Rejected)
    control.commit(txn)
    assert bodies(net, "out") == [b"a"]


def test_what_it_sends_on_is_stored_before_the_sender_is_told() -> None:
    net = stored_network()
    net.declare("in", QueuePolicy(forward_to="out", durable=False))
    net.declare("out")
    (delivery,) = send_durable(net.connect().sender("in"), b"a")
    assert delivery.remote_state == Accepted()
    net.restart()
    assert browse(net, "out") == [b"a"]
    assert "in" not in net.space.nodes


def test_management_sets_it(net: Network) -> None:
    net.declare("in")
    asker = asker_of(net)
    assert asker.ask("UPDATE", "queue", "in", {"forward-to": "out"}).status == 200
    sender = net.connect().sender("in")
    sender.send(b"a")
    assert asker.ask("UPDATE", "queue", "in", {"forward-to": ""}).status == 200
    sender.send(b"b")
    assert browse(net, "out") == [b"a"] and browse(net, "in") == [b"b"]


@pytest.mark.parametrize("address", ["in", "$management"])
def test_addresses_that_take_nothing(net: Network, address: str) -> None:
    asker_of(net)
    net.declare("in", to(address))
    net.connect().sender("in").send(b"a")
    assert bodies(net, "in/$Lost") == [b"a"]


# -- by a link -----------------------------------------------------------------------------------

FORWARD_TO = "ferrymq:forward-to"


def test_a_link_has_its_messages_sent_on(net: Network) -> None:
    net.declare("through", QueuePolicy(max_length=1, duplicate_window=1000))
    net.declare("beyond")
    sender = net.connect().sender("through", properties={FORWARD_TO: "beyond"})
    attach = sender.link.remote_attach
    assert attach is not None and attach.properties == {FORWARD_TO: "beyond"}
    sender.send(b"a", b"b", b"c")
    net.connect().sender("through").send(b"own")
    assert net.queue("beyond").message_count() == 3
    assert net.queue("through").message_count() == 1


def test_what_a_link_cannot_have_sent_on_is_refused(net: Network) -> None:
    net.declare("through")
    net.declare("beyond", QueuePolicy(max_length=1))
    sender = net.connect().sender("through", properties={FORWARD_TO: "beyond"})
    sender.send(b"a")
    (delivery,) = sender.send(b"b")
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("target", "value", "condition"),
    [
        ("through", "through", "amqp:not-allowed"),
        ("through", "", "amqp:invalid-field"),
        ("through", 5, "amqp:invalid-field"),
        (None, "through", "amqp:not-implemented"),
    ],
)
def test_links_that_cannot_be_sent_on(
    net: Network, target: str | None, value: object, condition: str
) -> None:
    net.declare("through")
    error = net.connect().sender(target, properties={FORWARD_TO: value}).error
    assert error is not None and error.condition == condition
