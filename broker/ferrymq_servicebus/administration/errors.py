"""Requests that fail, and the status for an error of the broker."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.errors import ManagementError

_STATUSES: Final[dict[str, int]] = {
    "amqp:unauthorized-access": 401,
    "amqp:not-found": 404,
    "amqp:not-allowed": 409,
    "amqp:precondition-failed": 409,
    "amqp:resource-locked": 409,
    "amqp:resource-limit-exceeded": 403,
    "amqp:not-implemented": 501,
}


class HttpError(Exception):
    """A request that fails with an HTTP status and a detail for the client."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def of_broker(error: BrokerError) -> HttpError:
    """Return the error of a request for an error of the broker."""
    return HttpError(_STATUSES.get(error.condition, 400), error.description)


def of_management(error: ManagementError) -> HttpError:
    """Return the error of a request for an error of management."""
    # Management's 403 is the vendor's 401; its 507 is the vendor's 403.
    status = {403: 401, 507: 403}.get(error.status, error.status)
    return HttpError(status, error.description)
