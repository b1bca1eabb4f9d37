"""Listeners for AMQP over WebSocket, for clients whose firewall allows only HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.server.acceptor import Acceptor
from ferrymq_broker.server.http_service import HttpService
from ferrymq_broker.server.websocket_limits import WebSocketLimits

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer

# Connections that the kernel completes before the server accepts them.
BACKLOG: Final = 1024


async def start_websocket(server: BrokerServer, listener: Listener) -> WebSocketListener:
    """Listen for WebSocket. Raises `OSError` if it cannot listen on the address."""
    running = WebSocketListener(server, listener)
    await running.start()
    return running


class WebSocketListener:
    """A listener for AMQP over WebSocket, with or without TLS."""

    def __init__(self, server: BrokerServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener
        self._address = address = listener.address
        self._tls = server.tls.files_for(listener.tls) if address.is_secure else None
        self._service = HttpService(server, address.is_loopback, listener.origins, handlers=False)
        self.addresses: list[ListenAddress] = []
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Begin to listen. Raises `OSError`."""
        await self._service.start()
        address = self._address
        sockets = await self._server.listen(self._listener, BACKLOG)
        self._acceptor = Acceptor(sockets, self._make_protocol, self._server.connection_limits)
        self.addresses = self._acceptor.addresses(address)

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        if self._acceptor is not None:
            self._acceptor.close()

    async def wait_closed(self) -> None:
        """Wait until the listener is closed and its connections have ended."""
        if self._acceptor is not None:
            await self._acceptor.wait_closed()
        await self._service.close()

    def _make_protocol(self) -> WebSocketLimits:
        return self._service.new_protocol(self._tls, self._server.config.limits.handshake_timeout)
