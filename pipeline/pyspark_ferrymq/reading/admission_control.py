"""The end of a batch: all available records, or fewer if a limit applies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark_ferrymq.offsets import Offset, PartitionOffset
from pyspark_ferrymq.spark_api import ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark_ferrymq.stream_metadata import StreamRanges, StreamService
from pyspark_ferrymq.task_planning import apportion

if TYPE_CHECKING:
    from collections.abc import Sequence


class Backlog(NamedTuple):
    """The unread records of a partition, from `at` to before `until`, of about `size` bytes.
    `start` is the position of the query, which is before `at` if records are gone."""

    stream: str
    partition: int
    start: int
    at: int
    until: int
    size: int


def backlog(start: Offset, ranges: Mapping[str, StreamRanges]) -> list[Backlog]:
    """Return the backlog by stream and partition, in order. Partitions that the query does not know
    yet, and those of a stream that was made again, begin with their first record."""
    found: list[Backlog] = []
    for name in sorted(ranges):
        stream = ranges[name]
        position = start.streams.get(name)
        known = (
            position.partitions
            if position is not None and position.incarnation == stream.incarnation
            else {}
        )
        for number in sorted(stream.partitions):
            there = stream.partitions[number]
            begin = min(known.get(number, 0), there.next)
            at = max(begin, there.first)
            records = there.next - there.first
            # Records are assumed to have equal sizes.
            size = there.size * (there.next - at) // records if records else 0
            found.append(Backlog(name, number, begin, at, there.next, max(size, there.next - at)))
    return found


def end_of(
    found: Sequence[Backlog],
    ranges: Mapping[str, StreamRanges],
    limit: ReadLimit,
    service: StreamService,
) -> Offset:
    """Return the end of a batch that takes as much of the backlog as the limit allows.

    `ReadMaxRows` and `ReadMaxBytes` are divided in proportion to the backlogs. Bytes are rounded up
    to whole records, at least one, so each partition may exceed its share by one record.
    """
    ends = {(each.stream, each.partition): each.until for each in found}
    turn = sum(each.at for each in found)
    if isinstance(limit, ReadMaxRows):
        shares = apportion([each.until - each.at for each in found], limit.max_rows, turn)
        for each, share in zip(found, shares, strict=True):
            waits = share == 0 and each.at < each.until
            ends[each.stream, each.partition] = each.start if waits else each.at + share
    elif isinstance(limit, ReadMaxBytes):
        sizes = [each.size if each.until > each.at else 0 for each in found]
        if sum(sizes) > limit.max_bytes:
            ends.update(_by_bytes(found, apportion(sizes, limit.max_bytes, turn), service))
    streams: dict[str, dict[int, int]] = {name: {} for name in sorted(ranges)}
    for (name, number), end in ends.items():
        streams[name][number] = end
    return Offset(
        {
            name: PartitionOffset(ranges[name].incarnation, offsets)
            for name, offsets in streams.items()
        }
    )


def _by_bytes(
    found: Sequence[Backlog], shares: Sequence[int], service: StreamService
) -> dict[tuple[str, int], int]:
    places: dict[str, dict[int, tuple[int, int]]] = {}
    ends: dict[tuple[str, int], int] = {}
    for each, share in zip(found, shares, strict=True):
        if share:
            places.setdefault(each.stream, {})[each.partition] = (each.at, share)
        else:
            waits = each.at < each.until
            ends[each.stream, each.partition] = each.start if waits else each.until
    for name, wanted in places.items():
        for number, offset in service.behind(name, wanted).items():
            ends[name, number] = offset
    for each in found:
        key = each.stream, each.partition
        ends[key] = min(ends[key], each.until)
    return ends
