"""Properties and capabilities of an attach, and what they ask of a source beyond its own fields."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError

# The names clients have for the priority of a consumer.
PRIORITIES: Final = ("priority", "rabbitmq:priority", "x-priority", "consumer-priority")
EXCLUSIVE: Final = "exclusive"
EXCLUSIVE_CAPABILITIES: Final = ("exclusive", "exclusive-consumer")
# A filter that cannot be kept is to cost the link.
REQUIRE_FILTERS: Final = "ferrymq:require-filters"
# The answer is to say whether the terminus, or the subscription, was made by this attach.
NEW_TERMINUS: Final = "ferrymq:new-terminus"

_LOWEST: Final = -(2**31)
_HIGHEST: Final = 2**31 - 1


def priority_name(properties: dict[str, object]) -> str:
    """Under which name the properties state a priority; empty if they do not."""
    for name in PRIORITIES:
        if name in properties:
            return name
    return ""


def priority_of(properties: dict[str, object]) -> i64:
    """Return the priority among consumers that is asked for: higher goes first, 0 is usual.

    A number of any type will do. Raises `BrokerError` for a value that is no whole number of 32
    bits.
    """
    name = priority_name(properties)
    if not name:
        return 0
    value = properties[name]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise BrokerError("amqp:invalid-field", f"the link property {name!r} is not a number")
    # NaN cannot be compared.
    finite = Decimal(value).is_finite()
    if finite and not _LOWEST <= value <= _HIGHEST:
        raise BrokerError(
            "amqp:invalid-field", f"the link property {name!r} is {value}, beyond 32 bits"
        )
    if not finite or value % 1 != 0:
        raise BrokerError(
            "amqp:invalid-field", f"the link property {name!r} is {value}, not a whole number"
        )
    return int(value)


def is_exclusive(properties: dict[str, object], capabilities: Sequence[str]) -> bool:
    """Return whether the link is to be the only one to consume. Raises `BrokerError`."""
    value = properties.get(EXCLUSIVE, False)
    if not isinstance(value, bool):
        raise BrokerError("amqp:invalid-field", "the link property 'exclusive' is not a boolean")
    return value or any(capability in EXCLUSIVE_CAPABILITIES for capability in capabilities)


def demands_filters(properties: dict[str, object]) -> bool:
    """Return whether a filter that is not kept is to cost the link. Raises `BrokerError`."""
    value = properties.get(REQUIRE_FILTERS, False)
    if not isinstance(value, bool):
        raise BrokerError(
            "amqp:invalid-field", f"the link property {REQUIRE_FILTERS!r} is not a boolean"
        )
    return value
