"""The bounds of a batch in offsets: where it begins in a partition, and what of its end exists."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_ferrymq.offsets import Offset, PartitionOffset, broker_of
from pyspark_ferrymq.stream_metadata import StreamRanges


def begin_of(
    start: Offset, name: str, position: PartitionOffset, number: int, planned_here: bool
) -> int:
    """Return the start of a batch in a partition; a new partition or stream begins at its first
    record.

    A pinned start has just been decided again, because the empty first batch of an older release is
    repeated. Streams that were made again in the meantime have no records in this batch.
    """
    before = start.streams.get(name)
    if broker_of(name) and broker_of(name) not in start.brokers:
        # The batch in which a new broker is found reads nothing from it.
        return position.partitions[number]
    if before is None or before.incarnation != position.incarnation:
        return 0 if planned_here or not start.pin else position.partitions[number]
    return before.partitions.get(number, 0)


def ends_of(ranges: Mapping[str, StreamRanges]) -> Offset:
    """Return the offset after the last record of each partition."""
    return Offset(
        {
            name: PartitionOffset(
                stream.incarnation,
                {number: there.next for number, there in stream.partitions.items()},
            )
            for name, stream in ranges.items()
        }
    )


def within(end: Offset, found: Mapping[str, StreamRanges]) -> Offset:
    """Return the end of a batch limited to existing records: later ones may never come."""
    streams: dict[str, PartitionOffset] = {}
    for name, position in end.streams.items():
        stream = found.get(name)
        if stream is None or stream.incarnation != position.incarnation:
            continue
        streams[name] = PartitionOffset(
            position.incarnation,
            {
                number: min(offset, stream.partitions[number].next)
                for number, offset in position.partitions.items()
                if number in stream.partitions
            },
        )
    return Offset(streams)
