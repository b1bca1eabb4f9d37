"""The status codes of management responses: those of HTTP, as in the AMQP Management draft."""

from __future__ import annotations

from typing import Final

from ferrymq.errors import ManagementError as ManagementError

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
GONE: Final = 410
TOO_MANY: Final = 429
FAILED: Final = 500
NOT_IMPLEMENTED: Final = 501
NO_ROOM: Final = 507

# The status for each error condition of the broker.
_STATUSES: Final[dict[str, int]] = {
    "amqp:invalid-field": BAD_REQUEST,
    "amqp:unauthorized-access": FORBIDDEN,
    "amqp:not-found": NOT_FOUND,
    "amqp:not-allowed": CONFLICT,
    "amqp:precondition-failed": CONFLICT,
    "amqp:link:redirect": CONFLICT,
    "amqp:resource-locked": CONFLICT,
    "amqp:illegal-state": CONFLICT,
    "amqp:not-implemented": NOT_IMPLEMENTED,
    "amqp:resource-limit-exceeded": NO_ROOM,
    "ferrymq:fence-passed": CONFLICT,
    "ferrymq:fence-content": CONFLICT,
    "ferrymq:session-lock-lost": GONE,
    "ferrymq:lease-lost": GONE,
}


def status_of(condition: str) -> int:
    """Return the status for an AMQP error condition of the broker."""
    return _STATUSES.get(condition, BAD_REQUEST)
