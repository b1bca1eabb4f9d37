"""A WebSocket as a transport: to a protocol it looks like any other (RFC 6455).

The bytes of AMQP go in binary messages, cut wherever it suits: what is in one message means
nothing. Both ends use this one, whoever has made the WebSocket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

# What one message carries at most: less than any peer is known to refuse.
MESSAGE: Final = 65536
# By default a protocol pauses above this many bytes, and goes on below a quarter of it.
HIGH_WATER: Final = 65536

_UNSUPPORTED_DATA: Final = 1003


class WebSocket(Protocol):
    """What a stream needs of a WebSocket: those of aiohttp's server and client have it."""

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        ...

    async def send_bytes(self, data: bytes, compress: int | None = None) -> None:
        """Send one binary message, and wait while the peer does not read."""
        ...

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        """Close it in good order."""
        ...

    def exception(self) -> BaseException | None:
        """The error that ended it, if there was one."""
        ...

    async def receive(self, timeout: float | None = None) -> Any:
        """The next message."""
        ...


class WebSocketStream(asyncio.Transport):
    """Carries the bytes of `protocol` over `websocket`.

    `drop` ends what the WebSocket lies on at once; `extra_info` asks that what it knows.
    `run` does the work; it calls `connection_made` at its beginning and `connection_lost` at its
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
        # Whether there is something to do for the one who writes.
        self._wake = asyncio.Event()
        self._closing = False
        self._readable = asyncio.Event()
        self._readable.set()

    async def run(self) -> None:
        """Until the WebSocket is over, from whichever end."""
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
                # Without cycles all of it is freed now. The protocol has us for its transport, and
                # the frames of the error that aiohttp keeps have the WebSocket.
                self._protocol = asyncio.Protocol()
                kept = self._websocket.exception()
                while kept is not None:
                    kept.__traceback__ = None
                    kept = kept.__context__

    async def _read(self) -> None:
        # aiohttp is there, or there would be no WebSocket.
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
        """Send what is queued, and close when that is all there will be."""
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
            # It is over; the one who reads learns of it as well.
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
        """Queue bytes; what comes after `close` is dropped."""
        if self._closing or not data:
            return
        self._queue.append(bytes(data))
        self._queued += len(data)
        self._wake.set()
        if not self._paused and self._queued > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._closing = True
        self._wake.set()

    def abort(self) -> None:
        """End at once."""
        self._closing = True
        self._queue.clear()
        self._wake.set()
        self._drop()

    def is_closing(self) -> bool:
        """Whether it has been closed."""
        return self._closing

    def can_write_eof(self) -> bool:
        """No: a WebSocket ends in both directions at once."""
        return False

    def pause_reading(self) -> None:
        """Stop reading, so that the peer has to wait."""
        self._readable.clear()

    def resume_reading(self) -> None:
        """Go on."""
        self._readable.set()

    def is_reading(self) -> bool:
        """Whether the peer is being read from."""
        return self._readable.is_set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Above `high` bytes the protocol is to pause, at `low` it may go on."""
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The two, the lower first."""
        return (self._low, self._high)

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be sent."""
        return self._queued

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the data to another protocol from now on."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that the data goes to."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport below knows."""
        return self._extra_info(name, default)
