"""Rates of links: how many messages a second.

Links count their deliveries in any case (AMQP 1.0 §2.6.7). A timer reads these counters every few
seconds; a rate is the difference of two readings. So a message costs no more than without rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.slices import SlicedTask, Slices

if TYPE_CHECKING:
    from ferrymq_broker.connections.client_handler import ClientHandler
    from ferrymq_broker.nodes.node import Agenda

# Milliseconds over which a rate is taken at least.
_LEAST: Final = 1000
# How many links are read for one unit of `Slices`.
LINKS_TOGETHER: Final = 16
_BITS: Final = 0xFFFF_FFFF


@final
class MessageRate:
    """The total and the rate of one counter, which begins at 0 and has 32 bits.

    `now` is in milliseconds (`Agenda.now`). The rate is taken since the reading before the last
    one, so over one to two intervals of the timer; before that since the counter began.
    """

    __slots__ = ("_total", "_count", "_at", "_earlier", "_earlier_at")

    def __init__(self, now: i64) -> None:
        # Of the last reading: the messages so far, the counter, and the time.
        self._total: i64 = 0
        self._count: i64 = 0
        self._at: i64 = now
        self._earlier: i64 = 0
        self._earlier_at: i64 = now

    def read(self, count: i64, now: i64) -> None:
        """Note the counter, which must be read at least once in 2^32 messages."""
        self._earlier = self._total
        self._earlier_at = self._at
        self._total = self.total(count)
        self._count = count
        self._at = now

    def total(self, count: i64) -> i64:
        """Return how many messages there have been."""
        return self._total + ((count - self._count) & _BITS)

    def rate(self, count: i64, now: i64) -> float:
        """Return the messages per second."""
        passed = now - self._earlier_at
        if passed < _LEAST:
            passed = _LEAST
        return round(float(self.total(count) - self._earlier) * 1000.0 / float(passed), 1)


@final
class MessageTraffic:
    """The messages of one connection so far, and the messages per second: `received` from the
    client, and `sent` to it."""

    __slots__ = ("received", "sent", "received_rate", "sent_rate")

    def __init__(self) -> None:
        self.received: i64 = 0
        self.sent: i64 = 0
        self.received_rate: float = 0.0
        self.sent_rate: float = 0.0

    def describe(self) -> dict[str, object]:
        """Return the figures by their public names."""
        return {
            "messages-received": int(self.received),
            "messages-sent": int(self.sent),
            "received-rate": round(self.received_rate, 1),
            "sent-rate": round(self.sent_rate, 1),
        }


@final
class RateReading(SlicedTask):
    """The task of the timer: it reads the counters of the links of all connections."""

    __slots__ = ("_agenda", "_handlers")

    def __init__(self, agenda: Agenda) -> None:
        super().__init__()
        self._agenda = agenda
        self._handlers: list[ClientHandler] = []

    def begin(self, handlers: list[ClientHandler]) -> None:
        """Read the counters of these connections, unless the last reading is not over."""
        if not self._handlers:
            self._handlers = handlers
            self._agenda.slices.do(self)

    def go_on(self, slices: Slices) -> bool:
        """Read as many connections as the slice allows."""
        handlers = self._handlers
        now = self._agenda.now
        while handlers:
            if slices.is_spent():
                return False
            links = handlers.pop().read_rates(now)
            slices.spend(1 + links // LINKS_TOGETHER)
        return True
