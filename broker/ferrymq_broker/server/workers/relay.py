"""A relay of bytes between the client of a connection with TLS or in a WebSocket, and the worker to
which the connection has been passed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

# Bytes that one side has not taken yet, above which the other one is not read.
HIGH_WATER = 256 * 1024


class Relay:
    """A relay between `client`, whose protocol it becomes, and a socket to the other worker.

    `on_end` is called once, when the transport of the client has ended.
    """

    def __init__(self, client: asyncio.Transport, on_end: Callable[[Relay], object]) -> None:
        self._client = _End(client, self._client_lost)
        self._worker: _End | None = None
        self._on_end = on_end
        client.set_write_buffer_limits(high=HIGH_WATER)

    async def start(self, worker: socket.socket, rest: Callable[[], bytes]) -> None:
        """Begin to relay. Nothing is read from the client before that; `rest` returns what a layer
        above its socket had read all the same."""
        loop = asyncio.get_running_loop()
        end = _End(None, self._worker_lost)
        try:
            await loop.create_connection(lambda: end, sock=worker)
        except OSError:
            worker.close()
            self.abort()
            return
        self._worker = end
        self._client.other, end.other = end, self._client
        client = self._client.transport
        assert client is not None
        if client.is_closing():
            end.close()
            return
        client.set_protocol(self._client)
        left = rest()
        if left:
            self._client.data_received(left)
        client.resume_reading()

    def abort(self) -> None:
        """End both sides at once."""
        for end in (self._client, self._worker):
            if end is not None and end.transport is not None:
                end.transport.abort()

    def _client_lost(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._on_end(self)

    def _worker_lost(self) -> None:
        self._client.close()


class _End(asyncio.Protocol):
    """One side of a relay: what it gets is written to the `other`."""

    def __init__(self, transport: asyncio.Transport | None, on_lost: Callable[[], object]) -> None:
        self.transport = transport
        self.other: _End | None = None
        self._on_lost = on_lost

    def connection_made(self, transport: Any) -> None:
        """Note the transport. Those of uvloop are not subclasses of asyncio's."""
        self.transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on."""
        other = self.other
        if other is not None and other.transport is not None:
            other.transport.write(data)

    def eof_received(self) -> bool:
        """End with the peer: neither AMQP nor the broker sends after that."""
        return False

    def pause_writing(self) -> None:
        """Do not read the other side while this one takes nothing."""
        if self.other is not None and self.other.transport is not None:
            if not self.other.transport.is_closing():
                self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read the other side again."""
        if self.other is not None and self.other.transport is not None:
            if not self.other.transport.is_closing():
                self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end on, after all bytes."""
        self.transport = None
        other, self.other = self.other, None
        self._on_lost()
        if other is not None:
            other.other = None

    def close(self) -> None:
        """End this side when everything is written."""
        if self.transport is not None:
            self.transport.close()
