"""The order of a queue: its levels of priority, each in order of publication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.disk_runs import DiskRuns

# How many levels there are (AMQP 1.0 §3.2.1), and that of messages which do not say theirs. However
# many levels a queue tells apart, this one keeps its number.
LEVELS: Final = 10
DEFAULT_LEVEL: Final = 4
# Messages of a run that become entries together: where they are consumed, and where one is looked
# for that may go.
AHEAD: Final = 64
_MAKE_ROOM: Final = 16


class EntryPointer:
    """A pointer to entries of a queue, which has to let go of those that leave."""

    __slots__ = ()

    def forget(self, entry: Entry) -> None:
        """Point no more to the entry, which is about to leave the queue."""

    def pointed(self, priority_level: PriorityLevel) -> Entry | None:
        """Return the entry of a level that this points to, cursors aside."""
        return None

    def add_level(self, at: i64, priority_level: PriorityLevel) -> None:
        """Take notice of a new level, which is the one at the index `at`."""


@final
class LevelCursor:
    """The position of a view in a level: `next` is what it looks at next, None at the end."""

    __slots__ = ("priority_level", "next")

    def __init__(self, priority_level: PriorityLevel) -> None:
        self.priority_level = priority_level
        self.next: Entry | None = priority_level.first

    def has_passed(self, entry: Entry) -> bool:
        """Return whether it will not come to the entry any more."""
        next = self.next
        return next is None or next.sequence > entry.sequence


@final
class PriorityLevel:
    """The entries of one level, from `first` to `last`.

    `plain` is the cursor of those who take everything, `others` are those of filters and that of
    the pager, `out`. `oldest` is where to look for the first available entry: none before it is.
    `runs` are those that have places among the entries, None as long as none ever had.
    """

    __slots__ = ("level", "first", "last", "plain", "others", "out", "oldest", "runs")

    def __init__(self, level: i64) -> None:
        self.level: i64 = level
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.oldest: Entry | None = None
        self.plain = LevelCursor(self)
        self.others: dict[LevelCursor, None] | None = None
        self.out: LevelCursor | None = None
        self.runs: DiskRuns | None = None

    def add_cursor(self, cursor: LevelCursor) -> None:
        """Move the cursor on from now on when the entry that it points to leaves."""
        if self.others is None:
            self.others = {cursor: None}
        else:
            self.others[cursor] = None

    def drop_cursor(self, cursor: LevelCursor) -> None:
        """Forget a cursor that nobody needs any more."""
        others = self.others
        if others is not None:
            others.pop(cursor, None)
            if not others:
                self.others = None

    def append(self, entry: Entry) -> None:
        """Put an entry behind all others."""
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
        others = self.others
        if others is not None:
            for cursor in others:
                if cursor.next is None:
                    cursor.next = entry

    def insert(self, entry: Entry, after: Entry) -> None:
        """Put an entry before another one."""
        before = after.prev
        entry.prev = before
        entry.next = after
        after.prev = entry
        if before is None:
            self.first = entry
        else:
            before.next = entry

    def redirect(self, entry: Entry, other: Entry) -> None:
        """Move the cursors that point to the entry to the other one."""
        if self.oldest is entry:
            self.oldest = other
        if self.plain.next is entry:
            self.plain.next = other
        others = self.others
        if others is not None:
            for cursor in others:
                if cursor.next is entry:
                    cursor.next = other

    def enter(self, place: Entry, count: i64) -> Entry:
        """Make entries of the first messages of the run that has this place; the first of them."""
        runs = self.runs
        assert runs is not None
        return runs.take(place, count)

    def bytes_of(self, entry: Entry) -> i64:
        """Return how large the message of an entry is, or those of the run that has this place."""
        if entry.state == RUN and self.runs is not None:
            return self.runs.of(entry).bytes
        return i64(entry.size)

    def all(self) -> list[Entry]:
        """Return all entries, and stand-ins of what is in runs, to be looked at."""
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
        """Take an entry out. Nothing may point to it but its neighbours."""
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
        """Before it is taken out: whatever points to the entry shall point to the next."""
        if self.oldest is entry:
            after = entry.next
            self.oldest = entry.prev if after is None else after
        if self.plain.next is entry:
            self.plain.next = entry.next
        others = self.others
        if others is not None:
            for cursor in others:
                if cursor.next is entry:
                    cursor.next = entry.next

    def is_back(self, entry: Entry) -> None:
        """Note an entry that is available again."""
        oldest = self.oldest
        if oldest is not None and entry.sequence < oldest.sequence:
            self.oldest = entry

    def first_available(self) -> Entry | None:
        """Return the oldest entry that nobody holds."""
        entry = self.oldest
        if entry is None:
            entry = self.first
        while entry is not None and entry.state != AVAILABLE:
            if entry.state == RUN:
                entry = self.enter(entry, _MAKE_ROOM)
                break
            # Here and not at the end: what is appended later is found from the last one.
            self.oldest = entry
            entry = entry.next
        if entry is not None:
            self.oldest = entry
        return entry
