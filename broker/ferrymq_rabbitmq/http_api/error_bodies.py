"""Errors as the API tells them: a status, and an object with ``error`` and ``reason``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.errors import ManagementError, status_of
from ferrymq_rabbitmq.arguments import ArgumentError
from ferrymq_rabbitmq.http_api.broker_facts import UnhealthyError
from ferrymq_rabbitmq.management.request_refused import RequestRefused


def failure_of(error: Exception) -> tuple[HTTPStatus, str]:
    """Return the status and the reason for an error. Clients of RabbitMQ expect 401 for a missing
    right, and 400 for whatever does not fit. Raises unknown errors again."""
    if isinstance(error, RequestRefused):
        status, reason = int(error.status), error.description
    elif isinstance(error, ManagementError):
        status, reason = error.status, error.description
    elif isinstance(error, BrokerError):
        status, reason = status_of(error.condition), error.description
    elif isinstance(error, ArgumentError):
        status, reason = 400, str(error)
    elif isinstance(error, UnhealthyError):
        return HTTPStatus.SERVICE_UNAVAILABLE, json.dumps(error.facts)
    else:
        raise error
    if status == HTTPStatus.FORBIDDEN:
        return HTTPStatus.UNAUTHORIZED, reason
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return HTTPStatus(status), reason
    return HTTPStatus.BAD_REQUEST, reason


_ERRORS: Final = {400: "bad_request", 401: "not_authorised", 404: "Object Not Found"}


def error_body(status: int, reason: str) -> Mapping[str, Any]:
    """Return the body of an answer with an error."""
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        facts: dict[str, Any] = json.loads(reason)
        return facts
    return {"error": _ERRORS.get(status, "method_not_allowed"), "reason": reason}
