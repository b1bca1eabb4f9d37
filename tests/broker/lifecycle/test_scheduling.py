"""Messages that are to be there later: not before, in order, and not if they are called off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.node import DELETE_ON_NO_MESSAGES
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Int, Symbol, Timestamp, UInt, ULong
from ferrymq_types.messaging import Accepted, Data, MessageAnnotations, Properties
from tests.broker.harness import Network, encode, text
from tests.broker.lifecycle.letters import bodies, browse, drain, figure, refused, send, ttl_of

TIME = "x-opt-delivery-time"
DELAY = "x-opt-delivery-delay"
ENQUEUE = "x-opt-scheduled-enqueue-time"


@pytest.mark.parametrize("how", [TIME, DELAY, ENQUEUE])
def test_a_message_comes_when_it_is_to_come(net: Network, how: str) -> None:
    value = {
        TIME: net.wall + 5000,
        DELAY: 5000,
        ENQUEUE: Timestamp(net.wall + 5000),
    }[how]
    client = net.connect()
    receiver = client.receiver("q", credit=10)
    delivery = send(client.sender("q"), b"a", annotations={how: value})
    assert isinstance(delivery.remote_state, Accepted)
    net.advance(4.999)
    assert receiver.deliveries == []
    assert browse(net, "q") == []
    assert net.queue("q").available == 0
    assert figure(net, "q", "scheduled") == 1
    net.advance(0.002)
    assert receiver.bodies() == [b"a"]
    assert figure(net, "q", "scheduled") == 0


@pytest.mark.parametrize("value", [5000, UInt(5000), ULong(5000), Int(5000), Timestamp(5000)])
def test_every_kind_of_whole_number_will_do(net: Network, value: int) -> None:
    send(net.connect().sender("q"), b"a", annotations={DELAY: value})
    net.advance(4.99)
    assert browse(net, "q") == []
    net.advance(0.02)
    assert browse(net, "q") == [b"a"]


@pytest.mark.parametrize("annotations", [{DELAY: 0}, {TIME: 1}, {TIME: -1}, {ENQUEUE: 0}])
def test_what_is_due_already_comes_at_once(
    net: Network, annotations: dict[str | int, object]
) -> None:
    send(net.connect().sender("q"), b"a", annotations=annotations)
    assert browse(net, "q") == [b"a"]


@pytest.mark.parametrize("annotation", [TIME, DELAY, ENQUEUE])
@pytest.mark.parametrize(
    "value", ["soon", 1.5, True, b"1", [1], Symbol("x"), None, ULong((1 << 64) - 1)]
)
def test_what_is_no_time_is_refused(net: Network, annotation: str, value: object) -> None:
    delivery = send(net.connect().sender("q"), b"a", annotations={annotation: value})
    condition, description = refused(delivery)
    assert condition == "amqp:invalid-field"
    assert annotation in description
    assert net.queue("q").message_count() == 0


@pytest.mark.parametrize("beyond", [1, 0])
def test_a_delay_may_last_until_the_end_of_the_year_9999(net: Network, beyond: int) -> None:
    delay = 253_402_300_799_999 - net.wall + beyond
    delivery = send(net.connect().sender("q"), b"a", annotations={DELAY: delay})
    if beyond:
        condition, description = refused(delivery)
        assert condition == "amqp:invalid-field"
        assert f"{DELAY} is {delay}" in description
    assert net.queue("q").lifecycle.scheduled() == 1 - beyond


def test_a_delay_is_not_negative(net: Network) -> None:
    delivery = send(net.connect().sender("q"), b"a", annotations={DELAY: -1})
    assert refused(delivery)[0] == "amqp:invalid-field"


def test_the_place_is_that_of_the_time_not_of_the_arrival(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"third", annotations={DELAY: 3000})
    send(sender, b"second", annotations={DELAY: 2000})
    send(sender, b"second too", annotations={TIME: net.wall + 2000})
    send(sender, b"first")
    net.advance(2.5)
    send(sender, b"in between")
    net.advance(1)
    assert bodies(net, "q") == [b"first", b"second", b"second too", b"in between", b"third"]


def test_a_ttl_begins_when_the_message_comes(net: Network) -> None:
    send(net.connect().sender("q"), b"a", ttl=1000, annotations={DELAY: 5000})
    net.advance(5.5005)
    (delivery,) = drain(net, "q")
    assert ttl_of(delivery) == 500
    send(net.connect().sender("p"), b"a", ttl=1000, annotations={DELAY: 5000})
    net.advance(6.001)
    assert browse(net, "p") == []


def test_an_absolute_time_does_not_wait(net: Network) -> None:
    properties = Properties(absolute_expiry_time=Timestamp(net.wall + 3000))
    sender = net.connect().sender("q")
    send(sender, b"a", annotations={DELAY: 5000}, properties=properties)
    net.advance(5.001)
    assert browse(net, "q") == []
    assert figure(net, "q", "expirations") == 1


def test_what_is_to_come_counts_against_a_bound(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=2))
    sender = net.connect().sender("q")
    send(sender, b"a", annotations={DELAY: 5000})
    sender.send(b"b")
    assert refused(sender.send(b"c")[0])[0] == "amqp:resource-limit-exceeded"
    late = send(sender, b"d", annotations={DELAY: 5000})
    assert refused(late)[0] == "amqp:resource-limit-exceeded"
    net.advance(5.001)
    assert bodies(net, "q") == [b"b", b"a"]


def test_the_oldest_makes_room_for_what_is_to_come(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=2, overflow="drop-head"))
    sender = net.connect().sender("q")
    sender.send(b"a", b"b")
    send(sender, b"later", annotations={DELAY: 5000})
    send(sender, b"later still", annotations={DELAY: 6000})
    assert browse(net, "q") == []
    # Nothing is left that could make room.
    more = send(sender, b"no", annotations={DELAY: 7000})
    assert refused(more)[0] == "amqp:resource-limit-exceeded"
    net.advance(7)
    assert browse(net, "q") == [b"later", b"later still"]


def test_a_scheduled_message_can_be_cancelled(net: Network) -> None:
    sender = net.connect().sender("q")
    for n in range(3):
        send(sender, b"%d" % n, annotations={DELAY: 3000 - n * 1000})
    lifecycle = net.queue("q").lifecycle
    listed = lifecycle.list_scheduled()
    assert [text(s.message.payload) for s in listed] == [b"2", b"1", b"0"]
    assert [s.due - net.wall for s in listed] == [1000, 2000, 3000]
    assert lifecycle.cancel_scheduled(listed[0].sequence)
    assert not lifecycle.cancel_scheduled(listed[0].sequence)
    assert not lifecycle.cancel_scheduled(99)
    net.advance(5)
    assert bodies(net, "q") == [b"1", b"0"]


def test_cancelling_all_leaves_nothing_behind(net: Network) -> None:
    timers = len(net.broker.timers)
    held = net.broker.agenda.held
    sender = net.connect().sender("q")
    lifecycle = net.queue("q").lifecycle
    for _ in range(300):
        send(sender, b"x" * 100, annotations={DELAY: 1_000_000})
    assert net.broker.agenda.held > held
    for scheduled in lifecycle.list_scheduled():
        lifecycle.cancel_scheduled(scheduled.sequence)
    assert len(net.broker.timers) == timers
    assert net.broker.agenda.held == held
    assert net.queue("q").message_count() == 0


def test_a_deleted_queue_sends_nothing_later(net: Network) -> None:
    timers = len(net.broker.timers)
    held = net.broker.agenda.held
    send(net.connect().sender("q"), b"a", annotations={DELAY: 5000})
    net.space.remove(net.queue("q"))
    assert len(net.broker.timers) == timers
    assert net.broker.agenda.held == held
    net.advance(10)
    assert browse(net, "q") == []


def test_a_queue_with_messages_to_come_is_not_empty(net: Network) -> None:
    node = net.space.create_dynamic(QueuePolicy(), DELETE_ON_NO_MESSAGES)
    client = net.connect()
    sender = client.sender(node.address)
    send(sender, b"a", annotations={DELAY: 1000})
    sender.close()
    assert not node.deleted
    net.advance(1.001)
    receiver = client.receiver(node.address, credit=1)
    assert receiver.bodies() == [b"a"]
    receiver.settle(Accepted())
    assert node.deleted


def test_more_than_ten_thousand_at_the_same_time(net: Network) -> None:
    sender = net.connect().sender("q")
    payload = encode(MessageAnnotations(value={DELAY: 90_000}), Data(value=b"x"))
    for _ in range(13):
        for _ in range(900):
            sender.link.send(payload, settled=True)
        net.run()
    assert figure(net, "q", "scheduled") == 11_700
    net.advance(100)
    assert net.queue("q").available == 11_700


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
def test_never_early_and_in_order(plan: list[tuple[int, int]]) -> None:
    net = Network()
    net.advance(0.0005)
    sender = net.connect().sender("q")
    expected: list[tuple[int, int, int]] = []
    for n, (delay, pause) in enumerate(plan):
        send(sender, b"%d" % n, annotations={DELAY: delay * 1000})
        expected.append((net.wall + delay * 1000, 0 if delay else 1, n))
        net.advance(pause)
        due = sorted(e for e in expected if e[0] <= net.wall)
        assert [int(b) for b in browse(net, "q")] == [n for _, _, n in due]


def test_one_that_comes_after_all_were_cancelled_comes_in_its_time(net: Network) -> None:
    queue = net.declare("q")
    sender = net.connect().sender("q")
    send(sender, b"a", annotations={"x-opt-delivery-delay": 1000})
    assert queue.lifecycle.cancel_scheduled(queue.lifecycle.list_scheduled()[0].sequence)
    send(sender, b"b", annotations={"x-opt-delivery-delay": 5000})
    net.advance(10)
    assert bodies(net, "q") == [b"b"]
