"""A relay of bytes between the client of a connection with TLS or in a WebSocket, and the worker to
which the connection has been passed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

# Bytes that one side has not taken yet, above which the other one is not read.
HIGH_WATER: Final = 256 * 1024
# Seconds for a client to read the last bytes after the worker has ended the connection.
LINGER: Final = 5.0


class Relay:
    """A relay between `client`, whose protocol it becomes at once, and a socket to the other worker.

    `early` are bytes of the client that were read before. `on_end` is called once, when the
    transport of the client has ended.
    """

    def __init__(
        self, client: asyncio.Transport, early: bytes, on_end: Callable[[Relay], object]
    ) -> None:
        self._client = _End(self._client_lost)
        self._worker = _End(self._worker_lost)
        self._client.other, self._worker.other = self._worker, self._client
        self._on_end = on_end
        self._lingering: asyncio.TimerHandle | None = None
        self._worker.write(early)
        client.set_protocol(self._client)
        self._client.connection_made(client)

    async def start(self, worker: socket.socket) -> None:
        """Begin to relay. The client has not been read before that, but a layer above its socket
        may have had more bytes."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self._worker, sock=worker)
        except OSError:
            worker.close()
            self.abort()
        else:
            if not self._worker.is_full:
                self._worker.resume_writing()

    def abort(self) -> None:
        """End both sides at once."""
        for end in (self._client, self._worker):
            if end.transport is not None:
                end.transport.abort()

    def _client_lost(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
        self._worker.close()
        self._on_end(self)

    def _worker_lost(self) -> None:
        client = self._client
        client.close()
        if client.transport is not None:
            loop = asyncio.get_running_loop()
            self._lingering = loop.call_later(LINGER, client.transport.abort)


class _End(asyncio.Protocol):
    """One side of a relay: what it gets is written to the `other`. `transport` is None before it is
    connected, and after its end. `is_full` is whether it takes nothing at the moment. `on_lost` is
    called at its end."""

    def __init__(self, on_lost: Callable[[], object]) -> None:
        self.transport: Any = None
        self.other: _End | None = None
        self.is_full = False
        self._on_lost = on_lost
        # What is to be written, and whether that is all, as long as it is not connected.
        self._early = b""
        self._closing = False

    def connection_made(self, transport: Any) -> None:
        """Write what has come before. Transports of uvloop are not subclasses of asyncio's."""
        self.transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)
        early, self._early = self._early, b""
        if early:
            transport.write(early)
        if self._closing:
            transport.close()

    def write(self, data: bytes) -> None:
        """Write bytes, or keep them until it is connected. They are dropped after the end."""
        if self.transport is not None:
            self.transport.write(data)
        elif not self._closing:
            self._early += data

    def close(self) -> None:
        """End this side when everything is written."""
        self._closing = True
        if self.transport is not None:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on."""
        if self.other is not None:
            self.other.write(data)

    def eof_received(self) -> bool:
        """End with the peer: neither AMQP nor the broker sends after that."""
        return False

    def pause_writing(self) -> None:
        """Do not read the other side while this one takes nothing."""
        self.is_full = True
        other = self.other
        if other is not None and other.transport is not None and not other.transport.is_closing():
            other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read the other side again."""
        self.is_full = False
        other = self.other
        if other is not None and other.transport is not None and not other.transport.is_closing():
            other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end on, after all bytes."""
        self.transport = None
        self._closing = True
        other, self.other = self.other, None
        self._on_lost()
        if other is not None:
            other.other = None
