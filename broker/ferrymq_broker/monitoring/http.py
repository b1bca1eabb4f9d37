"""The HTTP listener for operators: ``/livez``, ``/readyz``, ``/metrics``, and the handlers of the
broker, such as that of management.

It has an address of its own, apart from the AMQP listeners. It runs in the broker's event loop, so
an answer of ``/livez`` shows that the event loop runs. `MetricsAuth` decides which clients get
metrics.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ferrymq_broker.broker import Broker
from ferrymq_broker.capture.service import CaptureService
from ferrymq_broker.http_responses import leave_out_server, serve
from ferrymq_broker.monitoring.connection_metrics import ConnectionMetrics
from ferrymq_broker.monitoring.http_limits import HttpLimits
from ferrymq_broker.monitoring.http_log_filter import LOGGER
from ferrymq_broker.monitoring.metrics_auth import MetricsAuth
from ferrymq_broker.monitoring.metrics_registry import MetricsRegistry, by_node
from ferrymq_broker.monitoring.node_metrics import NodeMetrics
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.monitoring.store_stats import StoreStats
from ferrymq_broker.monitoring.worker_metrics import CONNECTIONS, NODES, SUMS, AllWorkers

# Answers requests for other paths.
Others: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

# The most bytes of the body of a request.
MOST_BODY: Final = 49152
# The seconds that unfinished requests get when the listener closes.
_SHUTDOWN: Final = 1.0
# The number of requests for metrics that are handled at a time; the others wait.
_AT_WORK: Final = 2
# The seconds a client has for the TLS handshake.
_HANDSHAKE: Final = 10.0


class MonitoringServer:
    """An HTTP server on `url`, ``http://HOST:PORT``, or ``https:`` with an `ssl_context`; port 0 is
    any free port.

    Each request for ``/readyz`` calls `readiness`. There are no metrics before `watch`, and none
    for clients that `metrics_auth` refuses. Other requests go to `others` after `watch`.

    With `workers` the metrics are those of all workers of the broker, and `readiness_of_others`
    returns whether the others are ready, and their alarms.

    At most `connections` connections are open at a time. `start` raises `OSError` if it cannot
    listen on the address.
    """

    def __init__(
        self,
        broker: Broker,
        url: str,
        readiness: Callable[[], Readiness],
        *,
        metrics_auth: MetricsAuth | None = None,
        others: Others | None = None,
        connections: int = 100,
        ssl_context: ssl.SSLContext | None = None,
        workers: AllWorkers | None = None,
        readiness_of_others: Callable[[], Awaitable[tuple[Readiness, set[str]]]] | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 0
        self._broker = broker
        self._readiness = readiness
        # The metrics without those of each node; they are exported by OTLP, too.
        self.metrics: MetricsRegistry = MetricsRegistry(broker)
        # The metrics by address, except those of nodes.
        self._by_node = CollectorRegistry()
        self._at_work = asyncio.Semaphore(_AT_WORK)
        self._watching = False
        self._metrics_auth = metrics_auth
        self._others = others
        self._workers = workers
        self._readiness_of_others = readiness_of_others
        self._ssl = ssl_context
        self._limits = HttpLimits(connections)
        self._listener: asyncio.Server | None = None
        application = web.Application(middlewares=[self._within_limits], client_max_size=MOST_BODY)
        application.on_response_prepare.append(_headers)
        application.on_response_prepare.append(leave_out_server)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/metrics/nodes", self._metrics_by_node)
        application.router.add_get("/metrics/connections", self._metrics_by_connection)
        application.router.add_route("*", "/{path:.*}", self._serve_other)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN,
            logger=LOGGER,
        )

    @property
    def url(self) -> str:
        """The URL on which it listens, after `start`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._ssl is None else 'https'}://{host}:{self._port}"

    def watch(self, store: StoreStats | None = None, capture: CaptureService | None = None) -> None:
        """Serve metrics from now on, with those of `store` and `capture`. The broker must have all
        its virtual hosts."""
        self.metrics.watch(store, capture)
        self._by_node = by_node(capture)
        self._watching = True

    async def start(self) -> None:
        """Begin to listen."""
        await self._runner.setup()
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: self._limits.wrap(serve(self._runner)),
            self._host,
            self._port,
            backlog=128,
            ssl=self._ssl,
            ssl_handshake_timeout=None if self._ssl is None else _HANDSHAKE,
        )
        self._port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    @web.middleware
    async def _within_limits(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self._limits.begin(request.protocol)
        try:
            return await handler(request)
        finally:
            self._limits.end(request.protocol)

    async def _livez(self, request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        ready, reason = self._readiness()
        alarms = set(self._broker.alarms)
        if ready and self._readiness_of_others is not None:
            (ready, reason), theirs = await self._readiness_of_others()
            alarms |= theirs
        body = {"ready": ready, "reason": reason, "alarms": sorted(alarms)}
        return web.json_response(body, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        workers = self._workers
        async with self._at_work:
            if workers is None:
                body = encode(await self.metrics.read())
            else:
                asked = workers.ask(SUMS)
                body = encode(await workers.merged(await self.metrics.read(), asked))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _metrics_by_node(self, request: web.Request) -> web.StreamResponse:
        figures = NodeMetrics(self._prefix)
        return await self._metrics_in_pieces(request, NODES, figures, self._by_node)

    async def _metrics_by_connection(self, request: web.Request) -> web.StreamResponse:
        figures = ConnectionMetrics(self._prefix)
        return await self._metrics_in_pieces(request, CONNECTIONS, figures, CollectorRegistry())

    @property
    def _prefix(self) -> str:
        return "" if self._workers is None else self._workers.prefix

    async def _metrics_in_pieces(
        self,
        request: web.Request,
        name: str,
        figures: NodeMetrics | ConnectionMetrics,
        others: CollectorRegistry,
    ) -> web.StreamResponse:
        """Answer with figures that are read and written a few at a time, and then with `others`,
        which have the end of the text."""
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        response = web.StreamResponse(headers={"Content-Type": content_type})
        workers = self._workers
        async with self._at_work:
            asked = None if workers is None else workers.ask(name)
            await figures.read(self._broker)
            if workers is not None and asked is not None:
                others = await workers.merged(others, asked, figures.columns)
            await response.prepare(request)
            async for piece in figures.lines(encode):
                await response.write(piece)
            await response.write(encode(others))
        await response.write_eof()
        return response

    async def _serve_other(self, request: web.Request) -> web.StreamResponse:
        if self._others is None:
            return web.Response(status=404)
        if not self._watching:
            return web.Response(text=self._readiness().reason + "\n", status=503)
        return await self._others(request)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer to a client that gets no metrics; None if the client gets metrics."""
        if self._metrics_auth is not None:
            refusal = await self._metrics_auth.refusal(request)
            if refusal is not None:
                return refusal
        if not self._watching:
            return web.Response(text=self._readiness().reason + "\n", status=503)
        return None


async def _headers(request: web.Request, response: web.StreamResponse) -> None:
    """Forbid proxies to cache the answer, and clients to guess its type."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
