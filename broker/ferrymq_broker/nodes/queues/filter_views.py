"""Who takes messages out of a queue: views, and crews of consumers.

A *view* is what consumers with the same filter see of a queue. It has a cursor in every lane and a
heap of what came back behind the cursors. It looks at an entry once; who else would look at it
again for the sake of the same filter is in the same view.

A *crew* is the consumers of one view that have the same priority. They take turns, message by
message. Crews of the same priority take turns in proportion to how many they are.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry
from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.nodes.paging.pager import peek
from ferrymq_broker.nodes.queues.priority_levels import AHEAD, LevelCursor

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel
    from ferrymq_broker.nodes.queues.queue import Queue

# A heap may have so many outdated records before somebody looks whether it has too many.
_SLACK: Final = 64
# How many messages a filter may be asked about in one turn of the queue, some 20 ms: the broker
# does nothing else meanwhile.
PATIENCE: Final = 10_000
# And what it takes to read one from disk first, in questions.
_READING: Final = 9
# The key of the view without a filter; filters have others.
UNFILTERED: Final = ""


def push(heap: list[tuple[int, Entry]], entry: Entry, available: i64) -> None:
    """Put an entry into a heap, of which no more than `available` records can be up to date."""
    heappush(heap, (entry.rank, entry))
    if len(heap) > _SLACK and len(heap) > 2 * available:
        kept: dict[int, Entry] = {}
        for rank, kept_entry in heap:
            if kept_entry.state == AVAILABLE:
                kept[rank] = kept_entry
        heap[:] = list(kept.items())
        heapify(heap)


@final
class FilterView:
    """Of those with the same `filter`; None lets everything pass.

    `cursors` are in the order of the lanes. `returned` is a heap of entries the cursors have passed
    and that are to be offered now, `aside` one of entries that none of the consumers it has may
    get, or none that is ready: for those who are to come. `evaluations` counts what the filter was
    asked about, `patience` how much more it may be asked in this turn.
    """

    __slots__ = (
        "queue",
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

    def __init__(self, queue: Queue, filter: Filter | None) -> None:
        self.queue = queue
        self.filter = filter
        self.cursors: list[LevelCursor] = []
        self.returned: list[tuple[int, Entry]] = []
        self.aside: list[tuple[int, Entry]] = []
        # Those of higher priority first.
        self.tiers: list[PriorityTier] = []
        self.evaluations: i64 = 0
        self.patience: i64 = PATIENCE
        # Where `front` found its answer; None for the heap.
        self._source: LevelCursor | None = None
        # What the filter let pass last: a cursor may point to it.
        self._match: Entry | None = None

    def front(self, stable: i64) -> Entry | None:
        """The first available entry that the filter lets pass and nobody was offered since.

        Entries with sequences above `stable` are not there yet.
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
        """The first message of a run that passes, made an entry. If none does, the cursor is at the
        place of those nobody was asked about yet, or behind it."""
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

    def matched(self, priority_level: PriorityLevel) -> Entry | None:
        """What the filter let pass last, if it is still there, and in this lane."""
        match = self._match
        return match if match is not None and match.level == priority_level.level else None

    def passes(self, entry: Entry) -> bool:
        """Whether the filter lets the message pass."""
        filter = self.filter
        if filter is None or self._match is entry:
            return True
        self.evaluations += 1
        message: BrokerMessage | None = entry.message
        if entry.is_out():
            self.patience -= _READING
            message = peek(self.queue, entry)
        if message is None:
            return False
        self.patience -= filter.price(message)
        if not filter.matches(message):
            return False
        self._match = entry
        return True

    def step(self, entry: Entry) -> None:
        """Go on behind the entry that `front` has answered with."""
        source = self._source
        if source is not None:
            source.next = entry.next
        elif self.returned and self.returned[0][1] is entry:
            heappop(self.returned)

    def has_more(self) -> bool:
        """Whether there is something that may still be offered."""
        for cursor in self.cursors:
            if cursor.next is not None:
                return True
        return bool(self.returned)

    def offer_again(self, entry: Entry, available: i64) -> None:
        """An entry is available again; it has to be offered if the cursor will not come to it."""
        level = entry.level
        for cursor in self.cursors:
            if cursor.priority_level.level == level:
                if cursor.has_passed(entry) and self.passes(entry):
                    push(self.returned, entry, available)
                return

    def forget(self, entry: Entry) -> None:
        """The entry is about to leave the queue."""
        if self._match is entry:
            self._match = None

    def find(self, excluded: set[int]) -> Consumer | None:
        """A consumer that is ready and not among the excluded."""
        for tier in self.tiers:
            consumer = tier.first
            while consumer is not None:
                if not consumer.is_among(excluded):
                    return consumer
                consumer = consumer.next_ready
        return None


@final
class PriorityTier:
    """The consumers of one `view` with one `priority`.

    Those that are ready, `count` of them, take turns in the order from `first` to `last`: a list
    that is linked through `Consumer.next_ready`, which any of them can leave at no cost. `turn` is
    the consumer whose turn it is, None at the end of a round. `eager` are the ready consumers that
    have entries of their own. `taken` is how much the crew has had, in shares: of crews that want
    a message the one with the least gets it. `number` tells crews of one priority apart: the crew
    that was made later has the higher one.
    """

    __slots__ = (
        "view",
        "priority",
        "number",
        "members",
        "count",
        "first",
        "last",
        "turn",
        "eager",
        "taken",
    )

    def __init__(self, view: FilterView, priority: i64, number: i64) -> None:
        self.view = view
        self.priority: i64 = priority
        self.number: i64 = number
        self.members: dict[Consumer, None] = {}
        self.count: i64 = 0
        self.first: Consumer | None = None
        self.last: Consumer | None = None
        self.turn: Consumer | None = None
        self.eager: OrderedDict[Consumer, None] = OrderedDict()
        self.taken: i64 = 0

    def admit(self, consumer: Consumer) -> None:
        """Let a consumer that is ready take turns, as the last of a round."""
        last = self.last
        if last is None:
            self.first = consumer
        else:
            last.next_ready = consumer
            consumer.prev_ready = last
        self.last = consumer
        self.count += 1
        if self.turn is None:
            # The round had come to its end.
            self.turn = consumer
        if consumer.own is not None:
            self.eager[consumer] = None

    def dismiss(self, consumer: Consumer) -> None:
        """Let a consumer that has taken turns take none any more."""
        before = consumer.prev_ready
        after = consumer.next_ready
        if before is None:
            self.first = after
        else:
            before.next_ready = after
            consumer.prev_ready = None
        if after is None:
            self.last = before
        else:
            after.prev_ready = before
            consumer.next_ready = None
        self.count -= 1
        if self.turn is consumer:
            self.turn = after
        if self.eager:
            self.eager.pop(consumer, None)

    def ready(self) -> list[Consumer]:
        """The consumers that are ready, in the order of their turns."""
        found: list[Consumer] = []
        consumer = self.first
        while consumer is not None:
            found.append(consumer)
            consumer = consumer.next_ready
        return found
