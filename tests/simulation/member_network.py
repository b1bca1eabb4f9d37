"""The network between clients and several members, whose processes may be stopped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import LATENCY, SimulatedNetwork, Wire, _End
from tests.simulation.process import SimulatedProcess

# The mean of seconds until a client is told that there is no leader.
REFUSAL = 0.3


class MemberPort:
    """The place where a process of a member accepts connections. `wrote` is told of each output of
    the broker."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, process: SimulatedProcess) -> None:
        self.loop = loop
        self.rng = rng
        self.process = process
        self.accept: Callable[[], asyncio.Protocol] | None = None
        self.wires: list[MemberWire] = []
        self.wrote: Callable[[], None] = lambda: None

    def stop_broker(self) -> None:
        """The broker is gone: no connection works any more."""
        self.accept = None
        for wire in self.wires:
            wire.lose_broker()
        self.wires = []


class MemberWire(Wire):
    """A connection to a member, whose end there has the turns of the process."""

    def __init__(self, port: MemberPort, client: asyncio.Protocol, breaks_after: int) -> None:
        super().__init__(port.loop, port.rng, client, asyncio.Protocol(), breaks_after)
        self.port = port

    def begin(self) -> None:
        """Accept the connection, if the broker is still there."""
        if self.port.accept is None:
            self.cut()
        elif not self.broken:
            protocol = self.broker.protocol = self.port.accept()
            protocol.connection_made(self.broker)

    def send(self, end: _End, data: bytes) -> None:
        if end is self.broker:
            self.port.wrote()
        super().send(end, data)

    def _arrive(self, end: _End, data: bytes) -> None:
        if self.broken:
            return
        if end is self.broker:
            self.port.process.call_soon(self._take, data)
        else:
            end.take(data)

    def _take(self, data: bytes) -> None:
        if not self.broken:
            self.broker.take(data)

    def cut(self) -> None:
        """It is over, for both ends."""
        if not self.broken:
            self.broken = True
            self.loop.call_soon(self.client.lose)
            self.port.process.call_soon(self.broker.lose)


class MemberNetwork(SimulatedNetwork):
    """Connects clients to one of the members that accept connections."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, mean_bytes: int) -> None:
        super().__init__(loop, rng, mean_bytes)
        self.ports: list[MemberPort] = []

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        await asyncio.sleep(self.rng.expovariate(1 / LATENCY))
        ports = [port for port in self.ports if port.accept is not None and not port.process.dead]
        if not ports:
            # A refusal at once would have clients try again and again, and find nothing more.
            await asyncio.sleep(self.rng.expovariate(1 / REFUSAL))
            raise ConnectionRefusedError("there is no leader at the moment")
        port = self.rng.choice(ports)
        client = factory()
        endless = self.calm or self.rng.random() < 0.3
        left = 1 << 60 if endless else int(self.rng.expovariate(1 / self.mean_bytes))
        wire = MemberWire(port, client, left)
        port.wires.append(wire)
        port.process.call_soon(wire.begin)
        client.connection_made(wire.client)
        return wire.client
