"""Timers of the whole broker, in a heap.

A node owns `Timed` objects and sets them here. The server calls `Broker.handle_timeout` when the
first is due. There are two `Timers`, with a clock each: `Space.timers` for durations counts in
`Agenda.now`, `Agenda.dates` for dates in `Agenda.wall`. Both are in milliseconds.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

# Entries of timers that were set anew lie in the heap until they come up, or are this many.
_SLACK: Final = 1024


class Timed:
    """Something with a time. `due` is 0 while it has none."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due: i64 = 0

    def on_time(self, now: i64) -> None:
        """The time has come. `due` is 0 again; it may be set anew."""


@final
class Timers:
    """The timers that are set. `moved` is true when the first of them may have changed."""

    __slots__ = ("moved", "_heap", "_order", "_live")

    def __init__(self) -> None:
        self.moved = False
        self._heap: list[tuple[int, int, Timed]] = []
        self._order: i64 = 0
        self._live: i64 = 0

    def __len__(self) -> int:
        return self._live

    def set(self, timed: Timed, due: i64) -> None:
        """Let it happen at `due`, and not when it was to happen before."""
        if timed.due == due:
            return
        if timed.due == 0:
            self._live += 1
        timed.due = due
        self._order += 1
        heap = self._heap
        if not heap or due < heap[0][0]:
            self.moved = True
        heappush(heap, (due, self._order, timed))
        if len(heap) > 2 * self._live + _SLACK:
            self._heap = [entry for entry in heap if entry[2].due == entry[0]]
            heapify(self._heap)

    def cancel(self, timed: Timed) -> None:
        """Let it not happen."""
        if timed.due != 0:
            timed.due = 0
            self._live -= 1

    def next_due(self) -> i64:
        """When the first is due; 0 if there is none."""
        heap = self._heap
        while heap and heap[0][2].due != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else 0

    def run(self, now: i64) -> None:
        """Let happen what is due, in order."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            due, _, timed = heappop(heap)
            if timed.due == due:
                timed.due = 0
                self._live -= 1
                timed.on_time(now)
                heap = self._heap
