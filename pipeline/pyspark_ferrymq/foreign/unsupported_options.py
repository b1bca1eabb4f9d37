"""Options that Event Hubs does not support, which are refused before a request is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpOptionError

if TYPE_CHECKING:
    from pyspark_ferrymq.options.option_values import Values

NOT_THERE: Final = {
    "subscribePattern": "Event Hubs does not list hubs; name them with the option 'subscribe'",
    "maxBytesPerTrigger": "Event Hubs does not tell how many bytes events have; use the option"
    " 'maxOffsetsPerTrigger'",
    "hold": "Event Hubs keeps events by the retention of the hub alone",
    "selector": "Event Hubs selects by the position of an event alone; use where() in Spark",
    "queueMode": "Event Hubs has no queues to browse",
}


def check_options(given: Values) -> None:
    """Raise `AmqpOptionError` for an option that Event Hubs does not support."""
    for name in given.given(NOT_THERE):
        raise AmqpOptionError(f"option {name!r}: {NOT_THERE[name]}")
