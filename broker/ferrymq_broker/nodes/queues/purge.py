"""Purge: dropping all messages of a queue, in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, DAMAGED, DEFERRED, RUN, Entry
from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.nodes.queues.priority_levels import LevelCursor
from ferrymq_broker.slices import MESSAGE, SlicedTask, Slices, freed

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.filter_views import FilterView

# The number of outdated records in a heap that are not worth a clean-up.
_SLACK: Final = 64
# How many messages of a run become entries together.
_ENTERED: Final = 64


@final
class Purge(SlicedTask):
    """The task that drops all messages that are in a queue when it begins, except those that
    consumers hold; `count` is the number of dropped messages so far.

    `over` is whether the task is complete. Messages that come meanwhile stay, and so do messages
    that consumers hold or acquire meanwhile. With `whole` the queue itself is deleted, and all
    messages are dropped.
    """

    __slots__ = ("count", "over", "_entries", "_views", "_last", "_cursors")

    def __init__(
        self, entries: QueueEntries, views: dict[str, FilterView], whole: bool = False
    ) -> None:
        super().__init__()
        self.count: i64 = 0
        self.over: bool = False
        self._entries = entries
        self._views = views
        # The sequence of the last message to drop.
        self._last: i64 = BOUNDLESS if whole else entries.published
        self._cursors: list[LevelCursor] = []
        for priority_level in entries.priority_levels:
            # The level moves the cursor on when its entry leaves.
            cursor = LevelCursor(priority_level)
            priority_level.add_cursor(cursor)
            self._cursors.append(cursor)
        entries.begin_purge()

    def go_on(self, slices: Slices) -> bool:
        """Drop messages, as far as the slice allows."""
        entries = self._entries
        cursors = self._cursors
        while cursors:
            cursor = cursors[-1]
            entry = cursor.next
            while entry is not None and entry.sequence <= self._last:
                if slices.is_spent():
                    return False
                if entry.state == RUN:
                    entry = self._drop_run(cursor, entry, slices)
                    continue
                cursor.next = entry.next
                cost: i64 = MESSAGE
                if entry.state == DAMAGED:
                    entries.take_back(entry)
                elif entry.state == DEFERRED:
                    entries.undefer(entry)
                if entry.state == AVAILABLE:
                    cost = freed(i64(entry.size))
                    entries.drop(entry)
                    self.count += 1
                slices.spend(cost)
                entry = cursor.next
            cursor.priority_level.drop_cursor(cursor)
            cursors.pop()
        if not self.over:
            self.over = True
            for view in self._views.values():
                _tidy(view, slices)
            entries.end_purge()
        return True

    def _drop_run(self, cursor: LevelCursor, place: Entry, slices: Slices) -> Entry | None:
        """Drop the messages of a run on disk, or make entries of some of them if later messages
        have joined the run; return the next entry."""
        entries = self._entries
        priority_level = cursor.priority_level
        runs = priority_level.runs
        if runs is None:
            return None
        run = runs.of(place)
        if run.sequence(run.end - 1) > self._last:
            first = priority_level.enter(place, _ENTERED)
            cursor.next = first
            return first
        after = place.next
        cursor.next = after
        dropped = entries.drop_run(priority_level, place)
        self.count += dropped
        slices.spend(dropped * MESSAGE)
        return after


@final
class _Outdated(SlicedTask):
    """The task that frees records a few at a time: freeing a hundred thousand objects at once takes
    too long."""

    __slots__ = ("_records",)

    def __init__(self, records: list[tuple[int, Entry]]) -> None:
        super().__init__()
        self._records = records

    def go_on(self, slices: Slices) -> bool:
        """Free records, as far as the slice allows."""
        records = self._records
        while records:
            if slices.is_spent():
                return False
            records.pop()
            slices.spend(MESSAGE)
        return True


def _tidy(view: FilterView, slices: Slices) -> None:
    """Remove outdated records from the heaps of a view, and with them the messages that have
    left."""
    available = view.entries.available
    for heap in (view.returned, view.aside):
        if heap and (available == 0 or len(heap) > 2 * available + _SLACK):
            outdated = heap[:]
            # A sorted list is still a heap.
            heap[:] = sorted(record for record in outdated if record[1].state == AVAILABLE)
            slices.do(_Outdated(outdated))
