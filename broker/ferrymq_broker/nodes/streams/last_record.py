"""The last record of a partition, which a reader of the stream may be told with each delivery.

A link asks for it with the property ``ferrymq:last-record``. The delivery-annotations then have

    x-opt-last-offset         long        the offset of the last record
    x-opt-last-enqueued-time  timestamp   when it was appended
    x-opt-read-time           timestamp   the time of this delivery
"""

from __future__ import annotations

from typing import Final

from ferrymq_broker.errors import BrokerError
from ferrymq_codec.scalars import Timestamp

LAST_RECORD: Final = "ferrymq:last-record"


def wants_last_record(properties: dict[str, object]) -> bool:
    """Return whether an attach asks to be told. Raises `BrokerError` if the property is invalid."""
    wanted = properties.get(LAST_RECORD, False)
    if not isinstance(wanted, bool):
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {LAST_RECORD} is {str(wanted)[:100]!r}; it must be a boolean",
        )
    return wanted


def last_record(offset: int, time: int, now: int) -> dict[str, object]:
    """Return the annotations about the last record of a partition; the times are in milliseconds
    since the epoch."""
    return {
        "x-opt-last-offset": offset,
        "x-opt-last-enqueued-time": Timestamp(time),
        "x-opt-read-time": Timestamp(now),
    }
