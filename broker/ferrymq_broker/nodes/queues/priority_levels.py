"""The priority levels of a queue, each in order of publication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.disk_runs import DiskRuns

# The number of levels (AMQP 1.0 §3.2.1), and the level of messages without a priority. This level
# keeps its number however many levels a queue uses.
LEVELS: Final = 10
DEFAULT_LEVEL: Final = 4
# How many messages of a run become entries together, because they are read from disk together when
# they are consumed; fewer if they have so many bytes.
AHEAD: Final = 256
AHEAD_BYTES: Final = 262_144
# The same for the search for a message that may leave.
_MAKE_ROOM: Final = 16


class EntryPointer:
    """The interface of an object that points to entries of a queue and must release entries that
    leave."""

    __slots__ = ()

    def forget(self, entry: Entry) -> None:
        """Release the entry, which is about to leave the queue."""

    def pointed(self, priority_level: PriorityLevel) -> Entry | None:
        """Return the entry of a level that this object points to, not counting cursors."""
        return None

    def add_level(self, at: i64, priority_level: PriorityLevel) -> None:
        """Add a new level, which has the index `at`."""


@final
class LevelCursor:
    """The position of a view in a level: `next` is the next entry to look at, None at the end."""

    __slots__ = ("priority_level", "next")

    def __init__(self, priority_level: PriorityLevel) -> None:
        self.priority_level: PriorityLevel = priority_level
        self.next: Entry | None = priority_level.first

    def has_passed(self, entry: Entry) -> bool:
        """Return whether the cursor has passed the entry."""
        next = self.next
        return next is None or next.sequence > entry.sequence


@final
class PriorityLevel:
    """The entries of one level, from `first` to `last`.

    `plain` is the cursor of consumers without a filter; `others` are the cursors of filters, `out`
    is the pager's. `oldest` is where the search for the first available entry begins: there is none
    before it. `runs` are the runs of the level, None if it never had any.
    """

    __slots__ = ("level", "first", "last", "plain", "others", "out", "oldest", "runs")

    def __init__(self, level: i64) -> None:
        self.level: i64 = level
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.oldest: Entry | None = None
        self.plain: LevelCursor = LevelCursor(self)
        self.others: dict[LevelCursor, None] | None = None
        self.out: LevelCursor | None = None
        self.runs: DiskRuns | None = None

    def add_cursor(self, cursor: LevelCursor) -> None:
        """Register a cursor, which moves on when its entry leaves."""
        if self.others is None:
            self.others = {cursor: None}
        else:
            self.others[cursor] = None

    def drop_cursor(self, cursor: LevelCursor) -> None:
        """Remove a cursor that is no longer needed."""
        others = self.others
        if others is not None:
            others.pop(cursor, None)
            if not others:
                self.others = None

    def append(self, entry: Entry) -> None:
        """Append an entry."""
        last = self.last
        if last is None:
            self.first = entry
        else:
            last.next = entry
            entry.prev = last
        self.last = entry
        plain = self.plain
        if plain.next is None:
            plain.next = entry
        out = self.out
        if out is not None and out.next is None:
            out.next = entry
        others = self.others
        if others is not None:
            for cursor in others:
                if cursor.next is None:
                    cursor.next = entry

    def insert(self, entry: Entry, after: Entry) -> None:
        """Insert an entry before another one."""
        before = after.prev
        entry.prev = before
        entry.next = after
        after.prev = entry
        if before is None:
            self.first = entry
        else:
            before.next = entry

    def redirect(self, entry: Entry, other: Entry) -> None:
        """Move the cursors at the entry to the other entry."""
        if self.oldest is entry:
            self.oldest = other
        if self.plain.next is entry:
            self.plain.next = other
        out = self.out
        if out is not None and out.next is entry:
            out.next = other
        others = self.others
        if others is not None:
            for cursor in others:
                if cursor.next is entry:
                    cursor.next = other

    def enter(self, place: Entry, count: i64) -> Entry:
        """Make entries of the first messages of the run at this place, up to `count`; return the
        first one."""
        runs = self.runs
        assert runs is not None
        return runs.take_ahead(place, count)

    def bytes_of(self, entry: Entry) -> i64:
        """Return the size of the message of an entry, or of the messages of the run at this
        place."""
        if entry.state == RUN and self.runs is not None:
            return self.runs.of(entry).bytes
        return i64(entry.size)

    def all(self) -> list[Entry]:
        """Return all entries, with temporary entries for messages in runs, to look at."""
        found: list[Entry] = []
        entry = self.first
        while entry is not None:
            if entry.state == RUN and self.runs is not None:
                found += self.runs.all(entry)
            else:
                found.append(entry)
            entry = entry.next
        return found

    def unlink(self, entry: Entry) -> None:
        """Remove an entry. Only its neighbours may point to it."""
        before = entry.prev
        after = entry.next
        if before is None:
            self.first = after
        else:
            before.next = after
            entry.prev = None
        if after is None:
            self.last = before
        else:
            after.prev = before
            entry.next = None

    def forget(self, entry: Entry) -> None:
        """Move all pointers at the entry, which is about to be removed, to the next entry."""
        if self.oldest is entry:
            after = entry.next
            self.oldest = entry.prev if after is None else after
        if self.plain.next is entry:
            self.plain.next = entry.next
        out = self.out
        if out is not None and out.next is entry:
            out.next = entry.next
        others = self.others
        if others is not None:
            for cursor in others:
                if cursor.next is entry:
                    cursor.next = entry.next

    def is_back(self, entry: Entry) -> None:
        """Note that an entry is available again."""
        oldest = self.oldest
        if oldest is not None and entry.sequence < oldest.sequence:
            self.oldest = entry

    def first_available(self) -> Entry | None:
        """Return the oldest available entry."""
        entry = self.oldest
        if entry is None:
            entry = self.first
        while entry is not None and entry.state != AVAILABLE:
            if entry.state == RUN:
                entry = self.enter(entry, _MAKE_ROOM)
                break
            # Remember this entry and not the end: entries that are appended later come after it.
            self.oldest = entry
            entry = entry.next
        if entry is not None:
            self.oldest = entry
        return entry
