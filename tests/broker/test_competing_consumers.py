"""Consumers share a queue: each message goes to one of them, in turns, by credit."""

from __future__ import annotations

import itertools

from ferrymq_types.messaging import Accepted, Released
from tests.broker.harness import Network


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_consumers_take_turns(net: Network) -> None:
    client = net.connect()
    receivers = [client.receiver("q", credit=100) for _ in range(3)]
    client.sender("q").send(*numbered(30))
    assert [len(r.deliveries) for r in receivers] == [10, 10, 10]
    everything = itertools.chain.from_iterable(r.bodies() for r in receivers)
    assert sorted(everything) == sorted(numbered(30))


def test_consumers_on_different_connections_take_turns(net: Network) -> None:
    receivers = [net.connect().receiver("q", credit=100) for _ in range(4)]
    sender = net.connect().sender("q")
    for body in numbered(40):
        sender.send(body)
    assert [len(r.deliveries) for r in receivers] == [10, 10, 10, 10]


def test_a_consumer_without_credit_is_left_out(net: Network) -> None:
    client = net.connect()
    poor = client.receiver("q", credit=2)
    none = client.receiver("q")
    rich = client.receiver("q", credit=100)
    client.sender("q").send(*numbered(20))
    assert len(poor.deliveries) == 2
    assert none.deliveries == []
    assert len(rich.deliveries) == 18
    none.credit(5)
    assert none.deliveries == []


def test_credit_bounds_what_is_delivered(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(10))
    receiver = client.receiver("q", credit=3)
    assert receiver.bodies() == numbered(3)
    receiver.settle(Accepted())
    assert receiver.deliveries == []
    receiver.credit(4)
    assert receiver.bodies() == [b"3", b"4", b"5", b"6"]


def test_a_stalled_consumer_does_not_hold_up_the_others(net: Network) -> None:
    slow = net.connect()
    stalled = slow.receiver("q", credit=100)
    slow.pause()
    active = net.connect().receiver("q", credit=100)
    net.connect().sender("q").send(*numbered(10))
    assert active.bodies() == numbered(10)
    assert stalled.deliveries == []
    slow.resume()
    net.connect().sender("q").send(b"x", b"y")
    assert stalled.bodies() in ([b"x"], [b"y"])


def test_messages_wait_for_a_stalled_consumer(net: Network) -> None:
    client = net.connect()
    receiver = client.receiver("q", credit=100)
    client.pause()
    net.connect().sender("q").send(*numbered(10))
    assert net.queue("q").available == 10
    client.resume()
    assert receiver.bodies() == numbered(10)


def test_one_message_never_goes_to_two(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"only")
    first = client.receiver("q", credit=1)
    second = client.receiver("q", credit=1)
    assert (first.bodies(), second.bodies()) == ([b"only"], [])
    first.settle(Released())
    # First is out of credit.
    assert second.bodies() == [b"only"]


def test_a_leaving_consumer_leaves_the_turns_intact(net: Network) -> None:
    client = net.connect()
    receivers = [client.receiver("q", credit=1000) for _ in range(5)]
    sender = client.sender("q")
    sender.send(*numbered(5))
    receivers[0].close()
    receivers[3].close()
    for receiver in receivers:
        receiver.deliveries.clear()
    sender.send(*numbered(30))
    assert [len(receivers[i].deliveries) for i in (1, 2, 4)] == [10, 10, 10]


def test_a_thousand_queues(net: Network) -> None:
    net.space.max_nodes = 1000
    client = net.connect()
    anywhere = client.sender(None)
    del anywhere
    sessions = [client.begin() for _ in range(4)]
    senders = [client.sender(f"q{i}", session=sessions[i % 4]) for i in range(1000)]
    receivers = [client.receiver(f"q{i}", credit=1, session=sessions[i % 4]) for i in range(1000)]
    for i, sender in enumerate(senders):
        sender.send(b"%d" % i)
    assert [r.bodies() for r in receivers] == [[b"%d" % i] for i in range(1000)]
