"""Browsers: they read a queue and take nothing out (AMQP 1.0 §3.5.7, distribution-mode copy)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, Consumer
from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry
from ferrymq_broker.nodes.queues.filter_views import PATIENCE
from ferrymq_broker.nodes.queues.priority_levels import LEVELS, EntryPointer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.disk_runs import DiskRuns
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel

# The cost of reading a message from disk, in questions to a filter.
_READING: Final = 10
# The browser has seen the entry, or why not: it has no credit, its turn is over, or the entry is
# not stable.
_SEEN: Final = 0
_NOT_READY: Final = 1
_NOT_NOW: Final = 2
_NOT_THERE: Final = 3


@final
class Browser(EntryPointer):
    """A browser and its position: for each level, the last entry that it has passed."""

    __slots__ = ("consumer", "_entries", "_positions", "_patience")

    def __init__(self, entries: QueueEntries, consumer: Consumer) -> None:
        self.consumer: Consumer = consumer
        self._entries = entries
        self._positions: list[Entry | None] = [None] * LEVELS
        # The amount that it may still be shown in this turn.
        self._patience: i64 = 0
        entries.add_pointer(self)

    def close(self) -> None:
        """Release all positions."""
        self._entries.drop_pointer(self)

    def show(self) -> bool:
        """Show the browser what it has not seen. Entries that consumers hold at this moment are
        skipped; entries that are not stable do not exist yet.

        Return false if there is more to look at in another turn.
        """
        self._patience = PATIENCE
        stable = self._entries.records.stable
        for priority_level in self._entries.priority_levels:
            level = priority_level.level
            position = self._positions[level]
            entry = priority_level.first if position is None else position.next
            while entry is not None and entry.sequence <= stable:
                if entry.state == RUN and priority_level.runs is not None:
                    seen = self._show_run(priority_level.runs, entry)
                else:
                    seen = self._show_entry(entry)
                if seen == _NOT_THERE:
                    break
                if seen != _SEEN:
                    return seen == _NOT_READY
                self._positions[level] = entry
                entry = entry.next
        return True

    def _show_run(self, runs: DiskRuns, place: Entry) -> i64:
        """Show the browser the messages of a run. If it has not seen all of them, the others get a
        place of their own."""
        run = runs.of(place)
        index = run.begin
        seen = _SEEN
        while index < run.end and seen == _SEEN:
            entry = runs.stand_in(run, index)
            if entry.sequence > self._entries.records.stable:
                seen = _NOT_THERE
            else:
                seen = self._show_entry(entry)
            if seen == _SEEN:
                index += 1
        if seen != _SEEN and index > run.begin:
            runs.divide(place, index)
            self._positions[place.level] = place.prev
        return seen

    def _show_entry(self, entry: Entry) -> i64:
        """Show the browser an entry, if its filter lets the message pass."""
        consumer = self.consumer
        if not consumer.ready:
            return _NOT_READY
        if entry.state != AVAILABLE or (
            entry.expires != 0 and self._entries.agenda.left(entry.expires) <= 0
        ):
            return _SEEN
        filter = consumer.filter
        out = entry.is_out()
        if filter is not None or out:
            if self._patience <= 0:
                return _NOT_NOW
            self._patience -= _READING if out else 0
        message = self._entries.read_message(entry) if out else entry.message
        if message is not None and filter is not None:
            self._patience -= filter.price(message)
        if message is not None and (filter is None or filter.matches(message)):
            # The entry is shown and stays in the queue.
            kept = entry.message
            entry.message = message
            verdict = consumer.deliver(entry)
            entry.message = kept
            if verdict == IDLE:
                consumer.ready = False
                return _NOT_READY
        return _SEEN

    def pointed(self, priority_level: PriorityLevel) -> Entry | None:
        """Return the last entry, or place of a run, that the browser has passed in a level."""
        return self._positions[priority_level.level]

    def has_more(self) -> bool:
        """Return whether there are entries that the browser has not passed."""
        for priority_level in self._entries.priority_levels:
            position = self._positions[priority_level.level]
            if (priority_level.first if position is None else position.next) is not None:
                return True
        return False

    def forget(self, entry: Entry) -> None:
        """Move the position away from an entry that is about to leave the queue."""
        level = entry.level
        if self._positions[level] is entry:
            self._positions[level] = entry.prev
