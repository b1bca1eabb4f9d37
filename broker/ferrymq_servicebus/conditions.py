"""Conditions of errors as the vendor's clients know them."""

from __future__ import annotations

from typing import Final

from ferrymq_types.transport import Error

VENDOR: Final = "com.microsoft:"

_CONDITIONS: Final = {
    "ferrymq:lock-lost": VENDOR + "message-lock-lost",
    "ferrymq:session-lock-lost": VENDOR + "session-lock-lost",
    "ferrymq:session-locked": VENDOR + "session-cannot-be-locked",
    "ferrymq:disabled": VENDOR + "entity-disabled",
    "ferrymq:timeout": VENDOR + "timeout",
    "ferrymq:epoch-too-low": "amqp:link:stolen",
}
_NOT_FOUND: Final = "amqp:not-found"


def error_of(condition: str, description: str, info: dict[str, object] | None) -> Error:
    """Return an error of the broker in the vendor's words.

    A missing entity is known to the client for JavaScript by the words of the description alone.
    """
    if condition == _NOT_FOUND:
        description = f"The messaging entity of this request could not be found: {description}"
    return Error(
        condition=_CONDITIONS.get(condition, condition), description=description, info=info
    )
