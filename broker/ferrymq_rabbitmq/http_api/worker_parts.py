"""Requests about all virtual hosts of a broker with several workers: each worker answers for those
that it serves, and the answers become one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from ferrymq_broker.server.http_handlers import HttpParts, HttpRequest, HttpResponse, HttpSteps
from ferrymq_rabbitmq.http_api.listing import Item, arranged, chosen, decoded_list, encoded_list
from ferrymq_rabbitmq.management.request_refused import RequestRefused

Json = dict[str, Any]

_LISTS: Final = (
    "bindings",
    "channels",
    "connections",
    "consumers",
    "exchanges",
    "operator-policies",
    "policies",
    "queues",
    "vhosts",
)
# Tables of the overview with numbers to add up.
_TOTALS: Final = ("object_totals", "queue_totals", "message_stats")
_HEADERS: Final = {"Cache-Control": "no-cache", "Content-Type": "application/json"}


def parts_of(request: HttpRequest, steps: Sequence[str]) -> HttpParts | None:
    """Return the work for a request of which each worker does a part; None for one that concerns
    one virtual host, or nothing that workers divide."""
    whole = replace(request, query={})
    method = "GET" if request.method == "HEAD" else request.method
    match (method, *steps):
        case ("GET", kind) if kind in _LISTS:
            return HttpParts(whole, _listing(request))
        case ("GET", "connections", _, "channels"):
            return HttpParts(whole, _listing(request))
        case ("GET", "connections" | "channels", _) | ("DELETE", "connections", _):
            return HttpParts(request, _found)
        case ("GET", "overview"):
            return HttpParts(whole, _one(request, _overview))
        case ("GET", "nodes"):
            return HttpParts(whole, _one(request, lambda parts: [_node([p[0] for p in parts])]))
        case ("GET", "nodes", _):
            return HttpParts(whole, _one(request, _node))
        case ("GET", "health", "checks", *_):
            return HttpParts(request, _worst)
        case ("GET", "definitions"):
            return HttpParts(request, _one(request, _definitions))
        case ("POST", "definitions"):
            return HttpParts(request, _one(request, _import_report))
    return None


def _listing(request: HttpRequest) -> Callable[[Sequence[HttpResponse]], HttpSteps]:
    """Return what joins lists, and arranges the whole as the query of the request asks for it."""

    def combine(responses: Sequence[HttpResponse]) -> HttpSteps:
        wrong = _worst(responses)
        if wrong.status != HTTPStatus.OK:
            return wrong
        items: list[Item] = []
        for response in responses:
            items += yield from decoded_list(response.body)
        try:
            found = arranged(items, request.query)
        except RequestRefused as error:
            body = {"error": "bad_request", "reason": error.description}
            return _response(body, HTTPStatus.BAD_REQUEST)
        return HttpResponse(HTTPStatus.OK, (yield from encoded_list(found)), _HEADERS)

    return combine


def _one(
    request: HttpRequest, join: Callable[[list[Any]], object]
) -> Callable[[Sequence[HttpResponse]], HttpResponse]:
    """Return what makes one object of those of all workers by `join`."""

    def combine(responses: Sequence[HttpResponse]) -> HttpResponse:
        wrong = _worst(responses)
        if wrong.status != HTTPStatus.OK:
            return wrong
        found = join([json.loads(response.body) for response in responses])
        columns = [each for each in request.query.get("columns", "").split(",") if each]
        return _response(chosen(found, columns) if isinstance(found, dict) else found)

    return combine


def _found(responses: Sequence[HttpResponse]) -> HttpResponse:
    """Return the response of the worker that has what the request names."""
    for response in responses:
        if response.status != HTTPStatus.NOT_FOUND:
            return response
    return responses[0]


def _worst(responses: Sequence[HttpResponse]) -> HttpResponse:
    """Return the first response that is an error; the first one of all if there is none."""
    for response in responses:
        if response.status >= HTTPStatus.BAD_REQUEST:
            return response
    return responses[0]


def _overview(parts: list[Json]) -> Json:
    return {**parts[0], **{name: _sums([part[name] for part in parts]) for name in _TOTALS}}


def _node(parts: list[Json]) -> Json:
    return {
        **parts[0],
        "mem_used": sum(part["mem_used"] for part in parts),
        "mem_alarm": any(part["mem_alarm"] for part in parts),
        "disk_free_alarm": any(part["disk_free_alarm"] for part in parts),
    }


def _definitions(parts: list[Json]) -> Json:
    first, *others = parts
    for part in others:
        for name, value in part.items():
            if isinstance(value, list):
                first[name] += value
    return first


def _import_report(parts: list[Json]) -> Json:
    return {
        "imported": _sums([part["imported"] for part in parts]),
        "omitted": [each for part in parts for each in part["omitted"]],
    }


def _sums(tables: Sequence[Json]) -> Json:
    together: Json = {}
    for table in tables:
        for name, value in table.items():
            together[name] = together.get(name, 0) + value
    return together


def _response(body: object, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(int(status), json.dumps(body).encode(), _HEADERS)
