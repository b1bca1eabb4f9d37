"""Timing: contenders take turns, so that what disturbs the machine disturbs all of them.

A round runs every contender once for a fixed time, each round in another order. Ratios are taken
inside a round and the median over the rounds is reported: a disturbance spoils one round, not the
result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Run = Callable[[int], object]


@dataclass(frozen=True)
class Contender:
    """Something to time: `run(n)` does the operation n times."""

    name: str
    run: Run


@dataclass(frozen=True)
class Effort:
    """How much to measure: rounds, and seconds for each contender in each of them."""

    rounds: int = 7
    seconds: float = 0.2

    @classmethod
    def quick(cls) -> Effort:
        """Enough to see that everything works; the figures are rough."""
        return cls(rounds=3, seconds=0.03)


def calibrate(run: Run, seconds: float) -> int:
    """How many operations take about `seconds`. Warms caches up on the way."""
    count = 1
    while True:
        elapsed = timed(run, count)
        if elapsed >= seconds / 4:
            return max(1, int(count * seconds / elapsed))
        count *= 4


def timed(run: Run, count: int) -> float:
    """Seconds that `count` operations take."""
    began = time.perf_counter()
    run(count)
    return time.perf_counter() - began


def take_turns(contenders: Sequence[Contender], effort: Effort) -> dict[str, list[float]]:
    """Operations per second of each contender, one value for each round."""
    counts = {c.name: calibrate(c.run, effort.seconds) for c in contenders}
    rates: dict[str, list[float]] = {c.name: [] for c in contenders}
    for round in range(effort.rounds):
        shift = round % len(contenders)
        for contender in [*contenders[shift:], *contenders[:shift]]:
            count = counts[contender.name]
            rates[contender.name].append(count / timed(contender.run, count))
    return rates
