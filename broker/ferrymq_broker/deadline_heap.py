"""A heap of deadlines that removes outdated records a few at a time.

Removing a record from the middle of a heap needs a search. So a record stays in the heap when its
item gets another deadline or goes, until the record is the first. When most records are outdated,
the heap is swept: it is set aside, each call takes a few of its records out, and the records that
are still valid go into the new heap. So even a heap of a million records is never rebuilt in one
piece.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar, final

from mypy_extensions import i64

Item = TypeVar("Item")


@final
class DeadlineHeap(Generic[Item]):
    """A heap of records `(due, order, item)`, lowest first. Records with the same `due` have
    different `order`. No sweep begins while at most `slack` records are outdated."""

    __slots__ = ("_heap", "_swept", "_outdated", "_slack")

    def __init__(self, slack: i64) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        # The heap that is being swept. Records leave it from the end, so the rest is still a heap.
        self._swept: list[tuple[int, int, Item]] = []
        # How many records of `_heap` are outdated, at most.
        self._outdated: i64 = 0
        self._slack = slack

    def __len__(self) -> int:
        return len(self._heap) + len(self._swept)

    def push(self, due: i64, order: i64, item: Item) -> None:
        """Add a record."""
        heappush(self._heap, (due, order, item))

    def first(self) -> tuple[int, int, Item] | None:
        """Return the record that is due first; None if there is none."""
        heap, swept = self._heap, self._swept
        if swept and (not heap or swept[0] < heap[0]):
            return swept[0]
        return heap[0] if heap else None

    def pop(self) -> None:
        """Remove the record that is due first; there must be one."""
        heap, swept = self._heap, self._swept
        heappop(swept if swept and (not heap or swept[0] < heap[0]) else heap)

    def outdate(self) -> None:
        """Count a record as outdated."""
        self._outdated += 1
        if 2 * self._outdated > len(self._heap) + self._slack and not self._swept:
            self._swept = self._heap
            self._heap = []
            self._outdated = 0

    def discount(self) -> None:
        """Take back one `outdate`, because the outdated record has been removed."""
        if self._outdated > 0:
            self._outdated -= 1

    def sweep(self) -> tuple[int, int, Item] | None:
        """Remove and return one record of the sweep; None if there is none. The caller pushes it
        again if its item is still wanted."""
        return self._swept.pop() if self._swept else None

    def clear(self) -> None:
        """Drop all records."""
        self._heap = []
        self._swept = []
        self._outdated = 0
