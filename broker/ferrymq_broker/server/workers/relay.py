"""A relay of bytes between the client of a connection with TLS or in a WebSocket, and the worker to
which the connection has been passed."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Any, Final

# Bytes that one side has not taken yet, above which the other one is not read.
HIGH_WATER: Final = 256 * 1024
# Seconds for a client to read the last bytes after the worker has ended the connection.
LINGER: Final = 5.0
# Seconds between two looks whether the worker has ended a connection whose client does not read.
_WATCH: Final = 1.0


class ClientRelay:
    """A relay between `client`, whose protocol it becomes at once, and a socket to the other
    worker.

    `early` are bytes of the client that were read before. `on_end` is called once, when the
    transport of the client has ended.
    """

    def __init__(
        self, client: asyncio.Transport, early: bytes, on_end: Callable[[ClientRelay], object]
    ) -> None:
        self._client = _End(self._client_lost, self._watch)
        self._worker = _End(self._worker_lost)
        self._client.other, self._worker.other = self._worker, self._client
        self._on_end = on_end
        # The timer for the next look, later that for the end of a client that does not read.
        self._timer: asyncio.TimerHandle | None = None
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
        if self._timer is not None:
            self._timer.cancel()
        self._worker.close()
        self._on_end(self)

    def _worker_lost(self) -> None:
        self._client.close()
        self._linger()

    def _watch(self) -> None:
        """Look at times whether the worker has ended the connection. The event loop does not tell,
        because nothing is read from the worker while the client takes nothing."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WATCH, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._client.is_full:
            if self._worker.has_hung_up():
                self._linger()
            else:
                self._watch()

    def _linger(self) -> None:
        """Drop the client, if it does not read the last bytes soon."""
        if self._timer is not None:
            self._timer.cancel()
        client = self._client.transport
        if client is not None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, client.abort)


class _End(asyncio.Protocol):
    """A side of a relay: what it gets is written to the `other`. `transport` is None before it is
    connected, and after its end. `is_full` is whether it takes nothing at the moment. `on_lost` is
    called at its end, `on_full` when that begins.
    """

    def __init__(
        self, on_lost: Callable[[], object], on_full: Callable[[], object] | None = None
    ) -> None:
        self.transport: Any = None
        self.other: _End | None = None
        self.is_full = False
        self._on_lost = on_lost
        self._on_full = on_full
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

    def has_hung_up(self) -> bool:
        """Return whether the peer has closed its end of the socket, which may have bytes yet."""
        if self.transport is None:
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

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
        if self._on_full is not None:
            self._on_full()

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
