"""The factory that makes the monitoring listener from the configuration."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from ferrymq_broker.broker import Broker
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.url import http_address
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.monitoring.http import MonitoringServer
from ferrymq_broker.monitoring.metrics_auth import MetricsAuth
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.monitoring.worker_metrics import AllWorkers
from ferrymq_broker.server.handler_requests import HandlerRequests

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer
    from ferrymq_broker.server.worker_answers import WorkerAnswers


def make_monitoring(
    config: Config,
    broker: Broker,
    readiness: Callable[[], Readiness],
    authenticator_for: Callable[[ClientTransport], Authenticator | None],
    ssl_context: ssl.SSLContext | None,
    server: BrokerServer,
    answers: WorkerAnswers | None = None,
) -> MonitoringServer:
    """Make the monitoring server, which gives other requests to the handlers of `server`. With
    `answers` of other workers it shows all workers.

    Clients get metrics without a login only if the broker needs no login, or if the listener is
    only for this machine.

    `authenticator_for` returns the authenticator for a client, None until the broker has one.
    `ssl_context` is for ``https:``.
    """
    url = config.http.url or ""
    loopback = http_address(url).is_loopback
    metrics_auth = MetricsAuth(
        broker,
        authenticator_for,
        loopback=loopback,
        named=config.security.names_somebody and not loopback,
    )
    worker = server.worker
    return MonitoringServer(
        broker,
        url,
        readiness,
        metrics_auth=metrics_auth,
        others=_Handled(HandlerRequests(server, loopback, [])).serve,
        connections=config.http.connections,
        ssl_context=ssl_context,
        workers=None if worker is None else AllWorkers(worker.number, worker.peers.ask_all),
        readiness_of_others=None if answers is None else answers.readiness_of_others,
    )


class _Handled:
    """The handlers of the broker, for the requests of the monitoring listener."""

    def __init__(self, requests: HandlerRequests) -> None:
        self._requests = requests

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        mounted = self._requests.find(request)
        if mounted is None:
            return web.Response(status=404)
        refusal = self._requests.refusal(request)
        if refusal is not None:
            return refusal
        return await self._requests.answer(request, mounted, await request.read())
