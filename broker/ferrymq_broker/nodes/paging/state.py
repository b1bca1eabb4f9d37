"""The paging state of one queue: which messages are on disk only, and how far the pager has got."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import RUN, Entry
from ferrymq_broker.nodes.queues.disk_runs import DiskRuns
from ferrymq_broker.nodes.queues.priority_levels import LevelCursor, PriorityLevel

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.entries import QueueEntries

# The number of batches between two marks: at most some ten thousand batches are not applied yet.
_APART: Final = 16
# The number of entries that become rows together when a queue is restored.
_TOGETHER: Final = 256


@final
class PagingState:
    """The paging state of one queue. It exists while the pager needs it.

    Of the queue's `entries`, `count` messages of `bytes` bytes are out; `loaded` bytes have come
    back since the pager last went through the queue. No consumer has had entries up to the sequence
    `restored`, except those with more than one attempt. `withheld` is whether cursors may point to
    entries that a consumer holds.

    A record can be read when its batch has been applied: that is true for entries up to the
    sequence `safe`. `marks` say which later entries came in which batch; `amended` has the entries
    that were written again, and in which batch.
    """

    __slots__ = (
        "entries",
        "id",
        "least",
        "count",
        "bytes",
        "loaded",
        "again",
        "safe",
        "marks",
        "amended",
        "restored",
        "withheld",
        "_blanks",
    )

    def __init__(self, entries: QueueEntries, id: i64, least: i64) -> None:
        self.entries: QueueEntries = entries
        # The smallest number of messages in a run.
        self.least: i64 = least
        # The id in the keys of its pages.
        self.id: i64 = id
        self.count: i64 = 0
        self.bytes: i64 = 0
        self.loaded: i64 = 0
        # The earliest time at which the pager may start again at the beginning of the queue.
        self.again: i64 = 0
        self.safe: i64 = 0
        self.marks: deque[tuple[int, int]] = deque()
        self.amended: dict[int, int] = {}
        self.restored: i64 = 0
        self.withheld: bool = False
        # Entries since the last `fold` whose messages were left on disk when they were restored.
        self._blanks: i64 = 0

    def resident(self) -> i64:
        """Return how many bytes of the queue's messages are in memory."""
        return self.entries.bytes - self.bytes

    def note(self, number: i64, applied: i64) -> None:
        """Note that the batch `number` is being filled and that batches up to `applied` have been
        applied."""
        marks = self.marks
        if not marks or marks[-1][0] + _APART <= number:
            marks.append((number, self.entries.published))
        while marks and marks[0][0] <= applied:
            self.safe = marks.popleft()[1]
        if self.amended:
            self.amended = {
                sequence: batch for sequence, batch in self.amended.items() if batch > applied
            }

    def cursor(self, priority_level: PriorityLevel) -> LevelCursor:
        """Return the position of the pager in a level of the queue."""
        cursor = priority_level.out
        if cursor is None:
            cursor = LevelCursor(priority_level)
            priority_level.out = cursor
        return cursor

    def fold(self, priority_level: PriorityLevel, begin: Entry, end: Entry | None) -> None:
        """Make rows of the entries of a level from `begin` to before `end`, where that is
        possible."""
        self.runs_of(priority_level).fold(begin, end, self.restored)

    def runs_of(self, priority_level: PriorityLevel) -> DiskRuns:
        """Return the runs of a level of the queue; create them if necessary."""
        runs = priority_level.runs
        if runs is None:
            runs = DiskRuns(self.entries, priority_level, self.least)
            priority_level.runs = runs
        return runs

    def fold_restored(self) -> None:
        """Count an entry that was restored and whose message was left on disk."""
        self._blanks += 1
        if self._blanks < _TOGETHER:
            return
        self._blanks = 0
        for priority_level in self.entries.priority_levels:
            begin = priority_level.last
            while begin is not None and begin.state != RUN and begin.message.header_end < 0:
                begin = begin.prev
            begin = priority_level.first if begin is None else begin.next
            if begin is not None:
                self.fold(priority_level, begin, None)

    def note_restored(self, sequence: i64) -> None:
        """Note that entries up to this sequence are restored, and have records that can be read."""
        self.safe = self.restored = sequence

    def begin_again(self) -> None:
        """Move the pager to the beginning of the queue."""
        self.loaded = 0
        for priority_level in self.entries.priority_levels:
            self.cursor(priority_level).next = priority_level.first

    def close(self) -> None:
        """Drop the cursors: the queue has nothing to do with the pager any more."""
        for priority_level in self.entries.priority_levels:
            priority_level.out = None
