"""A WebSocket as an asyncio transport (RFC 6455).

The bytes of AMQP go in binary messages; message boundaries have no meaning. Client and server use
the same class.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

# Bytes in one message, at most: fewer than any known peer refuses.
MESSAGE: Final = 65536
# By default a protocol pauses above this many bytes, and resumes below a quarter of it.
HIGH_WATER: Final = 65536

_UNSUPPORTED_DATA: Final = 1003


class WebSocket(Protocol):
    """Interface that a stream needs of a WebSocket: those of aiohttp's server and client have
    it."""

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        ...

    async def send_bytes(self, data: bytes, compress: int | None = None) -> None:
        """Send one binary message, and wait while the peer does not read."""
        ...

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        """Close the WebSocket with a close frame."""
        ...

    def exception(self) -> BaseException | None:
        """Return the error that ended the WebSocket, if there was one."""
        ...

    async def receive(self, timeout: float | None = None) -> Any:
        """Return the next message."""
        ...


class WebSocketStream(asyncio.Transport):
    """Transport that carries the bytes of `protocol` over `websocket`.

    `drop` closes the connection below the WebSocket at once; `extra_info` reads its properties.
    `run` does the work: it calls `connection_made` at its beginning and `connection_lost` at its
    end, and returns when the WebSocket is over.
    """

    def __init__(
        self,
        websocket: WebSocket,
        protocol: asyncio.Protocol,
        drop: Callable[[], object],
        extra_info: Callable[[str, Any], Any],
    ) -> None:
        super().__init__()
        self._websocket = websocket
        self._protocol = protocol
        self._drop = drop
        self._extra_info = extra_info
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._high = HIGH_WATER
        self._low = HIGH_WATER // 4
        self._paused = False
        # Set when the writing task has work.
        self._wake = asyncio.Event()
        self._closing = False
        self._readable = asyncio.Event()
        self._readable.set()

    async def run(self) -> None:
        """Run until either end has closed the WebSocket."""
        self._protocol.connection_made(self)
        writer = asyncio.ensure_future(self._write())
        cause: Exception | None = None
        try:
            await self._read()
        except ConnectionError as error:
            cause = error
        finally:
            self._closing = True
            self._wake.set()
            try:
                await writer
            finally:
                self._protocol.connection_lost(cause)
                # Without these reference cycles all objects are freed now. The protocol refers to
                # this transport, and the frames of the error that aiohttp keeps refer to the
                # WebSocket.
                self._protocol = asyncio.Protocol()
                kept = self._websocket.exception()
                while kept is not None:
                    kept.__traceback__ = None
                    kept = kept.__context__

    async def _read(self) -> None:
        # aiohttp is installed, or there would be no WebSocket.
        from aiohttp import WSMsgType

        while True:
            await self._readable.wait()
            message = await self._websocket.receive()
            if message.type is WSMsgType.BINARY:
                self._protocol.data_received(message.data)
            elif message.type is WSMsgType.TEXT:
                await self._websocket.close(
                    code=_UNSUPPORTED_DATA, message=b"AMQP goes in binary messages"
                )
                return
            elif message.type in (
                WSMsgType.CLOSE,
                WSMsgType.CLOSING,
                WSMsgType.CLOSED,
                WSMsgType.ERROR,
            ):
                return

    async def _write(self) -> None:
        """Send the queued data, and close when no more can come."""
        try:
            while True:
                while self._queue:
                    data = self._next_message()
                    await self._websocket.send_bytes(data)
                    self._sent(len(data))
                if self._closing:
                    break
                await self._wake.wait()
                self._wake.clear()
            if not self._websocket.closed:
                await self._websocket.close()
        except (ConnectionError, RuntimeError):
            # The WebSocket is over; the reading task notices it too.
            self._queue.clear()
            self.abort()

    def _next_message(self) -> bytes:
        queue = self._queue
        pieces = [queue.popleft()]
        size = len(pieces[0])
        while queue and size + len(queue[0]) <= MESSAGE:
            piece = queue.popleft()
            pieces.append(piece)
            size += len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if size > MESSAGE:
            queue.appendleft(data[MESSAGE:])
            data = data[:MESSAGE]
        return data

    def _sent(self, count: int) -> None:
        self._queued -= count
        if self._paused and self._queued <= self._low:
            self._paused = False
            self._protocol.resume_writing()

    # -- as a transport ------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes; data after `close` is dropped."""
        if self._closing or not data:
            return
        self._queue.append(bytes(data))
        self._queued += len(data)
        self._wake.set()
        if not self._paused and self._queued > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Send the queued data, then close."""
        self._closing = True
        self._wake.set()

    def abort(self) -> None:
        """Close at once, without sending the queued data."""
        self._closing = True
        self._queue.clear()
        self._wake.set()
        self._drop()

    def is_closing(self) -> bool:
        """Return whether the stream has been closed."""
        return self._closing

    def can_write_eof(self) -> bool:
        """Return False: a WebSocket ends in both directions at once."""
        return False

    def pause_reading(self) -> None:
        """Stop reading, so that the peer must wait."""
        self._readable.clear()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._readable.set()

    def is_reading(self) -> bool:
        """Return whether the stream reads from the peer."""
        return self._readable.is_set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits: the protocol pauses above `high` bytes and resumes at `low`."""
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return both limits, the lower first."""
        return (self._low, self._high)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._queued

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the received data to another protocol."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that receives the data."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a property of the transport below."""
        return self._extra_info(name, default)
