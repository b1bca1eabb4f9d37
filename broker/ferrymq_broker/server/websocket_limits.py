"""What an HTTP client may have before it has become an AMQP client: time and bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from ferrymq_broker.delegating_protocol import DelegatingProtocol
from ferrymq_broker.event_log import log
from ferrymq_broker.server.peer_address import name_of
from ferrymq_broker.server.tls_stream import TlsStream

if TYPE_CHECKING:
    from ferrymq_broker.security.tls_reload import TlsFiles

# What a client may send before its connection is open: a request, and AMQP's own 64 KiB.
MOST_EARLY_BYTES: Final = 2 * 65536


class WebSocketLimits(DelegatingProtocol):
    """Hands everything on to `inner`, inside TLS if there are files for it.

    `timeout` is in seconds, for everything until `is_through` says that the client has opened its
    connection. `on_gone` is called when the client is gone.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        tls: TlsFiles | None,
        timeout: float,
        on_gone: Callable[[WebSocketLimits], object],
    ) -> None:
        super().__init__(inner)
        # The TLS that the client is served in, if it is.
        self.stream: TlsStream | None = None
        self.is_through: Callable[[], bool] = never_through
        self._tls = tls
        self._timeout = timeout
        self._on_gone = on_gone
        # Bytes that have come early; negative when they count no more.
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = transport
        self.expect(self._timeout)
        if self._tls is None:
            self.serve(transport)
            return
        # uvloop's transports are not asyncio's, but do the same.
        plain = cast(asyncio.Transport, transport)
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
        self.receive(data)

    def on_time(self) -> None:
        """It may have taken no longer to open the connection."""
        if not self.is_through():
            self.drop()

    def gone(self) -> None:
        """Its place is free."""
        self._on_gone(self)

    # -- inside --------------------------------------------------------------------------

    def _on_secured(self) -> None:
        assert self.stream is not None
        self.serve(self.stream)

    def _on_tls_failed(self, reason: str) -> None:
        transport = self.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        log.warning("TLS failed", peer=name_of(peer), reason=reason)


def never_through() -> bool:
    """Say of a client that it has not opened its connection."""
    return False
