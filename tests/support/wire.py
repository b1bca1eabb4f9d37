"""A wire between two engines that cuts and joins bytes wherever it likes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ferrymq.engine import Connection
from ferrymq.engine.events import Event


class Wire:
    """Two engines, the bytes on their way between them, and one clock.

    `on_event` answers each event of either engine; it is called after every read, as a client
    or a broker would do.
    """

    def __init__(
        self, left: Connection, right: Connection, on_event: Callable[[Connection, Event], None]
    ) -> None:
        self.ends = (left, right)
        self.now = 0.0
        self._on_event = on_event
        self._in_flight: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        # Everything each engine has written, for whoever wants to look into it afterwards.
        self.written: tuple[bytearray, bytearray] = (bytearray(), bytearray())

    def settle_events(self, side: int) -> None:
        """Answer everything that one engine has reported."""
        engine = self.ends[side]
        while events := engine.take_events():
            for event in events:
                self._on_event(engine, event)

    def collect(self, side: int) -> None:
        """Put what one engine has to say on the wire."""
        data = self.ends[side].data_to_send()
        self._in_flight[side].extend(data)
        self.written[side].extend(data)

    def deliver(self, side: int, limit: int) -> int:
        """Hand up to `limit` bytes from one engine to the other; how many there were."""
        pending = self._in_flight[side]
        chunk = bytes(pending[:limit])
        del pending[:limit]
        if chunk:
            self.ends[1 - side].receive_data(chunk, self.now)
            self.settle_events(1 - side)
        return len(chunk)

    def step(self, random: Random) -> None:
        """Move some bytes in one direction: a few, or all there are."""
        side = random.randrange(2)
        if random.random() < 0.7:
            self.collect(side)
        self.deliver(side, random.choice((1, 2, 7, 8, 9, 64, 500, 1 << 20)))

    def drain(self, random: Random) -> None:
        """Move bytes both ways until nothing is left to be said."""
        while True:
            for side in (0, 1):
                self.settle_events(side)
                self.collect(side)
            if not self._in_flight[0] and not self._in_flight[1]:
                return
            self.step(random)
