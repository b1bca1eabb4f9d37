"""The times of events: more at noon and in the evening than at night, with bursts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyspark_ferrymq.traffic.random_draws import Chance

DAY: Final = 86_400.0
"""Seconds."""

# Bursts: how many a day, the factor of the rate, and the duration in seconds.
_BURSTS_A_DAY: Final = 6.0
_BURST: Final = (3.0, 9.0)
_BURST_SECONDS: Final = (300.0, 1500.0)


class _Burst(NamedTuple):
    start: float
    end: float
    factor: float


def intensity(seconds: float) -> float:
    """Return the relative rate at this time of the day: 1 on average, from 0.27 at night to 2.3."""
    hour = (seconds % DAY) / 3600.0
    noon = math.exp(-(((hour - 12.0) / 3.0) ** 2))
    evening = math.exp(-(((hour - 19.5) / 2.2) ** 2))
    return 0.27 + 1.75 * noon + 2.05 * evening


def moments(chance: Chance, rate: float) -> Iterator[float]:
    """Yield times in seconds from midnight without end: `rate` per second, plus the bursts."""
    seconds = 0.0
    burst = _next_burst(chance, seconds)
    while True:
        while seconds >= burst.end:
            burst = _next_burst(chance, burst.end)
        factor = burst.factor if seconds >= burst.start else 1.0
        seconds += chance.waiting(1.0 / (rate * intensity(seconds) * factor))
        yield seconds


def _next_burst(chance: Chance, after: float) -> _Burst:
    start = after + chance.waiting(DAY / _BURSTS_A_DAY)
    return _Burst(start, start + chance.between(*_BURST_SECONDS), chance.between(*_BURST))
