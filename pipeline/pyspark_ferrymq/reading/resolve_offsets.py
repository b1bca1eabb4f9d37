"""Conversion of the start and the end in options to offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_ferrymq.brokers.placing import place, unplaced
from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError
from pyspark_ferrymq.offsets import (
    EARLIEST,
    LATEST,
    Offset,
    PartitionOffset,
    broker_of,
    name_of,
)
from pyspark_ferrymq.options.start_and_end import AtCheckpoint, AtEnd, AtOffsets, AtTime, Bound
from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges, StreamService

if TYPE_CHECKING:
    from pyspark_ferrymq.options import Selection


def check_found(
    selection: Selection, ranges: Mapping[str, StreamRanges], service: StreamService, place: str
) -> None:
    """Raise `AmqpSourceError` if a named stream or partition does not exist."""
    for name in selection.names:
        # With several brokers, it is enough if one of them has the stream, or the partition.
        streams = [stream for key, stream in ranges.items() if name_of(key) == name]
        if not streams:
            raise AmqpSourceError(f"option {selection}: {service.explain(name)}")
        for number in selection.partitions.get(name, ()):
            if not any(number in stream.partitions for stream in streams):
                raise AmqpSourceError(
                    f"option {selection}: there is no partition {number} in the stream {name!r} at"
                    f" {place}"
                )


def resolve(bound: Bound, ranges: Mapping[str, StreamRanges], service: StreamService) -> Offset:
    """Return the offset of every existing partition for a start or an end.

    The offset may be outside the available range. Raises `AmqpOptionError` if the bound leaves out
    a partition, or names one that is not read.
    """
    if isinstance(bound, AtOffsets):
        _check_brokers(bound, ranges)
        _check_complete(bound, ranges)
    elif isinstance(bound, AtCheckpoint):
        ids = service.broker_ids()
        bound = replace(bound, offset=place(bound.offset, ranges, ids))
        for key in unplaced(bound.offset, ids):
            raise AmqpOptionError(
                f"option {bound.option!r}: no URL leads to a broker"
                f" {broker_of(key) or 'that has'} with the stream {name_of(key)!r} of the"
                " incarnation that it names (option 'url')"
            )
    streams: dict[str, PartitionOffset] = {}
    for name, stream in sorted(ranges.items()):
        if isinstance(bound, AtTime):
            offsets = _at_time(bound, stream, service)
            streams[name] = PartitionOffset(stream.incarnation, offsets)
        elif isinstance(bound, AtCheckpoint):
            position = bound.offset.streams.get(name)
            known = {} if position is None else position.partitions
            incarnation = stream.incarnation if position is None else position.incarnation
            # As in a continued query: a new partition begins with its first record, and a new
            # broker with the first that it still has.
            is_new = bool(broker_of(name)) and broker_of(name) not in bound.offset.brokers
            offsets = {
                number: there.first if is_new else known.get(number, 0)
                for number, there in stream.partitions.items()
            }
            streams[name] = PartitionOffset(incarnation, offsets)
        else:
            offsets = {
                number: _place(bound, name, there) for number, there in stream.partitions.items()
            }
            streams[name] = PartitionOffset(stream.incarnation, offsets)
    return Offset(streams)


def _place(bound: AtEnd | AtOffsets, name: str, there: PartitionRange) -> int:
    if isinstance(bound, AtEnd):
        return there.first if bound.place == "earliest" else there.next
    offset = bound.offsets[name][there.partition]
    if offset == EARLIEST:
        return there.first
    return there.next if offset == LATEST else offset


def _check_brokers(bound: AtOffsets, ranges: Mapping[str, StreamRanges]) -> None:
    """Raise `AmqpOptionError` if there are several brokers, which such offsets do not name."""
    for key, stream in ranges.items():
        if broker_of(key):
            example = Offset({key: PartitionOffset(stream.incarnation, {0: 23})}).to_json()
            raise AmqpOptionError(
                f"option {bound.option!r}: the URLs lead to several brokers, so each offset has to"
                f" name its broker, as in checkpoints: {json.dumps(example, separators=(',', ':'))}"
            )


def _check_complete(bound: AtOffsets, ranges: Mapping[str, StreamRanges]) -> None:
    for name, offsets in bound.offsets.items():
        stream = ranges.get(name)
        for number in offsets:
            if stream is None or number not in stream.partitions:
                raise AmqpOptionError(
                    f"option {bound.option!r}: {name}::{number} is not read; the partitions read"
                    f" are {_listed(ranges)}"
                )
    for name, stream in ranges.items():
        for number in stream.partitions:
            if number not in bound.offsets.get(name, {}):
                raise AmqpOptionError(
                    f"option {bound.option!r}: it leaves out {name}::{number}; it has to give an"
                    f" offset for each of {_listed(ranges)}; {bound.places}"
                )


def _at_time(bound: AtTime, stream: StreamRanges, service: StreamService) -> dict[int, int]:
    late = [
        number
        for number, there in stream.partitions.items()
        if there.first == there.next or there.last_time is None or there.last_time < bound.time
    ]
    if late and bound.otherwise == "error":
        raise AmqpOptionError(
            f"option 'startingTimestamp': {bound.time}: {_shown(stream.name, late[0])} has no"
            " record of that time or later; with 'startingOffsetsByTimestampStrategy' = latest it"
            " is read from its end on"
        )
    found = service.at_time(
        stream.name,
        {number: bound.time for number in stream.partitions if number not in late},
    )
    return {number: found.get(number, there.next) for number, there in stream.partitions.items()}


def _shown(key: str, number: int) -> str:
    broker = broker_of(key)
    return f"{name_of(key)}::{number}" + (f" at the broker {broker!r}" if broker else "")


def _listed(ranges: Mapping[str, StreamRanges]) -> str:
    names = [f"{name}::{number}" for name in sorted(ranges) for number in ranges[name].partitions]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
