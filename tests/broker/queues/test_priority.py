"""Priorities of messages (AMQP 1.0 §3.2.1): the more urgent first, in order within one level."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Modified, Released
from tests.broker.harness import Network
from tests.broker.queues.links import consume, numbered, publish


@pytest.mark.spec("3.2.1")
def test_the_more_urgent_goes_first_and_order_is_kept_within_a_level(net: Network) -> None:
    sender = net.connect().sender("q")
    for priority in (4, 9, 0, 4, 9, 0):
        publish(sender, b"%d" % priority, priority=priority)
    publish(sender, b"none")
    receiver = consume(net.connect(), "q", 10)
    assert receiver.bodies() == [b"9", b"9", b"4", b"4", b"none", b"0", b"0"]


@pytest.mark.spec("3.2.1")
@pytest.mark.parametrize(
    ("levels", "classes"),
    [
        (1, ["0123456789"]),
        (2, ["01234", "56789"]),
        (3, ["0123", "4", "56789"]),
        (4, ["0123", "4", "5", "6789"]),
        (5, ["012", "3", "4", "5", "6789"]),
        (9, ["0", "1", "2", "3", "4", "5", "6", "7", "89"]),
        (10, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]),
    ],
)
def test_which_priorities_are_the_same(net: Network, levels: int, classes: list[str]) -> None:
    """Priorities of one class keep the order they were sent in; classes go from high to low."""
    net.declare("q", QueuePolicy(priorities=levels))
    sender = net.connect().sender("q")
    order = [3, 7, 0, 9, 4, 1, 5, 8, 2, 6]
    for priority in order:
        publish(sender, b"%d" % priority, priority=priority)
    expected = [
        b"%d" % priority
        for members in reversed(classes)
        for priority in order
        if str(priority) in members
    ]
    assert consume(net.connect(), "q", 20).bodies() == expected


@pytest.mark.spec("3.2.1")
def test_priorities_beyond_the_highest_are_the_highest(net: Network) -> None:
    sender = net.connect().sender("q")
    publish(sender, b"200", priority=200)
    publish(sender, b"9", priority=9)
    publish(sender, b"255", priority=255)
    assert consume(net.connect(), "q", 3).bodies() == [b"200", b"9", b"255"]


def test_an_urgent_message_overtakes_what_waits_but_not_what_is_held(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    publish(sender, *numbered(0, 3))
    receiver = consume(client, "q", 1)
    publish(sender, b"urgent", priority=8)
    assert receiver.bodies() == [b"0"]
    receiver.credit(10)
    assert receiver.bodies() == [b"0", b"urgent", b"1", b"2"]


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True)])
def test_what_comes_back_keeps_its_level_and_its_place(
    net: Network, outcome: Released | Modified
) -> None:
    client = net.connect()
    sender = client.sender("q")
    publish(sender, b"low 1", b"low 2", priority=1)
    first = consume(client, "q", 2)
    publish(sender, b"high 1", b"high 2", priority=7)
    second = consume(client, "q", 1)
    assert (first.bodies(), second.bodies()) == ([b"low 1", b"low 2"], [b"high 1"])
    first.settle(outcome)
    second.settle(outcome)
    last = consume(client, "q", 10)
    assert last.bodies() == [b"high 1", b"high 2", b"low 1", b"low 2"]
    last.settle(Accepted())
    assert net.queue("q").message_count() == 0
