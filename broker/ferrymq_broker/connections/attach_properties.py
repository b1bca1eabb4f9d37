"""Properties and capabilities of an attach that ask for more than the fields of a source can
say."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError

# The names that clients use for the priority of a consumer.
PRIORITIES: Final = ("priority", "rabbitmq:priority", "x-priority", "consumer-priority")
EXCLUSIVE: Final = "exclusive"
EXCLUSIVE_CAPABILITIES: Final = ("exclusive", "exclusive-consumer")
# A filter that is not granted makes the attach fail.
REQUIRE_FILTERS: Final = "ferrymq:require-filters"
# The answer says whether this attach created the terminus or the subscription.
NEW_TERMINUS: Final = "ferrymq:new-terminus"
# How long the attach may wait for a session, in milliseconds.
TIMEOUT: Final = "ferrymq:timeout"

# The address to which the target, a queue, sends the messages of the link on.
FORWARD_TO: Final = "ferrymq:forward-to"

_LOWEST: Final = -(2**31)
_HIGHEST: Final = 2**31 - 1
_LONGEST: Final = 2**32 - 1


def priority_name(properties: dict[str, object]) -> str:
    """Return the name under which the properties have a priority; empty if they have none."""
    for name in PRIORITIES:
        if name in properties:
            return name
    return ""


def priority_of(properties: dict[str, object]) -> i64:
    """Return the requested priority among consumers: higher goes first, 0 is the default.

    A number of any type is accepted. Raises `BrokerError` for a value that is not a whole number of
    32 bits.
    """
    name = priority_name(properties)
    if not name:
        return 0
    value = properties[name]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {name!r} is not a number; it must be a whole number of 32 bits",
        )
    # Comparisons with NaN are always false.
    finite = Decimal(value).is_finite()
    if finite and not _LOWEST <= value <= _HIGHEST:
        raise BrokerError(
            "amqp:invalid-field", f"the link property {name!r} is {value}; it must fit into 32 bits"
        )
    if not finite or value % 1 != 0:
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {name!r} is {value}; it must be a whole number",
        )
    return int(value)


def patience_of(properties: dict[str, object]) -> i64:
    """Return how long the attach may wait, in milliseconds; 0 if it does not say. Raises
    `BrokerError`."""
    value = properties.get(TIMEOUT, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LONGEST:
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {TIMEOUT!r} must be a number of milliseconds of 32 bits",
        )
    return int(value)


def forward_to_of(properties: dict[str, object]) -> str:
    """Return the address that the messages are sent on to; empty without one. Raises
    `BrokerError`."""
    value = properties.get(FORWARD_TO, "")
    if not isinstance(value, str) or (FORWARD_TO in properties and not value):
        raise BrokerError(
            "amqp:invalid-field", f"the link property {FORWARD_TO!r} must be an address"
        )
    return value


def is_exclusive(properties: dict[str, object], capabilities: Sequence[str]) -> bool:
    """Return whether the link wants to be the only consumer. Raises `BrokerError`."""
    value = properties.get(EXCLUSIVE, False)
    if not isinstance(value, bool):
        raise BrokerError("amqp:invalid-field", "the link property 'exclusive' must be a boolean")
    return value or any(capability in EXCLUSIVE_CAPABILITIES for capability in capabilities)


def demands_filters(properties: dict[str, object]) -> bool:
    """Return whether the attach must fail if a filter is not granted. Raises `BrokerError`."""
    value = properties.get(REQUIRE_FILTERS, False)
    if not isinstance(value, bool):
        raise BrokerError(
            "amqp:invalid-field", f"the link property {REQUIRE_FILTERS!r} must be a boolean"
        )
    return value
