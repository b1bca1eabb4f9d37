"""A protocol between a transport and another protocol, to watch or change the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DelegatingProtocol(asyncio.Protocol):
    """A protocol that passes everything to `inner` after `serve` was called.

    Subclasses define `connection_made` and `data_received`. `gone` is called when the client has
    disconnected.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self.transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._served = False

    def serve(self, transport: asyncio.BaseTransport) -> None:
        """Connect `inner` with the client."""
        self._served = True
        self.inner.connection_made(transport)

    def receive(self, data: bytes) -> None:
        """Pass data to `inner`, if `inner` is connected with the client."""
        if self._served:
            self.inner.data_received(data)

    def expect(self, seconds: float) -> None:
        """Call `on_time` after this number of seconds, instead of at the time of an earlier
        call."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.on_time)

    def on_time(self) -> None:
        """Handle that the time set by `expect` is over."""
        self.drop()

    def drop(self) -> None:
        """Disconnect the client at once, without an answer."""
        # The transports of other event loops are not `asyncio.Transport`, but have `abort` too.
        abort: Callable[[], None] | None = getattr(self.transport, "abort", None)
        if abort is not None:
            abort()

    def gone(self) -> None:
        """Handle that the client has disconnected; for subclasses."""

    def eof_received(self) -> bool | None:
        """Handle that the client sends no more."""
        return self.inner.eof_received() if self._served else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self.gone()
        if self._served:
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Handle that the client does not read as fast as `inner` writes."""
        if self._served:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Handle that the client has read most of what was written."""
        if self._served:
            self.inner.resume_writing()
