"""Consumers with filters beside others: who gets what, and what that costs."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Modified, Released
from tests.broker.harness import Network
from tests.broker.queues.links import consume, numbered, publish

RED = "colour = 'red'"
BLUE = "colour = 'blue'"


@pytest.mark.spec("3.5.8")
def test_a_message_goes_to_one_whose_filter_it_passes(net: Network) -> None:
    client = net.connect()
    reds, blues = consume(client, "q", 10, selector=RED), consume(client, "q", 10, selector=BLUE)
    sender = client.sender("q")
    for colour in ("red", "blue", "green", "red"):
        publish(sender, colour.encode(), colour=colour)
    assert (reds.bodies(), blues.bodies()) == ([b"red", b"red"], [b"blue"])
    assert consume(client, "q", 10).bodies() == [b"green"]


def test_consumers_take_turns_whatever_their_filters(net: Network) -> None:
    """Three that take red messages only and one that takes all: a quarter each of what is red."""
    client = net.connect()
    reds = [consume(client, "q", 100, selector=RED) for _ in range(3)]
    rest = consume(client, "q", 100)
    sender = client.sender("q")
    for body in numbered(0, 40):
        publish(sender, body, colour="red")
    assert [len(receiver.deliveries) for receiver in (*reds, rest)] == [10, 10, 10, 10]


def test_one_that_was_away_has_no_claim_to_what_others_took(net: Network) -> None:
    client = net.connect()
    red = consume(client, "q", selector=RED)
    rest = consume(client, "q", 1000)
    sender = client.sender("q")
    publish(sender, *numbered(0, 50), colour="red")
    red.credit(1000)
    publish(sender, *numbered(50, 20), colour="red")
    assert len(rest.deliveries) in (59, 60, 61)


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True)])
def test_what_comes_back_is_offered_to_all_it_passes(
    net: Network, outcome: Released | Modified
) -> None:
    client = net.connect()
    rest = consume(client, "q", 3)
    publish(client.sender("q"), b"1", b"2", colour="red")
    publish(client.sender("q"), b"3", colour="blue")
    assert rest.bodies() == [b"1", b"2", b"3"]
    red = consume(client, "q", 10, selector=RED)
    rest.link.set_credit(0)
    rest.settle(outcome)
    assert red.bodies() == [b"1", b"2"]
    blue = consume(client, "q", 10, selector=BLUE)
    assert blue.bodies() == [b"3"]


def test_a_filter_keeps_its_place_when_messages_go(net: Network) -> None:
    """What a consumer without credit would get next is taken by others, and more behind it."""
    client = net.connect()
    red = consume(client, "q", selector=RED)
    publish(client.sender("q"), *numbered(0, 6), colour="red")
    rest = consume(client, "q", 2)
    rest.settle(Accepted())
    queue = net.queue("q")
    entry = queue.entries.first_available()
    assert entry is not None
    queue.drop(entry)
    net.broker.finish_pass()
    red.credit(10)
    assert red.bodies() == numbered(3, 3)


def test_a_new_consumer_of_a_known_filter_sees_what_the_others_may_not_have(net: Network) -> None:
    client = net.connect()
    picky = consume(client, "q", 10, selector=RED)
    publish(client.sender("q"), b"1", b"2", colour="red")
    picky.settle(Modified(undeliverable_here=True))
    publish(client.sender("q"), b"3", colour="red")
    assert picky.bodies() == [b"3"]
    other = consume(client, "q", 10, selector=RED)
    assert other.bodies() == [b"1", b"2"]


def test_a_message_too_large_for_a_link_goes_to_another(net: Network) -> None:
    client = net.connect()
    small = consume(client, "q", 10, max_message_size=1000)
    sender = client.sender("q")
    sender.send(b"a", b"x" * 2000, b"b")
    assert small.bodies() == [b"a", b"b"]
    large = consume(client, "q")
    assert net.queue("q").available == 1
    large.credit(10)
    assert large.bodies() == [b"x" * 2000]


def test_a_filter_that_nobody_has_any_more_leaves_nothing_behind(net: Network) -> None:
    client = net.connect()
    rest = consume(client, "q")
    for number in range(10):
        receiver = consume(client, "q", 1, selector=f"colour = '{number}'")
        publish(client.sender("q"), b"%d" % number, colour=str(number))
        receiver.close()
    evaluations = net.queue("q").registry.evaluations()
    rest.credit(100)
    assert rest.bodies() == numbered(0, 10)
    publish(client.sender("q"), b"more", colour="1")
    assert net.queue("q").registry.evaluations() == evaluations


def test_a_message_is_looked_at_once_for_each_filter(net: Network) -> None:
    """However often consumers wake up, and however slow one of them is."""
    count = 100_000
    queue = net.declare("q")
    client = net.connect()
    publish(client.sender("q"), b"red", colour="red")
    publish(client.sender("q"), b"blue", colour="blue")
    red, blue = queue.entries.priority_levels[0].first, queue.entries.priority_levels[0].last
    assert red is not None and blue is not None
    for _ in range(count // 2):
        queue.publish(red.message)
        queue.publish(blue.message)
    slow = consume(client, "q", 1, selector=BLUE)
    fast = consume(net.connect(), "q", selector=RED)
    got = 0
    while got < count // 2:
        fast.credit(500)
        got += len(fast.deliveries)
        fast.settle(Accepted())
        # The slow one wakes up without taking anything.
        slow.credit(0)
        slow.credit(1)
        net.advance(0)
    assert len(slow.deliveries) >= 1
    assert queue.registry.evaluations() <= 2 * (count + 2) + 2 * (
        queue.dispatcher.delivered + queue.dispatcher.declined
    )
    assert queue.dispatcher.delivered + queue.dispatcher.declined <= 2 * count


@pytest.mark.parametrize("mode", ["move", "copy"])
def test_others_have_their_turn_while_a_filter_goes_through_a_long_queue(
    net: Network, mode: str
) -> None:
    queue = net.declare("q")
    client = net.connect()
    publish(client.sender("q"), b"blue", colour="blue")
    blue = queue.entries.priority_levels[0].first
    assert blue is not None
    for _ in range(50_000):
        queue.publish(blue.message)
    publish(client.sender("q"), b"red", colour="red")
    red = consume(client, "q", selector=RED, mode=mode)
    red.link.set_credit(10)
    red.drain()
    # One turn did not reach the end; nobody is told that there is nothing.
    assert (red.bodies(), red.drained) == ([], 0)
    assert queue.registry.evaluations() <= 20_000
    net.advance(0.1)
    assert (red.bodies(), red.drained) == ([b"red"], 1)
    assert queue.registry.evaluations() <= 50_010
    assert net.broker.timers.next_due() == 0


def test_a_delivery_costs_the_same_with_a_thousand_consumers(net: Network) -> None:
    queue = net.declare("q")
    clients = [net.connect() for _ in range(10)]
    receivers = [consume(clients[index % 10], "q", 1) for index in range(1000)]
    sender = net.connect().sender("q")
    for start in range(0, 4000, 500):
        sender.send(*numbered(start, 500))
    taken = 0
    for _ in range(3):
        for receiver in receivers:
            taken += len(receiver.deliveries)
            receiver.settle(Accepted())
            receiver.credit(1)
    assert taken == 3000
    # Each takes one and says once that it has no credit for another.
    assert queue.dispatcher.delivered == 4000
    assert queue.dispatcher.declined <= queue.dispatcher.delivered + 1000


def test_one_message_that_nobody_may_have_costs_nothing_later(net: Network) -> None:
    queue = net.declare("q")
    client = net.connect()
    receivers = [consume(client, "q", 100) for _ in range(20)]
    for _ in range(20):
        client.sender("q").send(b"unwanted")
        for _ in receivers:
            for receiver in receivers:
                if receiver.deliveries:
                    receiver.settle(Modified(undeliverable_here=True))
    assert queue.available == 20
    before = queue.dispatcher.delivered + queue.dispatcher.declined
    for receiver in receivers:
        receiver.credit(100)
    client.sender("q").send(*numbered(0, 100))
    assert queue.dispatcher.delivered + queue.dispatcher.declined == before + 100
