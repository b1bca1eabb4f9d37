"""Messages that are sent twice, because a client could not know, are there once."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Properties
from tests.broker.harness import Network, Sender
from tests.broker.lifecycle.letters import bodies, browse, figure, refused, send

MessageId = int | UUID | bytes | str


def send_as(sender: Sender, message_id: MessageId | None, body: bytes = b"x") -> None:
    delivery = send(sender, body, properties=Properties(message_id=message_id))
    assert isinstance(delivery.remote_state, Accepted)


@pytest.mark.spec("3.2.4")
@pytest.mark.parametrize(
    "message_id", ["one", 1, UUID(int=1), b"one", "", b"", "long" * 1000, b"long" * 1000]
)
def test_the_same_id_is_the_same_message(net: Network, message_id: MessageId) -> None:
    net.declare("q", QueuePolicy(duplicate_window=10_000))
    sender = net.connect().sender("q")
    send_as(sender, message_id, b"a")
    send_as(sender, message_id, b"b")
    assert bodies(net, "q") == [b"a"]
    assert figure(net, "q", "duplicates") == 1


@pytest.mark.spec("3.2.4")
def test_ids_of_different_types_are_different(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=10_000))
    sender = net.connect().sender("q")
    for message_id in (1, "1", b"1", UUID(int=1), "x" * 100, b"x" * 100):
        send_as(sender, message_id)
    assert net.queue("q").available == 6


def test_messages_without_an_id_are_never_duplicates(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=10_000))
    sender = net.connect().sender("q")
    sender.send(b"a", b"a")
    send_as(sender, None)
    send_as(sender, None)
    assert net.queue("q").available == 4


def test_it_does_not_matter_who_sends_or_what_became_of_the_first(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=10_000))
    send_as(net.connect().sender("q"), "id", b"a")
    assert bodies(net, "q") == [b"a"]
    net.clients[-1].lose()
    net.queue("q").purge()
    send_as(net.connect().sender("q"), "id", b"b")
    assert browse(net, "q") == []


def test_the_window_begins_with_the_first_message(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=10_000))
    sender = net.connect().sender("q")
    send_as(sender, "id", b"a")
    net.advance(9)
    send_as(sender, "id", b"b")
    net.advance(0.999)
    send_as(sender, "id", b"c")
    net.advance(0.0015)
    send_as(sender, "id", b"d")
    assert bodies(net, "q") == [b"a", b"d"]


def test_no_more_than_the_limit_are_remembered(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=1_000_000, duplicate_limit=3))
    sender = net.connect().sender("q")
    for message_id in ("1", "2", "3", "4"):
        send_as(sender, message_id)
    send_as(sender, "2", b"again")
    assert net.queue("q").available == 4
    send_as(sender, "1", b"forgotten")
    assert net.queue("q").available == 5


def test_what_was_refused_may_come_again(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=10_000, max_length=1))
    client = net.connect()
    sender = client.sender("q")
    send_as(sender, "a", b"a")
    refusal = send(sender, b"b", properties=Properties(message_id="b"))
    assert refused(refusal)[0] == "amqp:resource-limit-exceeded"
    client.receiver("q", credit=1).settle(Accepted())
    send_as(sender, "b", b"b")
    assert browse(net, "q") == [b"b"]
    # One that is known already is no reason to refuse, however full the queue is.
    send_as(sender, "b", b"b")


def test_a_scheduled_message_has_come(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=100_000))
    sender = net.connect().sender("q")
    properties = Properties(message_id="id")
    send(sender, b"later", properties=properties, annotations={"x-opt-delivery-delay": 1000})
    send_as(sender, "id", b"now")
    assert browse(net, "q") == []
    net.advance(1.001)
    assert browse(net, "q") == [b"later"]


def test_the_window_can_be_changed(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(duplicate_window=100_000))
    sender = net.connect().sender("q")
    send_as(sender, "a")
    net.advance(5)
    queue.change_policy(QueuePolicy(duplicate_window=4000))
    send_as(sender, "a")
    assert queue.available == 2
    queue.change_policy(QueuePolicy())
    send_as(sender, "a")
    assert queue.available == 3


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_as_in_a_model(plan: list[tuple[int, int]], window: int, limit: int) -> None:
    net = Network()
    net.advance(0.0005)
    net.declare("q", QueuePolicy(duplicate_window=window * 1000, duplicate_limit=limit))
    sender = net.connect().sender("q")
    seen: list[tuple[int, int]] = []
    taken = 0
    for message_id, pause in plan:
        send_as(sender, message_id)
        seen = [(i, t) for i, t in seen if net.wall - t < window * 1000]
        if message_id not in [i for i, _ in seen]:
            seen = [*seen, (message_id, net.wall)][-limit:]
            taken += 1
        assert net.queue("q").available == taken
        net.advance(pause)
