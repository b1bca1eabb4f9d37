"""Random draws from a seed. They use only `Random.random`, which Python keeps stable."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")


class Chance:
    """A source of random draws, which are the same for the same seed in every process and
    version."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, limit: int) -> int:
        """Draw an integer from 0 to before `limit`, uniformly."""
        return int(self._random.random() * limit)

    def happens(self, share: float) -> bool:
        """Draw whether an event with this probability happens."""
        return self._random.random() < share

    def between(self, low: float, high: float) -> float:
        """Draw a number between two others, uniformly."""
        return low + (high - low) * self._random.random()

    def of(self, items: Sequence[T]) -> T:
        """Draw an item."""
        return items[int(self._random.random() * len(items))]

    def waiting(self, mean: float) -> float:
        """Draw the waiting time for an event that happens every `mean` on average."""
        return -mean * math.log(1.0 - self._random.random())

    def log_normal(self, median: float, sigma: float) -> float:
        """Draw from the log-normal distribution; `sigma` is the deviation of the logarithm."""
        # Box and Muller's transform of two uniform draws to a normal one.
        radius = math.sqrt(-2.0 * math.log(1.0 - self._random.random()))
        return median * math.exp(sigma * radius * math.cos(math.tau * self._random.random()))

    def weighted(self, choices: Weighted) -> int:
        """Draw the index of a choice."""
        return bisect(choices.sums, self._random.random() * choices.total)


class Weighted:
    """Choices with weights, for `Chance.weighted`."""

    def __init__(self, weights: Iterable[float]) -> None:
        self.sums: Final = list(accumulate(weights))
        # The limit of a draw, so that rounding never leads behind the last choice.
        self.total: Final = math.nextafter(self.sums[-1], 0.0)


def zipf(count: int, exponent: float) -> Weighted:
    """Return skewed weights: the n-th choice is drawn n^-exponent as often as the first."""
    return Weighted((rank + 1) ** -exponent for rank in range(count))
