"""The arrays of samples keep what a plain list of all samples would tell."""

from __future__ import annotations

import random

import pytest

from ferrymq_broker.history.series import (
    DAY,
    DEPTH,
    EMPTY,
    INS,
    LEVELS,
    PERIOD,
    START,
    NodeSeries,
    SampleClock,
    samples_of,
    ticks_of,
)
from tests.support.lanes import amount


@pytest.mark.parametrize("seed", range(amount(4, 100)))
def test_levels_have_the_last_samples_whatever_changed_when(seed: int) -> None:
    rng = random.Random(seed)
    clock = SampleClock(0)
    series = NodeSeries(clock, 0)
    series.keep()
    came, there, tick = 0, 0, 0
    # What was recorded, by tick.
    model = {0: (0, 0)}
    for _ in range(rng.choice((10, 300, 2_000))):
        tick += rng.choice((1, 1, 2, 30, 500)) if seed % 2 else 1
        came += rng.randint(0, 3) << rng.choice((0, 20))
        there = rng.randint(0, 2**40)
        series.record(tick, came, 0, there, START)
        model[tick] = (came, there)
    clock.tick = tick + rng.choice((0, 1, 200))
    said = sorted(model)
    for level in range(LEVELS):
        ticks, last = ticks_of(level), clock.tick // ticks_of(level)
        for at in range(max(0, last - samples_of(level) + 1), last + 1):
            if not series.has(level, at):
                # Only what was overwritten, beyond the last samples.
                assert at <= tick // ticks - samples_of(level)
                continue
            true = model[max(t for t in said if t <= at * ticks)]
            assert series.value(level, at, INS) == true[0] & 0x7FFF_FFFF
            assert series.value(level, at, DEPTH) == min(true[1], 0x7FFF_FFFF) or at * ticks >= tick


def test_arrivals_are_found_from_counts() -> None:
    """Ten messages in every sample for more than a day: the time of each is known about as exactly
    as the samples of its age are."""
    clock = SampleClock(0)
    series = NodeSeries(clock, 0)
    series.keep()
    last = DAY + 500
    for tick in range(1, last + 1):
        series.record(tick, 10 * tick, 0, 1, START)
    clock.tick = last
    for age in (1, 50, 118, 130, 600, 800, 5_000, DAY - 300):
        found = series.arrival(10 * (last - age) + 5) - START
        assert abs(found - (last - age) * PERIOD // 1000) <= 5
    assert series.arrival(10) == EMPTY


def test_nothing_is_said_of_the_time_before() -> None:
    clock = SampleClock(0)
    series = NodeSeries(clock, 700)
    series.keep()
    series.record(701, 5, 0, 5, START)
    clock.tick = 702
    assert [at for at in range(690, 703) if series.has(0, at)] == [700, 701, 702]
    assert series.difference(0, 701, INS) == 5
    assert series.difference(0, 702, INS) == 0
