"""Runtime metrics: the last event of a partition, which a client may be told with each event."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.nodes.streams.last_record import LAST_RECORD
from ferrymq_codec.scalars import Timestamp
from ferrymq_servicebus.conditions import VENDOR

DESIRED: Final = {f"{VENDOR}enable-receiver-runtime-metric": LAST_RECORD}


def runtime_metrics(offset: int, time: int, now: int) -> dict[str, object]:
    """Return the delivery-annotations; the offset, which is also the sequence number, is told as
    text too. The times are in milliseconds since the epoch."""
    return {
        "last_enqueued_sequence_number": offset,
        "last_enqueued_offset": str(offset),
        "last_enqueued_time_utc": Timestamp(time),
        "runtime_info_retrieval_time_utc": Timestamp(now),
    }
