"""Selected messages of a queue: a walk through all that no consumer holds."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, DEFERRED, RUN, Entry
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import REASON, SOURCE
from ferrymq_broker.nodes.queues.priority_levels import LevelCursor

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel

# How many messages are looked at in one step.
_STEP: Final = 64
# A message counts once more for each 64 KiB.
_LARGE_SHIFT: Final = 16


@final
class MessageSelection:
    """A choice of messages: those that meet all conditions.

    `sequences` are their numbers in the queue, None for any; `reason` and `source` are those of a
    dead letter, empty for any; `filter` None lets all pass.
    """

    __slots__ = ("sequences", "reason", "source", "filter")

    def __init__(
        self, sequences: set[int] | None, reason: str, source: str, filter: Filter | None
    ) -> None:
        self.sequences: set[int] | None = sequences
        self.reason: str = reason
        self.source: str = source
        self.filter: Filter | None = filter

    def picks(self, entries: QueueEntries, entry: Entry) -> bool:
        """Return whether a message is chosen; one that cannot be read is not, except by its
        number."""
        sequences = self.sequences
        if sequences is not None and int(entry.sequence) not in sequences:
            return False
        filter = self.filter
        if not self.reason and not self.source and filter is None:
            return True
        message = entries.read_message(entry)
        if message is None:
            return False
        if self.reason or self.source:
            annotations = view_of(message).message_annotations
            if self.reason and annotations.get(REASON) != self.reason:
                return False
            if self.source and annotations.get(SOURCE) != self.source:
                return False
        return filter is None or filter.matches(message)


def select(
    entries: QueueEntries, selection: MessageSelection
) -> Generator[Entry | None, None, None]:
    """Yield the chosen entries that no consumer holds, in the order of delivery; None where other
    clients may be served. The caller may drop an entry that it gets.

    Messages that come after the beginning are left out. Messages on disk stay there, and in their
    runs, unless they are chosen.
    """
    last = entries.published
    entries.begin_purge()
    try:
        for priority_level in list(entries.priority_levels):
            cursor = LevelCursor(priority_level)
            # The level moves the cursor on when its entry leaves.
            priority_level.add_cursor(cursor)
            try:
                yield from _select_in(entries, priority_level, cursor, selection, last)
            finally:
                priority_level.drop_cursor(cursor)
    finally:
        entries.end_purge()


def _select_in(
    entries: QueueEntries,
    priority_level: PriorityLevel,
    cursor: LevelCursor,
    selection: MessageSelection,
    last: i64,
) -> Generator[Entry | None, None, None]:
    # The sequence of the last message that was looked at: a run may be divided before it.
    seen: i64 = 0
    looked: i64 = 0
    entry = cursor.next
    while entry is not None and entry.sequence <= last:
        if entry.state == RUN:
            found = _look_at_run(entries, priority_level, entry, selection, seen, last)
            seen = found.seen
            looked += found.cost
            if found.index >= 0:
                yield _enter(priority_level, entry, found.index)
            elif found.over:
                cursor.next = entry.next
        else:
            cursor.next = entry.next
            if entry.sequence > seen:
                seen = entry.sequence
                looked += _cost(entry)
                if entry.state == AVAILABLE or entry.state == DEFERRED:
                    if selection.picks(entries, entry):
                        yield entry
        if looked >= _STEP:
            looked = 0
            yield None
        entry = cursor.next


def _cost(entry: Entry) -> i64:
    """Return the cost of looking at a message, in steps of `_STEP`: a large one may be on disk."""
    return 1 + (i64(entry.size) >> _LARGE_SHIFT)


@final
class _Found:
    """The result of a look at a run: the `index` of a chosen row, negative without one; the last
    sequence looked at; the cost; and whether the run has been looked at to its end."""

    __slots__ = ("index", "seen", "cost", "over")

    def __init__(self, seen: i64) -> None:
        self.index: i64 = -1
        self.seen: i64 = seen
        self.cost: i64 = 1
        self.over: bool = False


def _look_at_run(
    entries: QueueEntries,
    priority_level: PriorityLevel,
    place: Entry,
    selection: MessageSelection,
    seen: i64,
    last: i64,
) -> _Found:
    """Find the next chosen row of a run, after the sequence `seen`, as far as a step allows."""
    found = _Found(seen)
    runs = priority_level.runs
    if runs is None:
        found.over = True
        return found
    run = runs.of(place)
    index = run.begin
    while index < run.end and run.sequence(index) <= last:
        if run.sequence(index) > found.seen:
            if found.cost > _STEP:
                return found
            found.seen = run.sequence(index)
            entry = runs.stand_in(run, index)
            found.cost += _cost(entry)
            if selection.picks(entries, entry):
                found.index = index
                return found
        index += 1
    found.over = True
    return found


def _enter(priority_level: PriorityLevel, place: Entry, index: i64) -> Entry:
    """Make an entry of a row of the run at this place."""
    runs = priority_level.runs
    assert runs is not None
    return runs.cut(place, index)
