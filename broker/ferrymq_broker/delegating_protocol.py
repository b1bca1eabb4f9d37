"""Between a transport and its protocol, for who has to look at what goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DelegatingProtocol(asyncio.Protocol):
    """Hands everything on to `inner`, from when `serve` is called.

    What it is for is in subclasses: they have `connection_made` and `data_received`, and their
    `gone` is called when the client is gone.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self.transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._served = False

    def serve(self, transport: asyncio.BaseTransport) -> None:
        """Let `inner` have the client."""
        self._served = True
        self.inner.connection_made(transport)

    def receive(self, data: bytes) -> None:
        """Let `inner` have data, if it has the client."""
        if self._served:
            self.inner.data_received(data)

    def expect(self, seconds: float) -> None:
        """Call `on_time` then; what was to be called before is not."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.on_time)

    def on_time(self) -> None:
        """The time is over."""
        self.drop()

    def drop(self) -> None:
        """Let the client go, without a word."""
        # Those of other event loops are no `asyncio.Transport`, and abort all the same.
        abort: Callable[[], None] | None = getattr(self.transport, "abort", None)
        if abort is not None:
            abort()

    def gone(self) -> None:
        """The client is gone."""

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self.inner.eof_received() if self._served else None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self.gone()
        if self._served:
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        if self._served:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._served:
            self.inner.resume_writing()
