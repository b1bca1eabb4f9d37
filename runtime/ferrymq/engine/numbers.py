"""Allocation of the lowest free number, for handles (AMQP 1.0 §2.6.2)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import final

from mypy_extensions import i64


@final
class FreeNumbers:
    """Numbers from 0 on, of which some are taken. The cost of a call hardly depends on how many."""

    __slots__ = ("_returned", "_next")

    def __init__(self) -> None:
        # Numbers that were taken and are free again, as a heap.
        self._returned: list[int] = []
        # This number and all above it were never taken.
        self._next: i64 = 0

    def lowest(self) -> i64:
        """Return the lowest free number."""
        return self._returned[0] if self._returned else self._next

    def take_lowest(self) -> None:
        """Take the number that `lowest` returned."""
        if self._returned:
            heappop(self._returned)
        else:
            self._next += 1

    def give_back(self, number: i64) -> None:
        """Free a number that was taken."""
        heappush(self._returned, int(number))

    def clear(self) -> None:
        """Free all numbers."""
        self._returned = []
        self._next = 0
