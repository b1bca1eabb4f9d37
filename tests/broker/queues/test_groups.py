"""Message groups (AMQP 1.0 §3.2.4, group-id): one consumer each, in order."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Modified, Released
from tests.broker.harness import Network
from tests.broker.queues.links import consume, numbered, publish

POLICY = QueuePolicy(groups=True)


@pytest.mark.spec("3.2.4")
def test_a_group_stays_with_its_consumer(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    receivers = [consume(client, "q", 100) for _ in range(3)]
    sender = client.sender("q")
    for number in range(30):
        publish(sender, b"%d" % number, group="abcde"[number % 5])
    owners: dict[int, int] = {}
    for index, receiver in enumerate(receivers):
        assert receiver.deliveries
        numbers = [int(body) for body in receiver.bodies()]
        assert numbers == sorted(numbers)
        for number in numbers:
            assert owners.setdefault(number % 5, index) == index
    assert sum(len(receiver.deliveries) for receiver in receivers) == 30


def test_another_group_does_not_wait_behind_one_without_credit(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    slow = consume(client, "q", 1)
    sender = client.sender("q")
    publish(sender, *numbered(0, 50), group="a")
    fast = consume(client, "q", 100)
    publish(sender, b"b", group="b")
    publish(sender, b"none")
    assert (slow.bodies(), fast.bodies()) == ([b"0"], [b"b", b"none"])
    slow.credit(100)
    assert slow.bodies() == numbered(0, 50)


def test_a_group_moves_on_when_its_consumer_leaves(net: Network) -> None:
    net.declare("q", POLICY)
    leaving, client = net.connect(), net.connect()
    first = consume(leaving, "q", 2)
    sender = client.sender("q")
    publish(sender, *numbered(0, 5), group="a")
    second = consume(client, "q", 100)
    assert (first.bodies(), second.bodies()) == (numbered(0, 2), [])
    leaving.lose()
    assert second.bodies() == numbered(0, 5)


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True)])
def test_what_comes_back_goes_before_the_rest_of_its_group(
    net: Network, outcome: Released | Modified
) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    first = consume(client, "q", 2)
    second = consume(client, "q", 100)
    sender = client.sender("q")
    publish(sender, *numbered(0, 4), group="a")
    first.settle(outcome, *first.take())
    assert second.bodies() == []
    first.credit(10)
    assert first.bodies() == numbered(0, 4)


def test_a_group_follows_the_message_its_consumer_does_not_want(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    first = consume(client, "q", 1)
    sender = client.sender("q")
    publish(sender, *numbered(0, 3), group="a")
    first.settle(Modified(undeliverable_here=True))
    first.credit(10)
    # Nobody can take 0: what is behind it waits, other groups do not.
    assert first.bodies() == []
    publish(sender, b"other", group="b")
    assert first.bodies() == [b"other"]
    second = consume(client, "q", 10)
    assert second.bodies() == numbered(0, 3)
    publish(sender, b"3", group="a")
    assert second.bodies() == numbered(0, 4)


def test_a_group_that_waits_goes_on_when_the_message_in_its_way_is_gone(net: Network) -> None:
    queue = net.declare("q", POLICY)
    client = net.connect()
    first = consume(client, "q", 1)
    publish(client.sender("q"), *numbered(0, 3), group="a")
    first.settle(Modified(undeliverable_here=True))
    first.credit(10)
    entry = queue.entries.first_available()
    assert entry is not None
    queue.drop(entry)
    net.finish()
    assert first.bodies() == [b"1", b"2"]


def test_a_group_without_messages_is_forgotten(net: Network) -> None:
    queue = net.declare("q", POLICY)
    client = net.connect()
    first, second = consume(client, "q", 1), consume(client, "q", 1)
    sender = client.sender("q")
    publish(sender, b"0", group="a")
    assert queue.entries.groups is not None
    assert len(queue.entries.groups) == 1
    assert first.bodies() == [b"0"]
    first.settle(Accepted())
    assert len(queue.entries.groups) == 0
    # It begins anew: with whoever has credit.
    publish(sender, b"1", group="a")
    assert second.bodies() == [b"1"]


def test_groups_do_not_matter_elsewhere(net: Network) -> None:
    client = net.connect()
    receivers = [consume(client, "q", 100) for _ in range(2)]
    publish(client.sender("q"), *numbered(0, 10), group="a")
    assert [len(receiver.deliveries) for receiver in receivers] == [5, 5]
