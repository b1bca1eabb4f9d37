"""How far a batch goes: what there is, or less where a limit says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from pyspark_ferrymq.offsets import Offset, PartitionOffset
from pyspark_ferrymq.stream_metadata import StreamRanges, StreamService
from pyspark_ferrymq.task_planning import apportion

if TYPE_CHECKING:
    from collections.abc import Sequence


class Backlog(NamedTuple):
    """What a query has not read of a partition: records from `at` to before `until`, of some `size`
    in bytes. `start` is where the query is, before `at` if records are gone."""

    stream: str
    partition: int
    start: int
    at: int
    until: int
    size: int


def backlog(start: Offset, ranges: Mapping[str, StreamRanges]) -> list[Backlog]:
    """By stream and partition, in order. What the query does not know begins with its first record,
    and so does a stream that was made anew."""
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
            # Sizes of records are alike, for this purpose.
            size = there.size * (there.next - at) // records if records else 0
            found.append(Backlog(name, number, begin, at, there.next, max(size, there.next - at)))
    return found


def end_of(
    found: Sequence[Backlog],
    ranges: Mapping[str, StreamRanges],
    limit: ReadLimit,
    service: StreamService,
) -> Offset:
    """Where a batch ends that takes of the backlog as much as the limit says.

    `ReadMaxRows` and `ReadMaxBytes` are shared out in proportion to what there is; bytes are of
    whole records, one at least, so that there may be one more of each partition.
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
