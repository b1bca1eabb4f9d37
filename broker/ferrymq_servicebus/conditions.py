"""Conditions of errors as the vendor's clients know them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from ferrymq_broker.event_log import log
from ferrymq_broker.values.names import PART
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
_INTERNAL: Final = "amqp:internal-error"


# What the broker says of a part that a node does not have, and a quoted address.
_NO_PART: Final = re.compile(r"'([^']+)' has no (?:part|partition|subscription) '([^']+)'")
_QUOTED: Final = re.compile(r"'([^']+)'")


def error_of(
    condition: str,
    description: str,
    info: dict[str, object] | None,
    named: Callable[[str], str],
) -> Error:
    """Return an error of the broker in the vendor's words, with the paths of clients, which `named`
    returns for native addresses.

    A missing entity is known to the client for JavaScript by the words of the description alone. An
    internal error gets a tracking id, by which it is found in the log. `info` is never None,
    because azure-servicebus before 7.14 fails at an error without it.
    """
    if condition == _NOT_FOUND:
        entity = _entity_in(description)
        description = _with_paths(description, named)
        description = f"The messaging entity {named(entity)!r} could not be found: {description}"
    elif condition == _INTERNAL:
        tracking = uuid4().hex
        log.error("internal error told to a client", tracking=tracking, reason=description)
        description = f"{description} TrackingId:{tracking}"
    else:
        description = _with_paths(description, named)
    return Error(
        condition=_CONDITIONS.get(condition, condition), description=description, info=info or {}
    )


def _entity_in(description: str) -> str:
    """Return the native address of the entity that does not exist, as far as it is told."""
    part = _NO_PART.search(description)
    if part is not None:
        return f"{part[1]}{PART}{part[2]}"
    quoted = _QUOTED.search(description)
    return "of this request" if quoted is None else quoted[1]


def _with_paths(description: str, named: Callable[[str], str]) -> str:
    """Return the description with the paths of clients in the place of native addresses."""
    if PART not in description:
        return description
    return _QUOTED.sub(
        lambda quoted: repr(named(quoted[1])) if PART in quoted[1] else quoted[0], description
    )
