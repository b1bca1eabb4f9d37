"""The files of the console."""

from __future__ import annotations

from ferrymq_broker.server.http_handlers import HttpHandler, HttpRequest, HttpResponse


def make_handler() -> HttpHandler:
    """Return the handler of the files."""
    return _serve


def _serve(request: HttpRequest) -> HttpResponse:
    return HttpResponse(404)
