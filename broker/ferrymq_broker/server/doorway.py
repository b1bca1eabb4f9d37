"""What an HTTP client may have before it has become an AMQP client: time and bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from ferrymq_broker.journal import log
from ferrymq_broker.server.securing import TlsStream

if TYPE_CHECKING:
    from ferrymq_broker.security.reloading import TlsFiles

# What a client may send before its connection is open: a request, and AMQP's own 64 KiB.
MOST_EARLY_BYTES: Final = 2 * 65536


class Doorway(asyncio.Protocol):
    """Hands everything on to `inner`, inside TLS if there are files for it.

    `timeout` is in seconds, for everything until `is_through` says that the client has opened its
    connection. `on_gone` is called when the client is gone.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        tls: TlsFiles | None,
        timeout: float,
        on_gone: Callable[[Doorway], object],
    ) -> None:
        self.inner = inner
        # The TLS that the client is served in, if it is.
        self.stream: TlsStream | None = None
        self.is_through: Callable[[], bool] = _never
        self._tls = tls
        self._timeout = timeout
        self._on_gone = on_gone
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Bytes that have come early; negative when they count no more.
        self._bytes = 0
        self._served = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        # uvloop's transports are not asyncio's, but do the same.
        self._transport = plain = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(self._timeout, self._look)
        if self._tls is None:
            self._serve(transport)
            return
        self.stream = TlsStream(
            self._tls.context, plain, self, self._on_secured, self._on_tls_failed
        )
        self.stream.begin()

    def data_received(self, data: bytes) -> None:
        """Bytes, decrypted."""
        if self._bytes >= 0:
            self._bytes += len(data)
            if self.is_through():
                self._bytes = -1
            elif self._bytes > MOST_EARLY_BYTES:
                self.drop()
                return
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self.inner.eof_received() if self._served else None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_gone(self)
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

    def drop(self) -> None:
        """Let the client go, without a word."""
        if self._transport is not None:
            self._transport.abort()

    # -- inside --------------------------------------------------------------------------

    def _serve(self, transport: asyncio.BaseTransport) -> None:
        self._served = True
        self.inner.connection_made(transport)

    def _on_secured(self) -> None:
        assert self.stream is not None
        self._serve(self.stream)

    def _on_tls_failed(self, reason: str) -> None:
        log.warning("TLS failed", peer=_peer(self._transport), reason=reason)

    def _look(self) -> None:
        """The time is over."""
        if not self.is_through():
            self.drop()


def _never() -> bool:
    return False


def _peer(transport: asyncio.BaseTransport | None) -> str:
    name = None if transport is None else transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name)
