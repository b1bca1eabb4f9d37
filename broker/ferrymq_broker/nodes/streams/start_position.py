"""The position where a reader begins and ends, and how it is to read, by what its attach asks
for."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from ferrymq.chunks import (
    BYTES,
    CHUNKS,
    MAX_CHUNK_BYTES,
    MAX_CHUNK_RECORDS,
    RECORDS,
    UNTIL,
)
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter_set import FIRST, LAST, OFFSET, TIME, StreamPosition
from ferrymq_broker.nodes.streams.partition import StreamPartition
from ferrymq_broker.nodes.streams.segments import ENDLESS

ON_TRIM: Final = "ferrymq:on-trim"


def start_of(position: StreamPosition | None, partition: StreamPartition) -> i64:
    """Return the offset of the first record to read; without a word on it, the next to come.

    An offset before the first there is means that one. Raises `BrokerError` for one behind the next
    to come: it belongs to another stream, or to this one before it was made anew.
    """
    log = partition.log
    if position is None:
        return log.next
    kind = position.kind
    if kind == FIRST:
        return log.first
    if kind == OFFSET:
        start = position.value
        if not position.inclusive and start < ENDLESS:
            start += 1
        if start > log.next:
            raise BrokerError(
                "amqp:precondition-failed",
                f"{partition.address!r} has the records from {log.first} to before {log.next};"
                f" reading was to begin at {start}",
                {
                    "partition": int(partition.number),
                    "expected": int(start),
                    "first": int(log.first),
                    "next": int(log.next),
                },
            )
        return start if start > log.first else log.first
    if kind == TIME:
        time = position.value
        if not position.inclusive and time < ENDLESS:
            time += 1
        return log.offset_at(time)
    if kind == LAST and log.next > log.first:
        return log.next - 1
    return log.next


def goes_on(properties: dict[str, object]) -> bool:
    """Return whether the reader wants to go on, not be detached, when unread records are gone.

    Raises `BrokerError` if the property has no meaning.
    """
    wanted = properties.get(ON_TRIM)
    if wanted is None or wanted == "detach":
        return False
    if wanted == "continue":
        return True
    raise BrokerError(
        "amqp:invalid-field", f"{ON_TRIM} is {str(wanted)[:100]!r}; it may be detach or continue"
    )


def end_of(properties: dict[str, object]) -> i64:
    """Return the offset before which reading ends, `ENDLESS` if it goes on. Raises
    `BrokerError`."""
    wanted = properties.get(UNTIL)
    if wanted is None:
        return ENDLESS
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= ENDLESS:
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {UNTIL} is {str(wanted)[:100]!r}; it is an offset, of type long",
        )
    return wanted


def chunk_of(properties: dict[str, object], max_message_size: i64) -> tuple[int, int] | None:
    """Return how many bytes and records a chunk may have for a link that takes messages of this
    size (0: any); None if no chunks are wanted. Raises `BrokerError` if the property has no
    meaning."""
    wanted = properties.get(CHUNKS)
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {CHUNKS} is {str(wanted)[:100]!r}; it is a map of {BYTES} and"
            f" {RECORDS}",
        )
    most = MAX_CHUNK_BYTES
    if max_message_size != 0 and max_message_size < most:
        most = int(max_message_size)
    return _limit(wanted, BYTES, most), _limit(wanted, RECORDS, MAX_CHUNK_RECORDS)


def _limit(wanted: dict[object, object], key: str, most: int) -> int:
    """Return what is granted of one of the two; all there is if nothing is said of it."""
    value = wanted.get(key)
    if value is None:
        return most
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BrokerError(
            "amqp:invalid-field",
            f"{key} in the link property {CHUNKS} is {str(value)[:100]!r}; it is a number from 1"
            " on",
        )
    return min(value, most)
