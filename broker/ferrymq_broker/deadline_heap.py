"""A heap of deadlines that removes outdated records a few at a time.

Most records come in the order of their deadlines: those of messages with the same ttl, for
instance. They form a line beside the heap, in which no record is compared with more than the one
before it.

Removing a record from the middle needs a search. So a record stays when its item gets another
deadline or goes, until the record is the first. When most records are outdated, line and heap are
swept: they are set aside, each call takes a few of their records out, and the records that are
still valid are added again. So even a heap of a million records is never rebuilt in one piece.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar, final

from mypy_extensions import i64

Item = TypeVar("Item")


# Where the first record is.
_NOWHERE: Final = 0
_IN_LINE: Final = 1
_IN_HEAP: Final = 2
_IN_SWEPT_LINE: Final = 3
_IN_SWEPT: Final = 4


@final
class LineRecord(Generic[Item]):
    """A record of the line."""

    __slots__ = ("due", "order", "item")

    def __init__(self, due: i64, order: i64, item: Item) -> None:
        self.due: i64 = due
        self.order: i64 = order
        self.item: Item = item


@final
class DeadlineHeap(Generic[Item]):
    """A heap of records `(due, order, item)`, lowest first. Records with the same `due` have
    different `order`. No sweep begins while at most `slack` records are outdated."""

    __slots__ = ("_line", "_heap", "_swept_line", "_swept", "_last_due", "_last_order", "_outdated",
                 "_slack")  # fmt: skip

    def __init__(self, slack: i64) -> None:
        # The records that were added in order, and the others.
        self._line: deque[LineRecord[Item]] = deque()
        self._heap: list[tuple[int, int, Item]] = []
        # The line and the heap that are being swept. Records leave the line from its front and the
        # heap from its end, so the rest is still in order.
        self._swept_line: deque[LineRecord[Item]] = deque()
        self._swept: list[tuple[int, int, Item]] = []
        # The last record of the line.
        self._last_due: i64 = 0
        self._last_order: i64 = 0
        # How many records of the line and the heap are outdated, at most.
        self._outdated: i64 = 0
        self._slack = slack

    def __len__(self) -> int:
        return len(self._line) + len(self._heap) + len(self._swept_line) + len(self._swept)

    def push(self, due: i64, order: i64, item: Item) -> bool:
        """Add a record; return whether it is the first one now."""
        line = self._line
        if line:
            last = self._last_due
            if due > last or (due == last and order > self._last_order):
                self._last_due = due
                self._last_order = order
                line.append(LineRecord(due, order, item))
                return False
            heappush(self._heap, (due, order, item))
        else:
            self._last_due = due
            self._last_order = order
            line.append(LineRecord(due, order, item))
        first = self.first()
        return first is not None and first[0] == due and first[1] == order

    def head(self) -> LineRecord[Item] | None:
        """Return the first record of the line; None if there is none. Others may be due earlier."""
        return self._line[0] if self._line else None

    def drop_head(self) -> None:
        """Remove the first record of the line, which is outdated and has been counted as such."""
        self._line.popleft()
        self.discount()

    def first(self) -> tuple[int, int, Item] | None:
        """Return the record that is due first; None if there is none."""
        source = self._source()
        if source == _IN_LINE:
            record = self._line[0]
            return record.due, record.order, record.item
        if source == _IN_HEAP:
            return self._heap[0]
        if source == _IN_SWEPT_LINE:
            record = self._swept_line[0]
            return record.due, record.order, record.item
        return self._swept[0] if source == _IN_SWEPT else None

    def pop(self) -> None:
        """Remove the record that is due first; there must be one."""
        source = self._source()
        if source == _IN_LINE:
            self._line.popleft()
        elif source == _IN_HEAP:
            heappop(self._heap)
        elif source == _IN_SWEPT_LINE:
            self._swept_line.popleft()
        else:
            heappop(self._swept)

    def _source(self) -> i64:
        """Return where the record is that is due first."""
        source: i64 = _NOWHERE
        due: i64 = 0
        order: i64 = 0
        line = self._line
        if line:
            source = _IN_LINE
            due = line[0].due
            order = line[0].order
        line = self._swept_line
        if line and (source == _NOWHERE or _is_before(line[0].due, line[0].order, due, order)):
            source = _IN_SWEPT_LINE
            due = line[0].due
            order = line[0].order
        heap = self._heap
        if heap and (source == _NOWHERE or _is_before(heap[0][0], heap[0][1], due, order)):
            source = _IN_HEAP
            due = heap[0][0]
            order = heap[0][1]
        heap = self._swept
        if heap and (source == _NOWHERE or _is_before(heap[0][0], heap[0][1], due, order)):
            source = _IN_SWEPT
        return source

    def outdate(self) -> None:
        """Count a record as outdated."""
        self._outdated += 1
        if (
            2 * self._outdated > len(self._line) + len(self._heap) + self._slack
            and not self._swept
            and not self._swept_line
        ):
            self._swept = self._heap
            self._heap = []
            self._swept_line = self._line
            self._line = deque()
            self._outdated = 0

    def discount(self) -> None:
        """Take back one `outdate`, because the outdated record has been removed."""
        if self._outdated > 0:
            self._outdated -= 1

    def sweep(self) -> tuple[int, int, Item] | None:
        """Remove and return one record of the sweep; None if there is none. The caller pushes it
        again if its item is still wanted."""
        if self._swept:
            return self._swept.pop()
        if self._swept_line:
            # From the front: records that are pushed again form a line.
            record = self._swept_line.popleft()
            return record.due, record.order, record.item
        return None

    def clear(self) -> None:
        """Drop all records."""
        self._line.clear()
        self._heap = []
        self._swept_line.clear()
        self._swept = []
        self._outdated = 0


def _is_before(due: i64, order: i64, other: i64, other_order: i64) -> bool:
    return due < other or (due == other and order < other_order)
