"""A client engine on a socket, for tests of the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Self

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import CloseReceived, DeliveryReceived, DetachReceived, Event
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.transport import Error

_numbers = count(1)


class SocketClient(asyncio.Protocol):
    """``async with SocketClient(port) as client``: connected and opened on entry."""

    def __init__(self, port: int) -> None:
        self._port = port
        # Containers of one id would take each other's links.
        settings = ConnectionSettings(container_id=f"test-{next(_numbers)}", initiator=True)
        self.engine = Connection(settings, 0.0)
        self.deliveries: list[IncomingDelivery] = []
        self.events: list[Event] = []
        self.closed_with: Error | None = None
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        self.engine.open()
        await self.until(lambda: self.engine.opened)
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.ended.is_set():
            self.engine.close()
            self.flush()
            self._transport.resume_reading()
            await self.ended.wait()

    @property
    def local_port(self) -> int:
        """The port of this end."""
        port: int = self._transport.get_extra_info("sockname")[1]
        return port

    def data_received(self, data: bytes) -> None:
        """Process a read, answer, and let whoever waits look again."""
        self.engine.receive_data(data, 0.0)
        for event in self.engine.take_events():
            self.events.append(event)
            if isinstance(event, DeliveryReceived):
                self.deliveries.append(event.delivery)
            elif isinstance(event, DetachReceived):
                event.link.detach(closed=event.closed)
            elif isinstance(event, CloseReceived):
                self.closed_with = event.error
                self.engine.close()
        self.flush()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self.engine.receive_eof(0.0)
        self.ended.set()
        self._changed.set()

    def flush(self) -> None:
        """Write what the engine has to say."""
        data = self.engine.data_to_send()
        if data:
            self._transport.write(data)

    def unsettled(self, link: SenderLink) -> int:
        """How many deliveries of the link are not settled."""
        return len(link.session.outgoing.unsettled)

    def pause(self) -> None:
        """Stop reading."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    async def round_trip(self) -> None:
        """Wait until the broker has dealt with everything sent so far."""
        session = self.engine.begin()
        await self.until(lambda: session.mapped)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Flush, then wait until the condition holds; it is looked at after every read."""
        self.flush()
        while not condition():
            if self.ended.is_set():
                raise ConnectionError("the connection ended first")
            self._changed.clear()
            await self._changed.wait()
