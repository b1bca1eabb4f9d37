"""Listeners whose connections say by their first bytes which protocol they have.

TLS begins with the byte 0x16, HTTP with the name of a method. Everything else is given to AMQP,
which answers unknown bytes with its own header. Inside TLS the first bytes tell AMQP and HTTP apart
again. At most eight bytes are needed, and the time for them counts as time of the handshake.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.event_log import log
from ferrymq_broker.server.acceptor import Acceptor
from ferrymq_broker.server.http_service import HttpService
from ferrymq_broker.server.peer_address import name_of
from ferrymq_broker.server.tls_stream import TlsStream, mark_secured

if TYPE_CHECKING:
    from ferrymq_broker.security.tls_reload import TlsFiles
    from ferrymq_broker.server.server import BrokerServer

Detected: TypeAlias = Literal["amqp", "http", "tls"]

# Connections that the kernel completes before the server accepts them.
BACKLOG: Final = 1024
# The type of the first record of TLS (RFC 8446 §5.1).
_HANDSHAKE: Final = 22
# The beginnings of requests (RFC 9110 §9).
_METHODS: Final = tuple(
    f"{method} ".encode()
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE")
)


def detect(data: bytes) -> Detected | None:
    """Return the protocol that begins with these bytes; None if more bytes are needed. What is
    neither TLS nor HTTP is for AMQP."""
    if not data:
        return None
    if data[0] == _HANDSHAKE:
        return "tls"
    for method in _METHODS:
        if data.startswith(method):
            return "http"
        if method.startswith(data):
            return None
    return "amqp"


async def start_any(server: BrokerServer, listener: Listener) -> AnyListener:
    """Listen for all protocols. Raises `OSError` if it cannot listen on the address."""
    running = AnyListener(server, listener)
    await running.start()
    return running


class AnyListener:
    """A listener for AMQP, HTTP and WebSocket, with TLS if a certificate is configured."""

    def __init__(self, server: BrokerServer, listener: Listener) -> None:
        self.server = server
        self._listener = listener
        self._address = address = listener.address
        self.loopback: bool = address.is_loopback
        tls = listener.tls_settings(server.config.tls)
        self.tls: TlsFiles | None = None if tls is None else server.tls.files_for(listener.tls)
        self.http = HttpService(server, self.loopback, listener.origins, handlers=True)
        # The connections whose protocol is not known yet.
        self.unknown: set[DetectingProtocol] = set()
        self.addresses: list[ListenAddress] = []
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Begin to listen. Raises `OSError`."""
        await self.http.start()
        address = self._address
        sockets = await self.server.listen(self._listener, BACKLOG)
        self._acceptor = Acceptor(
            sockets, lambda: DetectingProtocol(self), self.server.connection_limits
        )
        self.addresses = self._acceptor.addresses(address)

    def close(self) -> None:
        """Accept no more connections; existing ones stay, if their protocol is known."""
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in list(self.unknown):
            connection.drop()

    async def wait_closed(self) -> None:
        """Wait until the listener is closed and its connections have ended."""
        if self._acceptor is not None:
            await self._acceptor.wait_closed()
        await self.http.close()


class DetectingProtocol(asyncio.Protocol):
    """A new connection of a listener, until its first bytes say which protocol takes it over."""

    def __init__(self, listener: AnyListener) -> None:
        self._listener = listener
        self._server = listener.server
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._stream: TlsStream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        # uvloop's transports are not subclasses of asyncio's, but have the same methods.
        self._transport = cast(asyncio.Transport, transport)
        self._peer = name_of(transport.get_extra_info("peername"))
        self._began = self._server.clock.now()
        self._timer = asyncio.get_running_loop().call_later(
            self._server.config.limits.handshake_timeout, self.drop
        )
        self._listener.unknown.add(self)

    def data_received(self, data: bytes) -> None:
        """Handle the first bytes, of the connection or inside TLS."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._data += data
        found = detect(self._data)
        if found is None:
            return
        data, self._data = self._data, b""
        if found == "tls" and self._listener.tls is not None and self._stream is None:
            self._begin_tls(self._listener.tls, transport, data)
        elif found == "http":
            self._become_http(transport, data)
        else:
            self._become_amqp(transport, data)

    def eof_received(self) -> bool:
        """Handle that the client sends no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the transport has ended."""
        self._finish()
        self._server.connection_limits.leave(self)

    def drop(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- inside --------------------------------------------------------------------------

    def _begin_tls(self, tls: TlsFiles, transport: asyncio.Transport, data: bytes) -> None:
        self._stream = TlsStream(tls.context, transport, self, lambda: None, self._on_tls_failed)
        self._transport = self._stream
        self._stream.begin(data)

    def _on_tls_failed(self, reason: str) -> None:
        log.warning("TLS failed", peer=self._peer, reason=reason)

    def _become_amqp(self, transport: asyncio.Transport, data: bytes) -> None:
        protocol = self._server.new_protocol(self._listener.loopback, None, self._began)
        self._hand_over(transport, protocol)
        if self._stream is not None:
            mark_secured(protocol.handler, self._stream)
        protocol.data_received(data)

    def _become_http(self, transport: asyncio.Transport, data: bytes) -> None:
        spent = self._server.clock.now() - self._began
        left = max(0.0, self._server.config.limits.handshake_timeout - spent)
        protocol = self._listener.http.new_protocol(None, left, self._stream)
        self._hand_over(transport, protocol)
        protocol.data_received(data)

    def _hand_over(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        """Give the connection to another protocol, which takes the place of this one."""
        self._finish()
        self._server.connection_limits.hand_over(self, protocol)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._listener.unknown.discard(self)
        # Break the reference cycle, so that the connection is freed now.
        self._transport = None
