"""The split of offset ranges into tasks, and the limit of a batch.

Both depend only on offsets and options, so that a repeated batch has the same tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition of a stream from `first` to before `until`. `broker` is the id
    of the stream's broker if there are several."""

    stream: str
    incarnation: str
    partition: int
    first: int
    until: int
    broker: str = ""

    def __len__(self) -> int:
        return max(self.until - self.first, 0)

    def __str__(self) -> str:
        at = f" at the broker {self.broker!r}" if self.broker else ""
        return f"{self.stream}::{self.partition}{at} from {self.first} to before {self.until}"


@dataclass
class RangePartition(InputPartition):
    """The range that one task reads. `connection` is that of the range's broker, None for the one
    that the options of the reader name."""

    range: OffsetRange
    connection: BrokerOptions | None = None

    def __init__(self, range: OffsetRange, connection: BrokerOptions | None = None) -> None:
        super().__init__(None)
        self.range = range
        self.connection = connection


def plan(
    ranges: Sequence[OffsetRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Return the ranges of tasks: the given ranges that are not empty, split where limits apply.

    No range has more than `max_records` records. There are at least `min_partitions` ranges if
    there are enough records: the range with the largest parts is split once more until there are
    enough. Parts of a range follow one another and differ by at most one record.
    """
    found = [each for each in ranges if len(each)]
    parts = [1 if max_records is None else -(-len(each) // max_records) for each in found]
    missing = 0 if min_partitions is None else min_partitions - sum(parts)
    if missing > 0:
        # The largest part first; among equal ones the first range.
        heap = [(-len(each) / n, i) for i, (each, n) in enumerate(zip(found, parts, strict=True))]
        heapq.heapify(heap)
        while missing > 0 and heap:
            _, i = heapq.heappop(heap)
            if parts[i] == len(found[i]):
                continue
            parts[i] += 1
            missing -= 1
            heapq.heappush(heap, (-len(found[i]) / parts[i], i))
    return [part for each, n in zip(found, parts, strict=True) for part in _cut(each, n)]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    size = len(whole)
    edges = [whole.first + size * i // parts for i in range(parts + 1)]
    return [replace(whole, first=edges[i], until=edges[i + 1]) for i in range(parts)]


def apportion(sizes: Sequence[int], limit: int, turn: int = 0) -> list[int]:
    """Divide `limit` among items of these sizes. The shares add up to `limit`, or are the sizes if
    these add up to less.

    Shares are proportional to sizes, but each item that is not empty gets at least one. If there
    are more items than `limit`, `turn` decides which get one; the others get nothing.
    """
    total = sum(sizes)
    if limit >= total:
        return list(sizes)
    some = [i for i, size in enumerate(sizes) if size]
    shares = [0] * len(sizes)
    if limit <= len(some):
        for k in range(limit):
            shares[some[(turn + k) % len(some)]] = 1
        return shares
    # Each item gets one; the rest is divided in proportion to what remains of each.
    rest = limit - len(some)
    left = total - len(some)
    given = 0
    passed = 0
    for i in some:
        passed += sizes[i] - 1
        upto = rest * passed // left
        shares[i] = 1 + upto - given
        given = upto
    return shares
