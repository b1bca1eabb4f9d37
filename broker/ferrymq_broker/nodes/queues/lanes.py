"""The order of a queue: one lane for each level of priority, each in order of publication."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, Entry

# How many levels there are (AMQP 1.0 §3.2.1), and that of messages which do not say theirs. However
# many levels a queue tells apart, this one keeps its number.
LEVELS: Final = 10
DEFAULT_LEVEL: Final = 4


@final
class Cursor:
    """How far a view has come in a lane: `next` is what it looks at next, None at the end."""

    __slots__ = ("lane", "next")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.next: Entry | None = lane.first

    def has_passed(self, entry: Entry) -> bool:
        """Whether it will not come to the entry any more."""
        next = self.next
        return next is None or next.sequence > entry.sequence


@final
class Lane:
    """The entries of one level, from `first` to `last`.

    `plain` is the cursor of those who take everything, `others` are those of filters and that of
    the pager, `out`. `oldest` is where to look for the first available entry: none before it is.
    """

    __slots__ = ("level", "first", "last", "plain", "others", "out", "oldest")

    def __init__(self, level: i64) -> None:
        self.level: i64 = level
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.oldest: Entry | None = None
        self.plain = Cursor(self)
        self.others: list[Cursor] | None = None
        self.out: Cursor | None = None

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
        """An entry is available again."""
        oldest = self.oldest
        if oldest is not None and entry.sequence < oldest.sequence:
            self.oldest = entry

    def first_available(self) -> Entry | None:
        """The oldest entry that nobody holds."""
        entry = self.oldest
        if entry is None:
            entry = self.first
        while entry is not None and entry.state != AVAILABLE:
            # Here and not at the end: what is appended later is found from the last one.
            self.oldest = entry
            entry = entry.next
        if entry is not None:
            self.oldest = entry
        return entry
