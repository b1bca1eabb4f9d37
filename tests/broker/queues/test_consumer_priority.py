"""Priorities of consumers: the higher one is served while it can take messages."""

from __future__ import annotations

from ferrymq_types.messaging import Accepted, Released
from tests.broker.harness import Network
from tests.broker.queues.links import consume, numbered, publish


def test_the_lower_one_gets_what_the_higher_one_has_no_credit_for(net: Network) -> None:
    client = net.connect()
    low = consume(client, "q", 100)
    high = consume(client, "q", 3, priority=10)
    sender = client.sender("q")
    sender.send(*numbered(0, 5))
    assert high.bodies() == numbered(0, 3)
    assert low.bodies() == numbered(3, 2)
    high.credit(100)
    sender.send(*numbered(5, 5))
    assert high.bodies() == numbered(0, 3) + numbered(5, 5)


def test_negative_priority_is_below_the_usual(net: Network) -> None:
    client = net.connect()
    last_resort = consume(client, "q", 100, priority=-1)
    usual = consume(client, "q", 2)
    client.sender("q").send(*numbered(0, 3))
    assert (usual.bodies(), last_resort.bodies()) == (numbered(0, 2), [b"2"])


def test_equals_take_turns(net: Network) -> None:
    client = net.connect()
    consume(client, "q", 100)
    equals = [consume(client, "q", 100, priority=5) for _ in range(3)]
    client.sender("q").send(*numbered(0, 30))
    assert [len(receiver.deliveries) for receiver in equals] == [10, 10, 10]


def test_the_answer_says_what_was_granted(net: Network) -> None:
    receiver = consume(net.connect(), "q", priority=7)
    attach = receiver.link.remote_attach
    assert attach is not None and attach.properties is not None
    assert attach.properties["priority"] == 7


def test_what_the_higher_one_does_not_want_goes_to_the_lower_one(net: Network) -> None:
    client = net.connect()
    high = consume(client, "q", 100, priority=1, selector="colour = 'red'")
    low = consume(client, "q", 100)
    sender = client.sender("q")
    publish(sender, b"red", colour="red")
    publish(sender, b"blue", colour="blue")
    assert (high.bodies(), low.bodies()) == ([b"red"], [b"blue"])


def test_a_message_that_comes_back_goes_to_the_higher_one_too(net: Network) -> None:
    client = net.connect()
    low = consume(client, "q", 100)
    client.sender("q").send(b"a")
    high = consume(client, "q", 100, priority=1)
    low.settle(Released())
    assert (low.bodies(), high.bodies()) == ([], [b"a"])
    high.settle(Accepted())


def test_the_lower_one_takes_over_when_the_higher_one_goes(net: Network) -> None:
    client = net.connect()
    low = consume(client, "q", 100)
    other = net.connect()
    high = consume(other, "q", 100, priority=1)
    sender = client.sender("q")
    sender.send(*numbered(0, 2))
    assert (high.bodies(), low.bodies()) == (numbered(0, 2), [])
    other.lose()
    assert low.bodies() == numbered(0, 2)
    sender.send(b"2")
    assert low.bodies() == numbered(0, 3)
