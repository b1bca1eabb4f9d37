"""Those who look at a queue and take nothing (AMQP 1.0 §3.5.7, distribution-mode copy)."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, Consumer
from ferrymq_broker.nodes.entry import AVAILABLE, Entry
from ferrymq_broker.nodes.queues.lanes import LEVELS, Lane
from ferrymq_broker.nodes.queues.views import PATIENCE


@final
class Browser:
    """A consumer that browses, and how far it has come: by level, the last entry it has passed."""

    __slots__ = ("consumer", "_positions")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._positions: list[Entry | None] = [None] * LEVELS

    def show(self, lanes: list[Lane], now: i64, stable: i64) -> bool:
        """Show it what it has not seen. What others hold at this moment is passed over; entries
        with sequences above `stable` are not there yet.

        False if there is more to look at, in another turn.
        """
        patience = PATIENCE
        consumer = self.consumer
        filter = consumer.filter
        for lane in lanes:
            level = lane.level
            position = self._positions[level]
            entry = lane.first if position is None else position.next
            while entry is not None and entry.sequence <= stable:
                if not consumer.ready:
                    return True
                if entry.state == AVAILABLE and (entry.expires == 0 or entry.expires > now):
                    wanted = True
                    if filter is not None:
                        if patience <= 0:
                            return False
                        patience -= 1
                        wanted = filter.matches(entry.message)
                    if wanted and consumer.deliver(entry) == IDLE:
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
