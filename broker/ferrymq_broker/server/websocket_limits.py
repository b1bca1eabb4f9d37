"""Limits of time and bytes for HTTP clients until they have opened an AMQP connection."""

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

# Bytes that a client may send before its connection is open: a request, and 64 KiB of AMQP.
MOST_EARLY_BYTES: Final = 2 * 65536
# The most bytes of the body of a request.
MOST_BODY: Final = 65536
# Seconds for a handler's response, and from it to the next request.
WORK: Final = 60.0
IDLE: Final = 75.0


class WebSocketLimits(DelegatingProtocol):
    """A protocol that hands everything on to `inner`, inside TLS if `tls` is given.

    `timeout` is the seconds for everything until `is_through` returns whether the client has opened
    its connection. `on_gone` is called when the client has disconnected. Requests that need no AMQP
    begin the time and the bytes anew.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        tls: TlsFiles | None,
        timeout: float,
        on_gone: Callable[[WebSocketLimits], object],
    ) -> None:
        super().__init__(inner)
        # The TLS of the connection, if any.
        self.stream: TlsStream | None = None
        self.is_through: Callable[[], bool] = never_through
        self._tls = tls
        self._timeout = timeout
        self._on_gone = on_gone
        # Whether there have been requests that need no AMQP.
        self._asked = False
        # Bytes received before the connection was open; negative after that.
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        self.transport = transport
        self.expect(self._timeout)
        if self._tls is None:
            self.serve(transport)
            return
        # uvloop's transports are not subclasses of asyncio's, but have the same methods.
        plain = cast(asyncio.Transport, transport)
        self.stream = TlsStream(
            self._tls.context, plain, self, self._on_secured, self._on_tls_failed
        )
        self.stream.begin()

    def data_received(self, data: bytes) -> None:
        """Handle decrypted bytes."""
        if self._bytes >= 0:
            self._bytes += len(data)
            if self.is_through():
                self._bytes = -1
            elif self._bytes > MOST_EARLY_BYTES:
                self.drop()
                return
        self.receive(data)

    def on_time(self) -> None:
        """Drop a client that has not opened its connection in time."""
        if not self.is_through():
            self.drop()

    def gone(self) -> None:
        """Report that the client has disconnected."""
        self._on_gone(self)

    # -- requests --------------------------------------------------------------------------

    def begin_request(self) -> None:
        """Handle that the fields of a request have been read: its body must follow in time."""
        self._expect_anew(self._timeout)

    def begin_work(self) -> None:
        """Handle that a request is complete: the response must be ready in time."""
        self._expect_anew(WORK)

    def end_request(self) -> None:
        """Handle that a response is ready: the next request must be sent in time."""
        self._expect_anew(IDLE)

    def begin_handshake(self) -> None:
        """Handle a request for a WebSocket, perhaps after other requests."""
        if self._asked:
            self._expect_anew(self._timeout)

    def _expect_anew(self, seconds: float) -> None:
        self._asked = True
        self._bytes = 0
        self.expect(seconds)

    # -- inside --------------------------------------------------------------------------

    def _on_secured(self) -> None:
        assert self.stream is not None
        self.serve(self.stream)

    def _on_tls_failed(self, reason: str) -> None:
        transport = self.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        log.warning("TLS failed", peer=name_of(peer), reason=reason)


def never_through() -> bool:
    """Return False: the client has not opened its connection."""
    return False
