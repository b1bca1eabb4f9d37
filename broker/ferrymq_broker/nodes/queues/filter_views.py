"""Views and tiers of the consumers that take messages out of a queue.

A *view* is what consumers with the same filter see of a queue. It has a cursor in every priority
level and a heap of entries that came back behind the cursors. Consumers with the same filter share
a view, so that the filter is asked about each entry only once.

A *tier* is the consumers of one view that have the same priority. They take turns, message by
message. Tiers of the same priority take turns in proportion to how many consumers they have.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import Consumer, PriorityTier
from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry
from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.nodes.queues.priority_levels import AHEAD, EntryPointer, LevelCursor

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel

# The number of outdated records that a heap may have before it is checked for too many.
_SLACK: Final = 64
# How many messages a filter may be asked about in one turn of the queue. That takes some 20 ms, in
# which the broker does nothing else.
PATIENCE: Final = 10_000
# The cost of reading a message from disk, in questions to a filter.
_READING: Final = 9
# The key of the view without a filter; filters have others.
UNFILTERED: Final = ""


def push(heap: list[tuple[int, Entry]], entry: Entry, available: i64) -> None:
    """Put an entry into a heap, in which at most `available` records can be up to date."""
    heappush(heap, (entry.rank, entry))
    if len(heap) > _SLACK and len(heap) > 2 * available:
        kept: dict[int, Entry] = {}
        for rank, kept_entry in heap:
            if kept_entry.state == AVAILABLE:
                kept[rank] = kept_entry
        heap[:] = list(kept.items())
        heapify(heap)


@final
class FilterView(EntryPointer):
    """The view of consumers with the same `filter`; None lets all messages pass.

    `cursors` are in the order of the levels. `returned` is a heap of entries that the cursors have
    passed and that are to be offered again. `aside` is a heap of entries that no consumer of the
    view may get, or no ready one: they wait for other consumers. `evaluations` counts the questions
    to the filter, `patience` is how many more are allowed in this turn.
    """

    __slots__ = (
        "entries",
        "filter",
        "cursors",
        "returned",
        "aside",
        "tiers",
        "evaluations",
        "patience",
        "_source",
        "_match",
    )

    def __init__(self, entries: QueueEntries, filter: Filter | None) -> None:
        self.entries: QueueEntries = entries
        self.filter: Filter | None = filter
        self.cursors: list[LevelCursor] = []
        self.returned: list[tuple[int, Entry]] = []
        self.aside: list[tuple[int, Entry]] = []
        # Tiers of higher priority come first.
        self.tiers: list[ViewTier] = []
        self.evaluations: i64 = 0
        self.patience: i64 = PATIENCE
        # The cursor at which `front` found its answer; None for the heap.
        self._source: LevelCursor | None = None
        # The last entry that the filter let pass: a cursor may point to it.
        self._match: Entry | None = None
        for priority_level in entries.priority_levels:
            self.cursors.append(self._new_cursor(priority_level))
        entries.add_pointer(self)

    def _new_cursor(self, priority_level: PriorityLevel) -> LevelCursor:
        """Return a cursor for the view, at the beginning of a level; the level moves it."""
        if self.filter is None:
            return priority_level.plain
        cursor = LevelCursor(priority_level)
        priority_level.add_cursor(cursor)
        return cursor

    def add_level(self, at: i64, priority_level: PriorityLevel) -> None:
        """Include the entries of a new level."""
        self.cursors.insert(at, self._new_cursor(priority_level))

    def close(self) -> None:
        """Release all cursors, because no consumer has this view."""
        self.entries.drop_pointer(self)
        for cursor in self.cursors:
            cursor.priority_level.drop_cursor(cursor)

    def return_aside(self) -> None:
        """Offer the entries that were kept aside to all consumers again."""
        for _, entry in self.aside:
            if entry.state == AVAILABLE:
                push(self.returned, entry, self.entries.available)
        self.aside = []

    def front(self, stable: i64) -> Entry | None:
        """Return the first available entry that the filter lets pass and that was not offered yet.

        Entries with sequences above `stable` do not count yet.
        """
        cursors = self.cursors
        entry: Entry | None = None
        i: i64 = 0
        while i < len(cursors):
            cursor = cursors[i]
            entry = cursor.next
            if entry is not None and stable != BOUNDLESS and entry.sequence > stable:
                entry = None
            if entry is not None:
                if self.filter is not None or entry.state != AVAILABLE:
                    entry = self._seek(cursor, entry, stable)
                if entry is not None:
                    self._source = cursor
                    break
                if self.patience <= 0:
                    return None
            i += 1
        returned = self.returned
        while returned:
            old = returned[0][1]
            if old.state == AVAILABLE:
                if entry is None or old.rank < entry.rank:
                    self._source = None
                    return old
                break
            heappop(returned)
        return entry

    def _seek(self, cursor: LevelCursor, start: Entry, stable: i64) -> Entry | None:
        entry: Entry | None = start
        while entry is not None:
            if entry.sequence > stable:
                cursor.next = entry
                return None
            if entry.state == RUN:
                found = self._enter(cursor, entry, stable)
                if found is not None:
                    entry = found
                    break
                if cursor.next is entry:
                    return None
                entry = cursor.next
                continue
            if entry.state == AVAILABLE:
                filter = self.filter
                if filter is None or self._match is entry:
                    break
                if self.patience <= 0:
                    cursor.next = entry
                    return None
                if self.passes(entry):
                    break
            entry = entry.next
        cursor.next = entry
        return entry

    def _enter(self, cursor: LevelCursor, place: Entry, stable: i64) -> Entry | None:
        """Make an entry of the first message of a run that passes, and return it. If none passes,
        the cursor is at the first message that the filter was not asked about yet, or behind the
        run."""
        if self.filter is None:
            return cursor.priority_level.enter(place, AHEAD)
        runs = cursor.priority_level.runs
        assert runs is not None
        run = runs.of(place)
        index = run.begin
        while index < run.end:
            entry = runs.stand_in(run, index)
            if entry.sequence > stable or self.patience <= 0:
                runs.divide(place, index)
                cursor.next = place
                return None
            if self.passes(entry):
                entry = runs.cut(place, index)
                self._match = entry
                return entry
            index += 1
        cursor.next = place.next
        return None

    def pointed(self, priority_level: PriorityLevel) -> Entry | None:
        """Return the last entry that the filter let pass, if it is still in the queue and in this
        level."""
        match = self._match
        return match if match is not None and match.level == priority_level.level else None

    def passes(self, entry: Entry) -> bool:
        """Return whether the filter lets the message pass."""
        filter = self.filter
        if filter is None or self._match is entry:
            return True
        self.evaluations += 1
        message: BrokerMessage | None = entry.message
        if entry.is_out():
            self.patience -= _READING
            message = self.entries.read_message(entry)
        if message is None:
            return False
        self.patience -= filter.price(message)
        if not filter.matches(message):
            return False
        self._match = entry
        return True

    def step(self, entry: Entry) -> None:
        """Move on behind the entry that `front` has returned."""
        source = self._source
        if source is not None:
            source.next = entry.next
        elif self.returned and self.returned[0][1] is entry:
            heappop(self.returned)

    def has_more(self) -> bool:
        """Return whether there are more entries to offer."""
        for cursor in self.cursors:
            if cursor.next is not None:
                return True
        return bool(self.returned)

    def offer_again(self, entry: Entry) -> None:
        """Offer an entry that is available again, if the cursor has passed it."""
        level = entry.level
        for cursor in self.cursors:
            if cursor.priority_level.level == level:
                if cursor.has_passed(entry) and self.passes(entry):
                    push(self.returned, entry, self.entries.available)
                return

    def forget(self, entry: Entry) -> None:
        """Move away from an entry that is about to leave the queue."""
        if self._match is entry:
            self._match = None

    def find(self, excluded: set[int]) -> Consumer | None:
        """Return a consumer that is ready and not among the excluded."""
        for tier in self.tiers:
            consumer = tier.first
            while consumer is not None:
                if not consumer.is_among(excluded):
                    return consumer
                consumer = consumer.next_ready
        return None


@final
class ViewTier(PriorityTier):
    """The consumers of one `view` with one `priority`. `number` orders tiers of one priority: a
    later tier has a higher number."""

    __slots__ = ("view", "priority", "number")

    def __init__(self, view: FilterView, priority: i64, number: i64) -> None:
        super().__init__()
        self.view: FilterView = view
        self.priority: i64 = priority
        self.number: i64 = number
