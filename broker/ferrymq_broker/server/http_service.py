"""HTTP inside the broker: AMQP over WebSocket, and the handlers that packages have added.

aiohttp handles HTTP and WebSocket; everything inside a WebSocket is as over TCP. Before a client
has opened its connection it has the same limits as over TCP: `WebSocketLimits` counts time and
bytes. Requests for handlers have limits of their own, which begin again with each request.

A browser lets any page open a WebSocket to any address, even to a broker on the same machine, and
sends the origin of the page. Such clients are accepted only from listed origins, and from the
broker's own. Other clients send no origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ferrymq.aio.websocket_stream import WebSocketStream
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.event_log import log
from ferrymq_broker.http_login import log_in
from ferrymq_broker.http_responses import leave_out_server, serve
from ferrymq_broker.monitoring.http_log_filter import LOGGER
from ferrymq_broker.server.http_handlers import (
    HttpHandler,
    HttpRequest,
    HttpResponse,
    HttpSteps,
    MountedHandler,
)
from ferrymq_broker.server.peer_address import host_of, name_of
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.tls_stream import TlsStream, mark_secured
from ferrymq_broker.server.websocket_limits import MOST_BODY, WebSocketLimits, never_through
from ferrymq_broker.store.changes import StableCall

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
        self._origins = frozenset(origin.lower() for origin in origins)
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
            server = self._server
            space = server.broker.space_for(_hostname(request))
            mounted = None if space is None else server.http_handlers.find(space.name, request.path)
            if mounted is not None:
                return await self._handle(request, mounted)
        if request.method != "GET":
            return web.Response(status=405, headers={"Allow": "GET"})
        return await self._serve(request)

    async def _handle(self, request: web.Request, mounted: MountedHandler) -> web.Response:
        """Give a request to its handler, and return the response when its changes are on disk."""
        limits = self._clients.get(request.protocol)
        if limits is None:
            # The client disconnected in the meantime.
            return web.Response(status=400)
        if self._server.failure is not None:
            return _closing(503, "the store has failed")
        refusal = self._refusal_of_page(request, "request")
        if refusal is not None:
            return refusal
        if "Content-Encoding" in request.headers:
            return _closing(415, "the content must not be encoded")
        limits.begin_request()
        body = await request.read()
        limits.begin_work()
        transport = self._transport_of(request)
        identity = None
        if mounted.login:
            authenticator = self._server.admission.authenticator_for(transport)
            header = request.headers.get("Authorization")
            identity = await log_in(authenticator, header, transport)
        try:
            response = await self._run(
                mounted.handle,
                HttpRequest(
                    request.method,
                    request.path,
                    _first_values(request),
                    {name.lower(): value for name, value in request.headers.items()},
                    body,
                    f"{request.scheme}://{request.host}",
                    transport,
                    request.rel_url.raw_path,
                    identity,
                ),
            )
        except Exception:
            log.exception("internal error", peer=request.remote)
            return _closing(500, "the broker made a mistake")
        answer = web.Response(
            status=response.status, body=response.body or None, headers=response.headers
        )
        if response.close:
            answer.force_close()
        else:
            limits.end_request()
        return answer

    async def _run(self, handler: HttpHandler, request: HttpRequest) -> HttpResponse:
        """Call a handler in a pass of the broker, and wait until its changes are on disk. Other
        clients are served between the steps of long work."""
        answer = await self._in_pass(partial(handler, request))
        while not isinstance(answer, HttpResponse):
            await asyncio.sleep(0)
            answer = await self._in_pass(partial(_step, answer))
        return answer

    async def _in_pass(
        self, work: Callable[[], HttpResponse | HttpSteps]
    ) -> HttpResponse | HttpSteps:
        server = self._server
        broker = server.broker
        changes = broker.agenda.changes
        broker.begin_pass(server.clock.now())
        written = asyncio.Event()
        try:
            before = changes.total
            response = work()
            if changes.total != before:
                changes.watch(StableCall(written.set))
            else:
                written.set()
        finally:
            broker.finish_pass()
        await written.wait()
        return response

    def _transport_of(self, request: web.Request) -> ClientTransport:
        transport = request.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        return ClientTransport(name_of(peer), host_of(peer), self._loopback, request.secure)

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
        refusal = self._refusal_of_page(request, "websocket")
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

    def _refusal_of_page(self, request: web.Request, what: str) -> web.Response | None:
        """Return the answer to a page of an origin that is not listed; None for other clients."""
        origin = request.headers.get("Origin")
        if origin is None or self._lets_in(origin) or _is_own(origin, request):
            return None
        log.warning(f"{what} refused", peer=request.remote, origin=origin[:200])
        return web.Response(status=403, text="pages of this origin are not allowed\n")

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
            mark_secured(self.handler, stream)
        self._limits.is_through = self._has_opened

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle that the WebSocket has ended."""
        super().connection_lost(exc)
        self._limits.is_through = never_through

    def _has_opened(self) -> bool:
        return self.handler.is_opened()


def _step(steps: HttpSteps) -> HttpResponse | HttpSteps:
    """Do one step; return the response if it was the last one."""
    try:
        next(steps)
    except StopIteration as end:
        response: HttpResponse = end.value
        return response
    return steps


def _is_own(origin: str, request: web.Request) -> bool:
    """Return whether an origin is that of the request itself, which some clients send.

    A page from elsewhere cannot have it: over TLS the browser has checked the certificate, and the
    name ``localhost`` and the numbers of addresses cannot be made to lead to another machine.
    """
    if origin.lower() != f"{request.scheme}://{request.host}".lower():
        return False
    name = _hostname(request).lower()
    return request.secure or name == "localhost" or _is_numeric(name)


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _hostname(request: web.Request) -> str:
    """Return the host of a request, without a port; empty if it names none."""
    host = request.headers.get("Host", "")
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _first_values(request: web.Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query.items():
        found.setdefault(name, value)
    return found


def _closing(status: int, text: str) -> web.Response:
    """Return a response after which the connection ends."""
    answer = web.Response(status=status, text=f"{text}\n")
    answer.force_close()
    return answer


def _extra_info(transport: asyncio.BaseTransport | None) -> Callable[[str, object], object]:
    def extra_info(name: str, default: object = None) -> object:
        return default if transport is None else transport.get_extra_info(name, default)

    return extra_info
