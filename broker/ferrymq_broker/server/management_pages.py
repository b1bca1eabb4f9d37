"""The paths of the management API and of the console on listeners that take HTTP.

Their modules are imported by the first request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferrymq_broker.server.host_tables import HostTables
from ferrymq_broker.server.http_handlers import (
    API,
    CONSOLE,
    HttpHandler,
    HttpHost,
    HttpParts,
    HttpRequest,
    HttpResponse,
    HttpSteps,
)


class _Deferred:
    """A handler that `make` makes when the first request comes."""

    def __init__(self, make: Callable[[], HttpHandler]) -> None:
        self._make = make
        self._handler: HttpHandler | None = None

    def handle(self, request: HttpRequest) -> HttpResponse | HttpSteps | HttpParts:
        if self._handler is None:
            self._handler = self._make()
        return self._handler(request)


def _api(host: HttpHost) -> HttpHandler:
    def make() -> HttpHandler:
        from ferrymq_broker.http_api.api import make_handler

        return make_handler(host)

    return _Deferred(make).handle


def _console(host: HttpHost) -> HttpHandler:
    def make() -> HttpHandler:
        from ferrymq_broker.console.pages import make_handler

        return make_handler()

    return _Deferred(make).handle


MANAGEMENT_PAGES: Final = HostTables(
    http_handlers={API: _api, CONSOLE: _console}, http_logins=(API,), http_files=(CONSOLE,)
)
