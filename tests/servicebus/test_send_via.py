"""Send-via: the messages of a link go through one entity to another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Symbol
from ferrymq_servicebus.personality import AzurePersonality
from ferrymq_types.messaging import Accepted, Data, MessageAnnotations
from ferrymq_types.transport import Attach
from tests.broker.access.guarded import guarded, user
from tests.broker.harness import Client, Network, Sender, encode, message_annotations
from tests.broker.transactions.kit import Controller, frames, post_sections
from tests.servicebus.kit import DESTINATION, application, first, network_of, queue_of

TRANSFER = "via/$Transfer/$DeadLetterQueue"
SECTIONS = (
    MessageAnnotations(
        {
            Symbol("x-opt-via-partition-key"): "k",
            Symbol("x-opt-sequence-number"): 77,
            "x-opt-enqueued-time": 77,
        }
    ),
    Data(value=b"a"),
)


RULES = """
[[queue]]
name = "via"
sub-queues = ["$Transfer/$DeadLetterQueue"]
forward-failed = "/$Transfer/$DeadLetterQueue"

[[queue]]
name = "dest"

[[rule]]
who = ["user:both", "user:via"]
may = "send"
where = "via"

[[rule]]
who = ["user:both", "user:dest"]
may = "send"
where = "dest"
"""


@pytest.fixture
def net() -> Network:
    return network_of(
        queue=[{"name": "via"}, {"name": "Dest"}, {"name": "other"}],
        topic=[{"name": "news", "subscription": [{"name": "all"}]}],
        **{"create-entities": False},
    )


def send_via(client: Client, to: object = "dest", via: str = "via") -> Sender:
    return client.sender(via, properties={DESTINATION: to})


@pytest.mark.parametrize("to", ["dest", "sb://localhost/DEST"])
def test_messages_go_to_the_destination(net: Network, to: str) -> None:
    sender = send_via(net.connect(), to)
    attach = sender.link.remote_attach
    assert attach is not None and attach.properties == {DESTINATION: to}
    assert sender.remote_target.address == "via"
    delivery = sender.send_sections(*SECTIONS)
    assert isinstance(delivery.remote_state, Accepted)
    annotations = message_annotations(first(net, "dest").deliveries[0].payload)
    assert annotations["x-opt-via-partition-key"] == "k"
    assert 77 not in annotations.values()
    assert queue_of(net, "via").message_count() == 0


def test_a_batch_goes_to_a_topic(net: Network) -> None:
    batch = encode(*(Data(value=encode(Data(value=body))) for body in (b"0", b"1")))
    send_via(net.connect(), "news").send_encoded(batch, message_format=0x80013700)
    receiver = net.connect().receiver("news/Subscriptions/all", credit=5)
    assert receiver.bodies() == [b"0", b"1"]


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_takes_from_via_and_sends_on(net: Network, commits: bool) -> None:
    net.connect().sender("via").send(b"task")
    receiver = first(net, "via")
    control = Controller(receiver.client)
    txn = control.declare()
    delivery = post_sections(send_via(receiver.client), txn, *SECTIONS)
    assert queue_of(net, "Dest").message_count() == 0
    if commits:
        control.commit(txn)
        assert isinstance(delivery.remote_state, Accepted)
        payload = first(net, "dest").deliveries[0].payload
        assert message_annotations(payload)["x-opt-via-partition-key"] == "k"
    else:
        control.roll_back(txn)
        assert queue_of(net, "Dest").message_count() == 0


@pytest.mark.parametrize("commits", [None, True])
def test_what_the_destination_does_not_take_is_a_dead_letter(
    net: Network, commits: bool | None
) -> None:
    client = net.connect()
    sender = send_via(client)
    dest = queue_of(net, "Dest")
    dest.change_policy(replace(dest.policy, send_disabled=True))
    if commits is None:
        assert isinstance(sender.send_sections(*SECTIONS).remote_state, Accepted)
    else:
        control = Controller(client)
        txn = control.declare()
        post_sections(sender, txn, *SECTIONS)
        control.commit(txn)
    net.finish()
    payload = first(net, TRANSFER).deliveries[0].payload
    assert application(payload)["DeadLetterReason"] == "ForwardingFailed"
    assert message_annotations(payload)["x-opt-deadletter-source"] == "via"
    assert message_annotations(payload)["x-opt-via-partition-key"] == "k"
    assert dest.message_count() == queue_of(net, "via").message_count() == 0


def test_a_deleted_destination(net: Network) -> None:
    net.space.create("late", QueuePolicy())
    sender = send_via(net.connect(), "late")
    net.space.remove(queue_of(net, "late"))
    assert isinstance(sender.send_sections(*SECTIONS).remote_state, Accepted)
    net.finish()
    assert queue_of(net, TRANSFER).message_count() == 1


@pytest.mark.parametrize(
    ("via", "to", "condition"),
    [
        ("via", "missing", "amqp:not-found"),
        ("missing", "dest", "amqp:not-found"),
        ("via", "via", "amqp:not-allowed"),
        ("via", "$cbs", "amqp:not-allowed"),
        ("via", "dest/$DeadLetterQueue", "amqp:not-allowed"),
        ("via", "", "amqp:invalid-field"),
        ("via", 7, "amqp:invalid-field"),
        ("news", "dest", "amqp:not-implemented"),
    ],
)
def test_attaches_that_are_refused(net: Network, via: str, to: object, condition: str) -> None:
    client = net.connect()
    client.wire = []
    sender = send_via(client, to, via)
    assert sender.error is not None and sender.error.condition == condition
    (answer,) = [
        frame.body
        for who, frame in frames(client)
        if who == "broker" and isinstance(frame.body, Attach)
    ]
    assert answer.source is None and answer.target is None


@pytest.mark.parametrize("name", ["both", "via", "dest"])
def test_both_entities_need_the_right_to_send(name: str) -> None:
    net = guarded(RULES)
    net.space.personality = AzurePersonality(net.space, {})
    sender = send_via(user(net, name))
    if name == "both":
        sender.send(b"a")
        assert queue_of(net, "dest").message_count() == 1
    else:
        assert sender.detached and sender.error is not None
        assert sender.error.condition == "amqp:unauthorized-access"


def test_the_link_ends_with_the_entity_it_goes_through(net: Network) -> None:
    sender = send_via(net.connect())
    via = queue_of(net, "via")
    assert via.links == 1
    net.space.remove(via)
    net.finish()
    assert sender.error is not None and sender.error.condition == "amqp:resource-deleted"
    again = network_of(queue=[{"name": "via"}, {"name": "Dest"}])
    link = send_via(again.connect())
    via = queue_of(again, "via")
    via.change_policy(replace(via.policy, send_disabled=True))
    again.finish()
    assert link.error is not None and link.error.condition == "com.microsoft:entity-disabled"
    assert via.links == 0
