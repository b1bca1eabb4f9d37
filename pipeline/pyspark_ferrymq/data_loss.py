"""Records that a query should read but that are gone: detection, and an error or a warning."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_ferrymq.errors import AmqpDataLossError
from pyspark_ferrymq.offsets import Offset, broker_of, name_of
from pyspark_ferrymq.stream_metadata import StreamRanges

LOGGER: Final = logging.getLogger("pyspark_ferrymq")

TRIMMED: Final = "records are gone: the stream keeps no more, or was purged"
ANEW: Final = "the stream was deleted and made again meanwhile"
AHEAD: Final = "there are no such records yet: it is another stream, or its broker has lost some"
DELETED: Final = (
    "there is no such stream any more, no right to receive from it, or the options leave it out"
)

_REMEDY: Final = (
    "To go on with what there is, set the option 'failOnDataLoss' to false; to begin anew, use a"
    " new checkpoint. A hold (option 'hold') keeps records until they have been read"
)


@dataclass(frozen=True, slots=True)
class Loss:
    """Missing records of a partition; `stream` is the key of its stream. Offsets from `first` to
    before `until` were expected; `until` is None if it is unknown. Offsets from `available[0]` to
    before `available[1]` are available."""

    stream: str
    partition: int
    reason: str
    first: int
    until: int | None = None
    available: tuple[int, int] | None = None

    def __str__(self) -> str:
        expected = f"from {self.first} on"
        if self.until is not None:
            expected = f"from {self.first} to before {self.until}"
        there = "nothing"
        if self.available is not None:
            there = f"from {self.available[0]} to before {self.available[1]}"
        broker = broker_of(self.stream)
        at = f" at the broker {broker!r}" if broker else ""
        return (
            f"stream {name_of(self.stream)!r}{at}, partition {self.partition}: expected offsets"
            f" {expected}, available {there}; {self.reason}"
        )


def report(losses: Iterable[Loss], fail: bool) -> None:
    """Raise `AmqpDataLossError` for losses, or log them if `fail` is false."""
    found = list(losses)
    if not found:
        return
    if not fail:
        for loss in found:
            LOGGER.warning("missing records are skipped (failOnDataLoss is false): %s", loss)
        return
    more = f" (and {len(found) - 1} partitions more)" if len(found) > 1 else ""
    raise AmqpDataLossError(f"{found[0]}{more}. {_REMEDY}")


def missing_from(start: Offset, ranges: Mapping[str, StreamRanges]) -> list[Loss]:
    """Return the records that a query at `start` cannot find."""
    losses: list[Loss] = []
    for name, number, offset in start:
        stream = ranges.get(name)
        there = None if stream is None else stream.partitions.get(number)
        if stream is None or there is None:
            losses.append(Loss(name, number, DELETED, offset))
            continue
        available = (there.first, there.next)
        if stream.incarnation != start.streams[name].incarnation:
            losses.append(Loss(name, number, ANEW, offset, None, available))
        elif offset < there.first:
            losses.append(Loss(name, number, TRIMMED, offset, None, available))
        elif offset > there.next:
            losses.append(Loss(name, number, AHEAD, offset, None, available))
    for name, stream in ranges.items():
        for number, there in stream.partitions.items():
            if start.of(name, number) is None and there.first > 0:
                losses.append(Loss(name, number, TRIMMED, 0, None, (there.first, there.next)))
    return losses


def missing_before(start: Offset, end: Offset, ranges: Mapping[str, StreamRanges]) -> list[Loss]:
    """Return the records that a batch up to `end`, planned elsewhere, cannot find at its end."""
    losses: list[Loss] = []
    for name, number, until in end:
        first = start.of(name, number) or 0
        if first >= until:
            continue
        stream = ranges.get(name)
        there = None if stream is None else stream.partitions.get(number)
        if stream is None or there is None:
            losses.append(Loss(name, number, DELETED, first, until))
        elif stream.incarnation != end.streams[name].incarnation:
            losses.append(Loss(name, number, ANEW, first, until, (there.first, there.next)))
        elif until > there.next:
            losses.append(Loss(name, number, AHEAD, first, until, (there.first, there.next)))
    return losses
