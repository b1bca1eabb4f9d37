"""A slice of what `python -m tests.simulation` does for as long as one likes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.link_world import LinkWorld
from tests.simulation.world import SMALL_DISK, World, Wrong
from tests.support.lanes import amount

# Seeds a test: `make test-all` takes ten times as many.
TEN = amount(10, 100)
FIVE = amount(5, 50)
# A client that waited for credit when its connection was lost was never woken.
FORGOTTEN_WAITERS = (728, 855, 1142)
# A client that was to resume, and had no credit or no connection for it, went round in a circle.
CIRCLES = (5, 28, 55, 4011412)


@pytest.mark.parametrize("first", range(0, 6 * TEN, TEN))
def test_nothing_is_lost_and_nothing_comes_twice(first: int) -> None:
    for seed in range(first, first + TEN):
        World(seed).run()


@pytest.mark.parametrize("first", range(1000, 1000 + 4 * TEN, TEN))
def test_ordinary_links_lose_nothing_that_was_accepted(first: int) -> None:
    for seed in range(first, first + TEN):
        World(seed, once=False).run()


@pytest.mark.parametrize("first", range(2000, 2000 + 4 * FIVE, FIVE))
def test_a_disk_that_becomes_full_loses_nothing(first: int) -> None:
    """Producers are stopped, consumers go on, and then producers again."""
    stopped = 0
    for seed in range(first, first + FIVE):
        world = World(seed, once=seed % 2 == 0, capacity=SMALL_DISK)
        world.run()
        stopped += world.stopped
    assert stopped


@pytest.mark.parametrize("first", range(3000, 3000 + 4 * TEN, TEN))
def test_a_wall_clock_that_is_set_holds_nothing_up(first: int) -> None:
    """Delays end in time, nothing is lost, and nothing comes twice."""
    delayed = 0
    for seed in range(first, first + TEN):
        world = World(seed, clocks=True)
        world.run()
        delayed += len(world.delayed)
    assert delayed > 20


def test_links_in_unusual_states_keep_their_promises() -> None:
    """Transactions side by side, refusals before a commit, drains behind shut windows."""
    happened: Counter[str] = Counter()
    # One in two seeds has a transaction in doubt.
    for seed in range(4000, 4000 + 4 * FIVE):
        world = LinkWorld(seed)
        world.run()
        happened += world.happened
        assert world.drained > 0
    assert all(happened[outcome] for outcome in ("committed", "refused", "rolled back", "in doubt"))


@pytest.mark.parametrize("seed", FORGOTTEN_WAITERS)
def test_waiters_are_remembered(seed: int) -> None:
    World(seed, once=False).run()


@pytest.mark.parametrize("seed", CIRCLES)
def test_nobody_goes_round_in_a_circle(seed: int) -> None:
    World(seed).run()


def test_a_seed_decides_everything() -> None:
    lives = []
    for _ in range(2):
        world = World(7, once=False)
        world.run()
        lives.append((world.loop.time(), world.received, world.crashes))
    assert lives[0] == lives[1]


def test_a_disk_that_does_not_sync_is_found_out() -> None:
    """The negative control: what proves nothing cannot fail."""
    wrong = 0
    for seed in range(40):
        try:
            World(seed, once=False, unsafe=True).run()
        except Exception:
            wrong += 1
    assert wrong >= 5


def test_faults_are_told() -> None:
    world = World(1, once=False)
    world.run()
    world.accepted.add("never received")
    with pytest.raises(Wrong, match=r"accepted and lost.*never received"):
        world.check()
