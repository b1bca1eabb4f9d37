"""Timing of contenders that take turns, so that a disturbance of the machine affects all of them.

A round runs every contender once for a fixed time, each round in another order. Ratios are taken
within a round, and the median over the rounds is reported: a disturbance spoils one round, not the
result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Run = Callable[[int], object]


@dataclass(frozen=True)
class Contender:
    """An operation to time: `run(n)` does it n times."""

    name: str
    run: Run


@dataclass(frozen=True)
class Effort:
    """The extent of a measurement: rounds, and seconds for each contender in each round."""

    rounds: int = 7
    seconds: float = 0.2

    @classmethod
    def quick(cls) -> Effort:
        """Return an extent to check that everything works; the figures are rough."""
        return cls(rounds=3, seconds=0.03)


def calibrate(run: Run, seconds: float) -> int:
    """Return how many operations take about `seconds`. This also warms up caches."""
    count = 1
    while True:
        elapsed = timed(run, count)
        if elapsed >= seconds / 4:
            return max(1, int(count * seconds / elapsed))
        count *= 4


def timed(run: Run, count: int) -> float:
    """Return the seconds that `count` operations take."""
    began = time.perf_counter()
    run(count)
    return time.perf_counter() - began


def take_turns(contenders: Sequence[Contender], effort: Effort) -> dict[str, list[float]]:
    """Return the operations per second of each contender, one value for each round."""
    counts = {c.name: calibrate(c.run, effort.seconds) for c in contenders}
    rates: dict[str, list[float]] = {c.name: [] for c in contenders}
    for round in range(effort.rounds):
        shift = round % len(contenders)
        for contender in [*contenders[shift:], *contenders[:shift]]:
            count = counts[contender.name]
            rates[contender.name].append(count / timed(contender.run, count))
    return rates
