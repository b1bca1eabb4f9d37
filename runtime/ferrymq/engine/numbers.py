"""The lowest number that is free: for channels and handles (AMQP 1.0 §2.5.1, §2.6.2)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import final

from mypy_extensions import i64


@final
class FreeNumbers:
    """Numbers from 0 on, of which some are taken. Each call costs the same however many are."""

    __slots__ = ("_returned", "_next")

    def __init__(self) -> None:
        # Those that were taken and are free again, as a heap.
        self._returned: list[int] = []
        # All from here on were never taken.
        self._next: i64 = 0

    def lowest(self) -> i64:
        """The lowest number that is free."""
        return self._returned[0] if self._returned else self._next

    def take_lowest(self) -> None:
        """The number that `lowest` answered with is taken."""
        if self._returned:
            heappop(self._returned)
        else:
            self._next += 1

    def give_back(self, number: i64) -> None:
        """A number that was taken is free again."""
        heappush(self._returned, int(number))

    def clear(self) -> None:
        """All numbers are free."""
        self._returned = []
        self._next = 0
