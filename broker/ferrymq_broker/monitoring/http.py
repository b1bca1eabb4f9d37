"""The HTTP listener for those who watch: ``/livez``, ``/readyz``, ``/metrics``.

It is apart from the AMQP listeners, has an address of its own, and says nothing about messages or
users. It runs in the broker's event loop: that ``/livez`` is answered at all is what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from ferrymq_broker.broker import Broker
from ferrymq_broker.monitoring.metrics import BrokerCollector, Retired
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.monitoring.store_figures import StoreFigures
from ferrymq_broker.monitoring.store_metrics import StoreCollector

# How long, in seconds, a request that is under way may take when the listener closes.
_SHUTDOWN: Final = 1.0


class MonitoringServer:
    """Answers on `url`, ``http://HOST:PORT``; port 0 takes a free one.

    `readiness` is asked for every ``/readyz``. There are no metrics before `watch`. Raises from
    `start` `OSError` when the address cannot be had.
    """

    def __init__(self, broker: Broker, url: str, readiness: Callable[[], Readiness]) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 0
        self._broker = broker
        self._readiness = readiness
        self._sums = CollectorRegistry()
        self._by_node = CollectorRegistry()
        self._watching = False
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/metrics/nodes", self._metrics_by_node)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN
        )

    @property
    def url(self) -> str:
        """Where it listens, once it has started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def watch(self, store: StoreFigures | None = None) -> None:
        """The broker has all its virtual hosts: figures can be asked for from now on, also those of
        its `store`."""
        broker = self._broker
        retired = Retired()
        for space in broker.spaces.values():
            space.on_change.append(retired.on_change)
        self._sums.register(BrokerCollector(broker, retired.figures, by_node=False))
        self._by_node.register(BrokerCollector(broker, retired.figures, by_node=True))
        if store is not None:
            self._sums.register(StoreCollector(broker, store))
        ProcessCollector(registry=self._sums)
        PlatformCollector(registry=self._sums)
        GCCollector(registry=self._sums)
        self._watching = True

    async def start(self) -> None:
        """Listen."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        ready, reason = self._readiness()
        body = {"ready": ready, "reason": reason, "alarms": sorted(self._broker.alarms)}
        return web.json_response(body, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return self._exposition(request, self._sums)

    async def _metrics_by_node(self, request: web.Request) -> web.Response:
        return self._exposition(request, self._by_node)

    def _exposition(self, request: web.Request, registry: CollectorRegistry) -> web.Response:
        if not self._watching:
            return web.Response(text=self._readiness().reason + "\n", status=503)
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})
