"""HTTP inside the broker: AMQP over WebSocket, and the handlers that packages have added.

aiohttp handles HTTP and WebSocket; everything inside a WebSocket is as over TCP. Before a client
has opened its connection it has the same limits as over TCP: `WebSocketLimits` counts time and
bytes. Requests for handlers have limits of their own, which begin again with each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ferrymq.aio.websocket_stream import WebSocketStream
from ferrymq_broker.http_responses import leave_out_server, serve
from ferrymq_broker.monitoring.http_log_filter import LOGGER
from ferrymq_broker.server.handler_requests import HandlerRequests
from ferrymq_broker.server.http_handlers import MountedHandler
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.tls_stream import TlsStream, mark_secured
from ferrymq_broker.server.websocket_limits import MOST_BODY, WebSocketLimits, never_through

if TYPE_CHECKING:
    from ferrymq_broker.security.tls_reload import TlsFiles
    from ferrymq_broker.server.server import BrokerServer

SUBPROTOCOL: Final = "amqp"
# The least maximum size of a WebSocket message in bytes: clients put several frames into one.
_MESSAGE: Final = 1024 * 1024
# Seconds for the client to answer a close, and for unfinished requests when the listener closes.
_CLOSE: Final = 5.0
_SHUTDOWN: Final = 1.0


class HttpService:
    """The HTTP of one listener. `origins` are those of web pages that may open a WebSocket. With
    `handlers` requests without a WebSocket go to the handlers of the server."""

    def __init__(
        self, server: BrokerServer, loopback: bool, origins: list[str], handlers: bool
    ) -> None:
        self._server = server
        self._loopback = loopback
        self._requests = HandlerRequests(server, loopback, origins)
        # The limits of the current clients, by their aiohttp protocols.
        self._clients: dict[object, WebSocketLimits] = {}
        application = web.Application(client_max_size=MOST_BODY)
        application.on_response_prepare.append(leave_out_server)
        if handlers:
            application.router.add_route("*", "/{path:.*}", self._serve_any)
        else:
            application.router.add_get("/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN,
            logger=LOGGER,
        )

    async def start(self) -> None:
        """Prepare for connections."""
        await self._runner.setup()

    async def close(self) -> None:
        """End all connections."""
        await self._runner.cleanup()

    def new_protocol(
        self, tls: TlsFiles | None, timeout: float, stream: TlsStream | None = None
    ) -> WebSocketLimits:
        """Return a protocol for a connection, which begins with TLS if `tls` is given. `timeout` is
        the seconds until the client has to have opened an AMQP connection, or sent a request.
        `stream` is TLS that is established already."""
        inner = serve(self._runner)
        limits = WebSocketLimits(inner, tls, timeout, self._forget)
        limits.stream = stream
        self._clients[inner] = limits
        return limits

    # -- inside --------------------------------------------------------------------------

    def _forget(self, websocket_limits: WebSocketLimits) -> None:
        self._clients.pop(websocket_limits.inner, None)
        self._server.connection_limits.leave(websocket_limits)

    async def _serve_any(self, request: web.Request) -> web.StreamResponse:
        """Handle a request for a WebSocket, or one for a handler."""
        if request.headers.get("Upgrade", "").lower() != "websocket":
            mounted = self._requests.find(request)
            if mounted is not None:
                return await self._handle(request, mounted)
        if request.method != "GET":
            return web.Response(status=405, headers={"Allow": "GET"})
        return await self._serve(request)

    async def _handle(self, request: web.Request, mounted: MountedHandler) -> web.Response:
        """Give a request to its handler, within the limits of its connection."""
        limits = self._clients.get(request.protocol)
        if limits is None:
            # The client disconnected in the meantime.
            return web.Response(status=400)
        refusal = self._requests.refusal(request)
        if refusal is not None:
            return refusal
        limits.begin_request()
        body = await request.read()
        limits.begin_work()
        answer = await self._requests.answer(request, mounted, body)
        # The property is False after `force_close`.
        if answer.keep_alive is not False:
            limits.end_request()
        return answer

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        """Handle a request for a WebSocket."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        websocket_limits = self._clients.get(request.protocol)
        if websocket_limits is None:
            # The client disconnected in the meantime.
            return web.Response(status=400)
        websocket_limits.begin_handshake()
        largest = max(_MESSAGE, 2 * self._server.config.limits.max_frame_size)
        websocket = web.WebSocketResponse(
            protocols=self._subprotocols(), max_msg_size=largest, compress=False, timeout=_CLOSE
        )
        await websocket.prepare(request)
        protocol = self._server.new_web_protocol(self._loopback, websocket_limits)
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
        refusal = self._requests.refusal_of_page(request, "websocket")
        if refusal is not None:
            return refusal
        if request.headers.get("Upgrade", "").lower() != "websocket":
            headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
            return web.Response(status=426, text="AMQP over WebSocket\n", headers=headers)
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        known = self._subprotocols()
        if not any(name.strip() in known for name in offered.split(",")):
            return web.Response(
                status=400, text=f"the WebSocket subprotocol must be {' or '.join(known)}\n"
            )
        return None

    def _subprotocols(self) -> tuple[str, ...]:
        return (SUBPROTOCOL, *self._server.tables.websocket_subprotocols)


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
            mark_secured(self.handler, stream)
        self._limits.is_through = self._has_opened

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the WebSocket has ended."""
        super().connection_lost(exc)
        self._limits.is_through = never_through

    def can_pass_socket(self) -> bool:
        """Return False: the bytes of the client are inside messages."""
        return False

    def relay_ended(self) -> None:
        """Handle that the client is gone."""
        super().relay_ended()
        self._limits.is_through = never_through

    def _has_opened(self) -> bool:
        return self._passed or self.handler.is_opened()


def _extra_info(transport: asyncio.BaseTransport | None) -> Callable[[str, object], object]:
    def extra_info(name: str, default: object = None) -> object:
        return default if transport is None else transport.get_extra_info(name, default)

    return extra_info
