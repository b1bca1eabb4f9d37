"""Where a reader begins, by what its source asks for."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter_set import FIRST, LAST, OFFSET, TIME, Position
from ferrymq_broker.nodes.streams.partition import Partition
from ferrymq_broker.nodes.streams.segments import ENDLESS

ON_TRIM: Final = "ferrymq:on-trim"


def start_of(position: Position | None, partition: Partition) -> i64:
    """The offset of the first record to read; without a word on it, the next to come.

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
    """What the reader wants when records are gone that it has not read: to go on, or be detached.

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
