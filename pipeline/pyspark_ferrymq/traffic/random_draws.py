"""Draws from a seed. Only `Random.random` is used, which Python promises to keep as it is."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")


class Chance:
    """A source of draws: the same for the same seed, in every process and version."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, limit: int) -> int:
        """A whole number from 0 to before `limit`, all as likely."""
        return int(self._random.random() * limit)

    def happens(self, share: float) -> bool:
        """Whether something happens that happens this often, 0 to 1."""
        return self._random.random() < share

    def between(self, low: float, high: float) -> float:
        """A number between two."""
        return low + (high - low) * self._random.random()

    def of(self, items: Sequence[T]) -> T:
        """Draw one of the items."""
        return items[int(self._random.random() * len(items))]

    def waiting(self, mean: float) -> float:
        """How long until something happens that happens every `mean` on average."""
        return -mean * math.log(1.0 - self._random.random())

    def log_normal(self, median: float, sigma: float) -> float:
        """Half of them are below the median; `sigma` is the deviation of the logarithm."""
        # Box and Muller's way from two even draws to a normal one.
        radius = math.sqrt(-2.0 * math.log(1.0 - self._random.random()))
        return median * math.exp(sigma * radius * math.cos(math.tau * self._random.random()))

    def weighted(self, choices: Weighted) -> int:
        """The index of one of the choices."""
        return bisect(choices.sums, self._random.random() * choices.total)


class Weighted:
    """Choices with weights, to be drawn from by `Chance.weighted`."""

    def __init__(self, weights: Iterable[float]) -> None:
        self.sums: Final = list(accumulate(weights))
        # A draw is below it, so that rounding never leads behind the last choice.
        self.total: Final = math.nextafter(self.sums[-1], 0.0)


def zipf(count: int, exponent: float) -> Weighted:
    """Skewed as customers are: the n-th of them is drawn n^-exponent as often as the first."""
    return Weighted((rank + 1) ** -exponent for rank in range(count))
