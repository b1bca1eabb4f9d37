"""Allocation of free numbers, for channels and handles (AMQP 1.0 §2.5.1, §2.6.2)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import final

from mypy_extensions import i64


@final
class FreeNumbers:
    """Numbers from 0 on, of which some are taken. The lowest free one is taken next or, with
    `spread`, one that is used again as late as possible.

    `spread` is set before the first number is taken. Without it, the cost of a call hardly depends
    on how many numbers are taken.
    """

    __slots__ = ("spread", "_returned", "_unused")

    def __init__(self) -> None:
        self.spread: bool = False
        # Numbers that were taken and are free again: a heap, or with `spread` the oldest first.
        self._returned: list[int] = []
        # This number and all above it were never taken.
        self._unused: i64 = 0

    def next(self, limit: i64) -> i64:
        """Return the number to take next; -1 if all up to `limit` are taken."""
        number = self._unused
        if self._returned and not (self.spread and number <= limit):
            number = self._returned[0]
        return number if number <= limit else -1

    def take(self, number: i64) -> None:
        """Take the number that `next` returned."""
        if number == self._unused:
            self._unused += 1
        elif self.spread:
            self._returned.pop(0)
        else:
            heappop(self._returned)

    def give_back(self, number: i64) -> None:
        """Free a number that was taken."""
        if self.spread:
            self._returned.append(int(number))
        else:
            heappush(self._returned, int(number))

    def clear(self) -> None:
        """Free all numbers."""
        self._returned = []
        self._unused = 0
