"""Where a reader begins and ends, and how it reads, as its attach asks for."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from ferrymq.chunks import UNTIL
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter_set import FIRST, LAST, OFFSET, TIME, StreamPosition
from ferrymq_broker.nodes.streams.partition import StreamPartition
from ferrymq_broker.nodes.streams.segments import ENDLESS

ON_TRIM: Final = "ferrymq:on-trim"


def start_of(position: StreamPosition | None, partition: StreamPartition) -> i64:
    """Return the offset of the first record to read; if the attach asks for none, that of the next
    record to come.

    An offset before the first record means the first record. Raises `BrokerError` for an offset
    after the next record: the offset belongs to another stream, or to a deleted stream of this
    name.
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
                f"{partition.address!r} has the records from {log.first} to before {log.next}; "
                f"reading cannot begin at {start}",
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
    """Return whether the reader continues, instead of being detached, when unread records are
    dropped.

    Raises `BrokerError` if the property is invalid.
    """
    wanted = properties.get(ON_TRIM)
    if wanted is None or wanted == "detach":
        return False
    if wanted == "continue":
        return True
    raise BrokerError(
        "amqp:invalid-field",
        f"the link property {ON_TRIM} is {str(wanted)[:100]!r}; it must be detach or continue",
    )


def end_of(properties: dict[str, object]) -> i64:
    """Return the offset before which reading ends, `ENDLESS` if it does not end. Raises
    `BrokerError`."""
    wanted = properties.get(UNTIL)
    if wanted is None:
        return ENDLESS
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= ENDLESS:
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {UNTIL} is {str(wanted)[:100]!r}; it must be an offset, of "
            "type long",
        )
    return wanted
