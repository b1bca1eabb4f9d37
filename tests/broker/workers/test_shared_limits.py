"""How workers count the connections of all: each in its own part of what they share."""

from __future__ import annotations

import random

from ferrymq_broker.counters import Counters
from ferrymq_broker.server.connection_limits import ConnectionLimits

HOST = "192.0.2.1"


def workers(count: int, total: int, per_address: int = 0) -> list[ConnectionLimits]:
    """Workers that share their numbers."""
    shared = [0] * (2 * count)
    return [
        ConnectionLimits(total, per_address, Counters(), shared, place) for place in range(count)
    ]


def test_all_together_have_the_total() -> None:
    one, two = workers(2, 3)
    assert one.enter("a", HOST) and two.enter("b", HOST) and one.enter("c", HOST)
    assert not one.enter("d", HOST) and not two.enter("d", HOST)
    two.leave("b")
    assert one.enter("d", HOST)


def test_a_connection_on_its_way_counts_once() -> None:
    one, two = workers(2, 2)
    assert one.enter("a", HOST) and two.enter("b", HOST)
    one.pass_on("a", False)
    assert not one.enter("c", HOST) and not two.enter("c", HOST)
    assert two.adopt("a'", HOST)
    assert not one.enter("c", HOST) and not two.enter("c", HOST)
    two.leave("a'")
    assert one.enter("c", HOST)


def test_a_relay_counts_at_the_worker_that_serves_it() -> None:
    one, two = workers(2, 2)
    assert one.enter("a", HOST)
    one.pass_on("a", True)
    assert two.adopt("a'", HOST)
    assert two.enter("b", HOST) and not one.enter("c", HOST)
    # Its address has a place at both.
    assert one.of(HOST) == 1 and two.of(HOST) == 2
    two.leave("a'")
    one.leave("a")
    assert one.of(HOST) == 0
    assert one.enter("c", HOST) and not two.enter("d", HOST)


def test_a_relay_inside_a_websocket() -> None:
    """The WebSocket is what was counted, not the connection in it."""
    one, two = workers(2, 2)
    for _ in range(3):
        assert one.enter("websocket", HOST)
        one.pass_on("connection", True)
        assert two.adopt("a'", HOST)
        one.leave("connection")
        one.leave("websocket")
        two.leave("a'")
    assert one.enter("b", HOST) and two.enter("c", HOST) and not one.enter("d", HOST)


def test_one_that_is_not_adopted_gives_its_place_back() -> None:
    one, two = workers(2, 2, per_address=1)
    assert one.enter("a", "a") and two.enter("b", "b")
    one.pass_on("a", False)
    two.leave("b")
    assert two.enter("a", "a")
    assert not two.adopt("a'", "a")
    assert one.enter("c", "c") and not one.enter("d", "d")


def test_nothing_is_lost_or_counted_twice() -> None:
    dice = random.Random(1)
    all_workers = workers(3, 20)
    here: list[tuple[int, object]] = []
    for _ in range(5000):
        if here and dice.random() < 0.6:
            at, who = here.pop(dice.randrange(len(here)))
            if dice.random() < 0.5:
                all_workers[at].leave(who)
                continue
            other = (at + 1) % 3
            all_workers[at].pass_on(who, False)
            who = object()
            assert all_workers[other].adopt(who, HOST)
            here.append((other, who))
        else:
            at, who = dice.randrange(3), object()
            assert all_workers[at].enter(who, HOST) == (len(here) < 20)
            if len(here) < 20:
                here.append((at, who))
    assert sum(len(each) for each in all_workers) == len(here)
