"""The network between clients and broker: bytes take their time, connections break anywhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import SimulatedLoop

# The mean time of a byte on its way, in seconds, and the most bytes that arrive together.
LATENCY = 0.0005
SLICE = 4096
TICK = 1e-6


class _End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, wire: Wire, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.wire = wire
        self.protocol = protocol
        self.other: _End
        self.closing = False
        self.over = False
        self.paused = False
        self.waiting: list[bytes] = []
        # When what was sent last arrives: bytes keep their order.
        self.arrival = 0.0

    def get_protocol(self) -> Any:
        return self.protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is always room."""

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return not self.paused

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        waiting, self.waiting = self.waiting, []
        for data in waiting:
            self.take(data)

    def write(self, data: Any) -> None:
        if not self.closing:
            self.wire.send(self, bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.wire.hang_up(self)

    def abort(self) -> None:
        self.wire.cut()

    def take(self, data: bytes) -> None:
        if self.over:
            return
        if self.paused:
            self.waiting.append(data)
        else:
            self.protocol.data_received(data)

    def lose(self) -> None:
        if not self.over:
            self.over = True
            self.closing = True
            self.protocol.connection_lost(ConnectionResetError("the simulated network"))


class Wire:
    """A connection. `breaks_after` is how many bytes it carries before it breaks."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        client: asyncio.Protocol,
        broker: asyncio.Protocol,
        breaks_after: int,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.left = breaks_after
        self.broken = False
        self.client = _End(self, client)
        self.broker = _End(self, broker)
        self.client.other = self.broker
        self.broker.other = self.client

    def send(self, end: _End, data: bytes) -> None:
        while data and not self.broken:
            size = min(len(data), self.rng.choice((1, 7, 64, 512, SLICE, SLICE)))
            part, data = data[:size], data[size:]
            self.left -= len(part)
            if self.left < 0:
                # What was written before may arrive all the same, or not.
                self.loop.call_later(self.rng.expovariate(1 / LATENCY), self.cut)
                return
            moment = self.loop.time() + self.rng.expovariate(1 / LATENCY)
            # Later than what was sent before: timers of one moment have no order.
            end.arrival = max(end.arrival + TICK, moment)
            self.loop.call_at(end.arrival, self._arrive, end.other, part)

    def _arrive(self, end: _End, data: bytes) -> None:
        if not self.broken:
            end.take(data)

    def hang_up(self, end: _End) -> None:
        moment = max(end.arrival + TICK, self.loop.time() + LATENCY)
        self.loop.call_at(moment, self.cut)

    def cut(self) -> None:
        """It is over, for both ends."""
        if self.broken:
            return
        self.broken = True
        self.loop.call_soon(self.client.lose)
        self.loop.call_soon(self.broker.lose)

    def lose_broker(self) -> None:
        """The broker's process is gone: the client learns it a moment later."""
        if not self.broken:
            self.broken = True
            self.broker.over = True
            self.loop.call_later(self.rng.expovariate(1 / LATENCY), self.client.lose)


class SimulatedNetwork:
    """Connects clients to the broker there is at the time. `mean_bytes` is how many bytes
    connections carry on average before they break."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, mean_bytes: int) -> None:
        self.loop = loop
        self.rng = rng
        self.mean_bytes = mean_bytes
        self.accept: Callable[[], asyncio.Protocol] | None = None
        self.wires: list[Wire] = []
        # From now on nothing breaks.
        self.calm = False

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        await asyncio.sleep(self.rng.expovariate(1 / LATENCY))
        if self.accept is None:
            raise ConnectionRefusedError("there is no broker at the moment")
        client, broker = factory(), self.accept()
        endless = self.calm or self.rng.random() < 0.3
        left = 1 << 60 if endless else int(self.rng.expovariate(1 / self.mean_bytes))
        wire = Wire(self.loop, self.rng, client, broker, left)
        self.wires.append(wire)
        broker.connection_made(wire.broker)
        client.connection_made(wire.client)
        return wire.client

    def stop_broker(self) -> None:
        """The broker's machine is gone: no connection works any more."""
        self.accept = None
        for wire in self.wires:
            wire.lose_broker()
        self.wires = []
