"""A queue that serves one consumer at a time; the others stand by."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted
from tests.broker.harness import Network
from tests.broker.queues.links import consume, numbered

POLICY = QueuePolicy(single_active=True)


def test_the_first_one_gets_everything(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    first, second = consume(client, "q", 100), consume(client, "q", 100)
    client.sender("q").send(*numbered(0, 5))
    assert (first.bodies(), second.bodies()) == (numbered(0, 5), [])


def test_without_credit_nobody_else_gets_anything(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    first, second = consume(client, "q", 1), consume(client, "q", 100)
    client.sender("q").send(*numbered(0, 3))
    assert (first.bodies(), second.bodies()) == ([b"0"], [])
    first.credit(5)
    assert first.bodies() == numbered(0, 3)


@pytest.mark.parametrize("how", ["close", "lose"])
def test_the_next_one_takes_over_and_what_was_held_comes_first(net: Network, how: str) -> None:
    net.declare("q", POLICY)
    leaving = net.connect()
    first = consume(leaving, "q", 3)
    client = net.connect()
    second, third = consume(client, "q", 100), consume(client, "q", 100)
    client.sender("q").send(*numbered(0, 6))
    first.settle(Accepted(), first.deliveries[1])
    if how == "close":
        first.close()
    else:
        leaving.lose()
    assert second.bodies() == [b"0", b"2", b"3", b"4", b"5"]
    assert third.bodies() == []


def test_of_those_that_wait_the_highest_priority_is_next(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    first = consume(client, "q", 100)
    waiting = consume(client, "q", 100)
    important = consume(client, "q", 100, priority=3)
    sender = client.sender("q")
    sender.send(b"a")
    # A higher priority takes nothing away from the one that is served.
    assert first.bodies() == [b"a"]
    first.settle(Accepted())
    first.close()
    sender.send(b"b")
    assert (important.bodies(), waiting.bodies()) == ([b"b"], [])


def test_one_that_stands_by_is_drained_at_once(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    consume(client, "q", 1)
    client.sender("q").send(*numbered(0, 3))
    second = consume(client, "q")
    second.link.set_credit(10)
    second.drain()
    assert (second.bodies(), second.drained, second.link.credit) == ([], 1, 0)


def test_one_that_leaves_from_behind_changes_nothing(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    first, second = consume(client, "q", 100), consume(client, "q", 100)
    second.close()
    client.sender("q").send(b"a")
    assert first.bodies() == [b"a"]


def test_browsers_see_all_the_same(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    browser = consume(client, "q", 100, mode="copy")
    client.sender("q").send(b"a")
    consumer = consume(client, "q", 100)
    assert browser.bodies() == consumer.bodies() == [b"a"]
