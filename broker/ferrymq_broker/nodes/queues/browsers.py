"""Those who look at a queue and take nothing (AMQP 1.0 §3.5.7, distribution-mode copy)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, Consumer
from ferrymq_broker.nodes.entry import AVAILABLE, Entry
from ferrymq_broker.nodes.paging.pager import peek
from ferrymq_broker.nodes.queues.lanes import LEVELS
from ferrymq_broker.nodes.queues.views import PATIENCE

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.queue import Queue

# What it takes to read a message from disk, in questions to a filter.
_READING: Final = 10


@final
class Browser:
    """A consumer that browses, and how far it has come: by level, the last entry it has passed."""

    __slots__ = ("consumer", "_positions")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._positions: list[Entry | None] = [None] * LEVELS

    def show(self, queue: Queue, now: i64) -> bool:
        """Show it what it has not seen. What others hold at this moment is passed over; entries
        that are not stable are not there yet.

        False if there is more to look at, in another turn.
        """
        patience = PATIENCE
        consumer = self.consumer
        filter = consumer.filter
        stable = queue.stable
        for lane in queue.lanes:
            level = lane.level
            position = self._positions[level]
            entry = lane.first if position is None else position.next
            while entry is not None and entry.sequence <= stable:
                if not consumer.ready:
                    return True
                if entry.state == AVAILABLE and (entry.expires == 0 or entry.expires > now):
                    out = entry.is_out()
                    if filter is not None or out:
                        if patience <= 0:
                            return False
                        patience -= _READING if out else 0
                    message = peek(queue, entry) if out else entry.message
                    if message is not None and filter is not None:
                        patience -= filter.price(message)
                    if message is not None and (filter is None or filter.matches(message)):
                        # It is shown, and stays where it is.
                        kept = entry.message
                        entry.message = message
                        verdict = consumer.deliver(entry)
                        entry.message = kept
                        if verdict == IDLE:
                            consumer.ready = False
                            return True
                self._positions[level] = entry
                entry = entry.next
        return True

    def forget(self, entry: Entry) -> None:
        """The entry is about to leave the queue."""
        level = entry.level
        if self._positions[level] is entry:
            self._positions[level] = entry.prev
