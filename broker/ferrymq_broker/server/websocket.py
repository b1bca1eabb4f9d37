"""AMQP over WebSocket, for clients whose firewall allows only HTTP.

aiohttp handles HTTP and WebSocket; everything inside is as over TCP. Before a client has opened its
connection it has the same limits as over TCP: `WebSocketLimits` counts time and bytes.

A browser lets any page open a WebSocket to any address, even to a broker on the same machine, and
sends the origin of the page. Such clients are accepted only from listed origins. Other clients send
no origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ferrymq.aio.websocket_stream import WebSocketStream
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.event_log import log
from ferrymq_broker.http_responses import leave_out_server, serve
from ferrymq_broker.monitoring.http_log_filter import LOGGER
from ferrymq_broker.server.acceptor import Acceptor, bind
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.tls_stream import mark_secured
from ferrymq_broker.server.websocket_limits import WebSocketLimits, never_through

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer

SUBPROTOCOL: Final = "amqp"
# Connections that the kernel completes before the server accepts them.
BACKLOG: Final = 1024
# The least maximum size of a WebSocket message in bytes: clients put several frames into one.
_MESSAGE: Final = 1024 * 1024
# Seconds for the client to answer a close, and for unfinished requests when the listener closes.
_CLOSE: Final = 5.0
_SHUTDOWN: Final = 1.0


async def start_websocket(server: BrokerServer, listener: Listener) -> WebSocketListener:
    """Listen for WebSocket. Raises `OSError` if it cannot listen on the address."""
    running = WebSocketListener(server, listener)
    await running.start()
    return running


class WebSocketListener:
    """A listener for AMQP over WebSocket, with or without TLS."""

    def __init__(self, server: BrokerServer, listener: Listener) -> None:
        self._server = server
        self._address = listener.address
        self._origins = frozenset(origin.lower() for origin in listener.origins)
        self._tls = server.tls.files_for(listener.tls) if self._address.is_secure else None
        # The limits of the current clients, by their aiohttp protocols.
        self._clients: dict[object, WebSocketLimits] = {}
        self.addresses: list[ListenAddress] = []
        self._acceptor: Acceptor | None = None
        application = web.Application()
        application.on_response_prepare.append(leave_out_server)
        application.router.add_get("/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN,
            logger=LOGGER,
        )

    async def start(self) -> None:
        """Begin to listen. Raises `OSError`."""
        await self._runner.setup()
        address = self._address
        sockets = await bind(address.host, address.port, BACKLOG)
        self._acceptor = Acceptor(
            sockets, self._make_websocket_limits, self._server.connection_limits
        )
        self.addresses = self._acceptor.addresses(address)

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        if self._acceptor is not None:
            self._acceptor.close()

    async def wait_closed(self) -> None:
        """Wait until the listener is closed and its connections have ended."""
        if self._acceptor is not None:
            await self._acceptor.wait_closed()
        await self._runner.cleanup()

    # -- inside --------------------------------------------------------------------------

    def _make_websocket_limits(self) -> WebSocketLimits:
        inner = serve(self._runner)
        timeout = self._server.config.limits.handshake_timeout
        websocket_limits = WebSocketLimits(inner, self._tls, timeout, self._forget)
        self._clients[inner] = websocket_limits
        return websocket_limits

    def _forget(self, websocket_limits: WebSocketLimits) -> None:
        self._clients.pop(websocket_limits.inner, None)
        self._server.connection_limits.leave(websocket_limits)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        """Handle a request for a WebSocket."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        websocket_limits = self._clients.get(request.protocol)
        if websocket_limits is None:
            # The client disconnected in the meantime.
            return web.Response(status=400)
        largest = max(_MESSAGE, 2 * self._server.config.limits.max_frame_size)
        websocket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,), max_msg_size=largest, compress=False, timeout=_CLOSE
        )
        await websocket.prepare(request)
        protocol = WebProtocol(self._server, self._address.is_loopback, websocket_limits)
        stream = WebSocketStream(
            websocket, protocol, websocket_limits.drop, _extra_info(request.transport)
        )
        await stream.run()
        return websocket

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that is refused; None if it is accepted."""
        path = request.path.rstrip("/").lower()
        if path and path not in self._server.tables.websocket_paths:
            return web.Response(status=404, text="AMQP is served at /\n")
        origin = request.headers.get("Origin")
        if origin is not None and not self._lets_in(origin):
            log.warning("websocket refused", peer=request.remote, origin=origin[:200])
            return web.Response(status=403, text="pages of this origin are not allowed\n")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
            return web.Response(status=426, text="AMQP over WebSocket\n", headers=headers)
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if SUBPROTOCOL not in [name.strip() for name in offered.split(",")]:
            return web.Response(
                status=400, text=f"the WebSocket subprotocol must be {SUBPROTOCOL}\n"
            )
        return None

    def _lets_in(self, origin: str) -> bool:
        return "*" in self._origins or origin.lower() in self._origins


class WebProtocol(AmqpProtocol):
    """A connection inside a WebSocket, within `websocket_limits`."""

    def __init__(
        self, server: BrokerServer, loopback: bool, websocket_limits: WebSocketLimits
    ) -> None:
        super().__init__(server, loopback)
        self._limits = websocket_limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new WebSocket."""
        super().connection_made(transport)
        stream = self._limits.stream
        if stream is not None:
            mark_secured(self.handler, stream.certificate())
        self._limits.is_through = self._has_opened

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the WebSocket has ended."""
        super().connection_lost(exc)
        self._limits.is_through = never_through

    def _has_opened(self) -> bool:
        return self.handler.connection.opened


def _extra_info(transport: asyncio.BaseTransport | None) -> Callable[[str, object], object]:
    def extra_info(name: str, default: object = None) -> object:
        return default if transport is None else transport.get_extra_info(name, default)

    return extra_info
