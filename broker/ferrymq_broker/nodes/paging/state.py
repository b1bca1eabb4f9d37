"""What one queue has on disk only, and how far the pager has come in it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import RUN, Entry
from ferrymq_broker.nodes.queues.lanes import Cursor, Lane
from ferrymq_broker.nodes.queues.runs import Runs

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.queue import Queue

# Batches between two marks: there are some ten thousand that are not applied at most.
_APART: Final = 16
# Entries that become rows together when a queue is restored.
_TOGETHER: Final = 256


@final
class Paging:
    """Of one `queue`, while it has anything to do with the pager. `count` messages of `bytes` bytes
    are out, `loaded` bytes have come back since the pager went through the queue last. Nobody has
    had entries up to the sequence `restored`, unless they have more than one attempt. `withheld` is
    whether cursors may point to entries that somebody holds.

    Records can be read when their batch has been applied: those of entries up to the sequence
    `safe` can. `marks` say which of the later ones came in which batch; `amended` are entries that
    have been written again, and in which batch.
    """

    __slots__ = (
        "queue",
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

    def __init__(self, queue: Queue, id: i64, least: i64) -> None:
        self.queue = queue
        # Fewer messages than this are no run.
        self.least: i64 = least
        # What its pages are known by.
        self.id: i64 = id
        self.count: i64 = 0
        self.bytes: i64 = 0
        self.loaded: i64 = 0
        # When the pager may go through the queue from its beginning again.
        self.again: i64 = 0
        self.safe: i64 = 0
        self.marks: deque[tuple[int, int]] = deque()
        self.amended: dict[int, int] = {}
        self.restored: i64 = 0
        self.withheld = False
        # Entries whose messages were left on disk as they were restored, since the last `fold`.
        self._blanks: i64 = 0

    def resident(self) -> i64:
        """Bytes of the queue's messages that are in memory."""
        return self.queue.bytes - self.bytes

    def note(self, number: i64, applied: i64) -> None:
        """The batch `number` is being filled, those up to `applied` have been applied."""
        marks = self.marks
        if not marks or marks[-1][0] + _APART <= number:
            marks.append((number, self.queue.published))
        while marks and marks[0][0] <= applied:
            self.safe = marks.popleft()[1]
        if self.amended:
            self.amended = {
                sequence: batch for sequence, batch in self.amended.items() if batch > applied
            }

    def cursor(self, lane: Lane) -> Cursor:
        """How far the pager has come in a lane of the queue."""
        cursor = lane.out
        if cursor is None:
            cursor = Cursor(lane)
            lane.out = cursor
            lane.add_cursor(cursor)
        return cursor

    def fold(self, lane: Lane, begin: Entry, end: Entry | None) -> None:
        """Let entries of a lane, from `begin` to before `end`, be rows of runs where they can."""
        self.runs_of(lane).fold(begin, end, self.restored)

    def runs_of(self, lane: Lane) -> Runs:
        """The runs of a lane of the queue, from now on."""
        runs = lane.runs
        if runs is None:
            runs = Runs(self.queue, lane, self.least)
            lane.runs = runs
        return runs

    def fold_restored(self) -> None:
        """One more entry was restored, and its message left on disk."""
        self._blanks += 1
        if self._blanks < _TOGETHER:
            return
        self._blanks = 0
        for lane in self.queue.lanes:
            begin = lane.last
            while begin is not None and begin.state != RUN and begin.message.header_end < 0:
                begin = begin.prev
            begin = lane.first if begin is None else begin.next
            if begin is not None:
                self.fold(lane, begin, None)

    def begin_again(self) -> None:
        """Let the pager go through the queue from its beginning."""
        self.loaded = 0
        for lane in self.queue.lanes:
            self.cursor(lane).next = lane.first

    def close(self) -> None:
        """The queue has nothing to do with the pager any more."""
        for lane in self.queue.lanes:
            cursor = lane.out
            if cursor is not None:
                lane.out = None
                lane.drop_cursor(cursor)
