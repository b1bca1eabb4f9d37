"""Errors of RabbitMQ's management, by the status of the response."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from ferrymq.errors import ManagementError

# RabbitMQ answers some requests that name a missing queue or exchange with 400.
_MISSING: Final = re.compile(r"no (queue|exchange) '")


class RabbitMQError(ManagementError):
    """A request that RabbitMQ refused: nothing was changed. `status` and `description` are
    RabbitMQ's."""


class BadRequest(RabbitMQError):
    """The request is wrong in itself, such as a type of exchange that does not exist (400)."""


class AccessRefused(RabbitMQError):
    """The user has no permission, or the name is reserved, such as ``amq.x`` (403)."""


class NotFound(RabbitMQError):
    """There is no such queue or exchange (404, or 400 with a description that says so)."""


class PreconditionFailed(RabbitMQError):
    """The queue or exchange exists with other properties, or an argument of it is not valid
    (409)."""


_BY_STATUS: Final[dict[int, type[RabbitMQError]]] = {
    HTTPStatus.BAD_REQUEST: BadRequest,
    HTTPStatus.UNAUTHORIZED: AccessRefused,
    HTTPStatus.FORBIDDEN: AccessRefused,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: PreconditionFailed,
}


def refusal(status: int, description: str) -> RabbitMQError:
    """Return the error of a response with this status."""
    kind = _BY_STATUS.get(status, RabbitMQError)
    if kind is BadRequest and _MISSING.match(description):
        kind = NotFound
    return kind(status, description)
