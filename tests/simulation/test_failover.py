"""Members that are lost, and databases that fail over: a slice of many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.simulation.failover_world import FailoverWorld
from tests.simulation.lease_world import LeaseWorld
from tests.support.lanes import amount

# Seeds a test: `make test-all` takes many more.
FIVE = amount(5, 100)
FIFTY = amount(50, 500)


def failing(world: Callable[[int], FailoverWorld | LeaseWorld], seeds: Iterable[int]) -> int | None:
    """The first of the seeds whose world is not as it has to be."""
    for seed in seeds:
        try:
            world(seed).run()
        except Exception:
            return seed
    return None


@pytest.mark.parametrize("first", range(0, 2 * FIVE, FIVE))
def test_no_client_loses_anything_by_a_fail_over(first: int) -> None:
    elections = 0
    for seed in range(first, first + FIVE):
        world = FailoverWorld(seed)
        world.run()
        elections += world.elections
    assert elections > FIVE


def test_no_confirmed_batch_is_lost() -> None:
    elections = suspensions = 0
    for seed in range(1000, 1000 + FIFTY):
        world = LeaseWorld(seed)
        world.run()
        elections += world.elections
        suspensions += world.suspensions
    assert elections > 2 * FIFTY
    assert suspensions > FIFTY / 5


def test_a_seed_decides_all_of_a_fail_over() -> None:
    lives = []
    for _ in range(2):
        world = FailoverWorld(5)
        world.run()
        lives.append((world.loop.time(), world.received, world.elections, world.database.batches))
    assert lives[0] == lives[1]


# The negative controls: what proves nothing cannot fail.


def test_a_database_without_a_fence_is_found_out() -> None:
    assert failing(lambda seed: LeaseWorld(seed, fenced=False), range(400)) is not None


def test_a_database_that_confirms_too_early_is_found_out() -> None:
    assert failing(lambda seed: LeaseWorld(seed, replicated=False), range(100)) is not None
    assert failing(lambda seed: FailoverWorld(seed, replicated=False), range(9, 60)) is not None


def test_a_leader_that_ignores_its_deadline_is_found_out() -> None:
    assert failing(lambda seed: LeaseWorld(seed, gated=False), range(100)) is not None


@pytest.mark.slow
def test_records_that_are_not_compared_are_found_out() -> None:
    """A standby has read a commit that was lost with the primary, and goes on with it."""
    assert failing(lambda seed: FailoverWorld(seed, compared=False), range(100)) is not None
