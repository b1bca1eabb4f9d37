"""Errors of the broker, as the clients of an entity's management know them.

A response names a status like HTTP's, and a condition from which the clients make an exception.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.errors import ManagementError, status_of
from ferrymq_broker.management.operation import Result
from ferrymq_broker.management.sliced_query import finish

BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
QUOTA_EXCEEDED: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
GONE: Final = 410
FAILED: Final = 500
NOT_IMPLEMENTED: Final = 501
BUSY: Final = 503

ENTITY_NOT_FOUND: Final = "amqp:not-found"
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
ALREADY_EXISTS: Final = "com.microsoft:entity-already-exists"
_ARGUMENT: Final = "com.microsoft:argument-error"
_UNAUTHORIZED: Final = "amqp:unauthorized-access"
_QUOTA: Final = "amqp:resource-limit-exceeded"

# The status and the condition for a condition of the broker.
_BY_CONDITION: Final[dict[str, tuple[int, str]]] = {
    "ferrymq:lock-lost": (GONE, "com.microsoft:message-lock-lost"),
    "ferrymq:session-lock-lost": (GONE, "com.microsoft:session-lock-lost"),
    "ferrymq:session-locked": (GONE, "com.microsoft:session-cannot-be-locked"),
    "ferrymq:disabled": (CONFLICT, "com.microsoft:entity-disabled"),
    "ferrymq:timeout": (408, "com.microsoft:timeout"),
    "amqp:invalid-field": (BAD_REQUEST, _ARGUMENT),
    "amqp:decode-error": (BAD_REQUEST, _ARGUMENT),
    "amqp:unauthorized-access": (UNAUTHORIZED, _UNAUTHORIZED),
    "amqp:resource-limit-exceeded": (QUOTA_EXCEEDED, _QUOTA),
    "amqp:link:message-size-exceeded": (QUOTA_EXCEEDED, "amqp:link:message-size-exceeded"),
    "amqp:internal-error": (FAILED, "amqp:internal-error"),
}
# The status and the condition for a status of the broker's management.
_BY_STATUS: Final[dict[int, tuple[int, str]]] = {
    400: (BAD_REQUEST, _ARGUMENT),
    403: (UNAUTHORIZED, _UNAUTHORIZED),
    404: (NOT_FOUND, ENTITY_NOT_FOUND),
    409: (CONFLICT, "amqp:not-allowed"),
    410: (GONE, "com.microsoft:message-lock-lost"),
    429: (BUSY, "com.microsoft:server-busy"),
    500: (FAILED, "amqp:internal-error"),
    501: (NOT_IMPLEMENTED, "amqp:not-implemented"),
    507: (QUOTA_EXCEEDED, _QUOTA),
}


class RequestFailed(Exception):
    """A request that fails with a status, a condition and a description."""

    def __init__(self, status: int, condition: str, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.condition = condition
        self.description = description


def failure_of(error: Exception) -> RequestFailed | None:
    """Return the failure that an error of the broker means; None for other errors."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, BrokerError):
        return _failed(error.condition, status_of(error.condition), error.description)
    if isinstance(error, ManagementError):
        return _failed("", error.status, error.description)
    return None


def done(result: Result | Generator[object, None, Result]) -> Result:
    """Return the result of an operation of the broker, with all of its steps done."""
    return finish(result) if isinstance(result, Generator) else result


def expect(result: Result) -> dict[str, object]:
    """Return the body of a successful result. Raises `RequestFailed` for another one."""
    if result.status >= BAD_REQUEST:
        condition = result.properties.get("errorCondition")
        raise _failed(str(condition or ""), result.status, result.description)
    return result.body if isinstance(result.body, dict) else {}


def invalid(reason: str) -> RequestFailed:
    """Return the failure of a request with an invalid argument."""
    return RequestFailed(BAD_REQUEST, _ARGUMENT, reason)


def no_entity(named: str) -> RequestFailed:
    """Return the failure of a request about an entity that does not exist.

    Some clients recognise this failure by the words of the description.
    """
    return RequestFailed(
        NOT_FOUND, ENTITY_NOT_FOUND, f"The messaging entity '{named[:200]}' could not be found."
    )


def _failed(condition: str, status: int, description: str) -> RequestFailed:
    known = _BY_CONDITION.get(condition)
    if known is None:
        known = _BY_STATUS.get(int(status), (BAD_REQUEST, _ARGUMENT))
    return RequestFailed(known[0], known[1], description)
