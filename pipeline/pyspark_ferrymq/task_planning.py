"""From offsets to tasks, and how much of what there is goes into a batch.

All of it is decided by offsets and options alone, so that a batch that is done again has the same
tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition of a stream from `first` to before `until`."""

    stream: str
    incarnation: str
    partition: int
    first: int
    until: int

    def __len__(self) -> int:
        return max(self.until - self.first, 0)

    def __str__(self) -> str:
        return f"{self.stream}::{self.partition} from {self.first} to before {self.until}"


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    range: OffsetRange

    def __init__(self, range: OffsetRange) -> None:
        super().__init__(None)
        self.range = range


def plan(
    ranges: Sequence[OffsetRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Ranges of tasks: those given, but none that is empty, in parts where there are limits.

    None has more than `max_records`, and there are `min_partitions` at least, as far as there are
    records: the one with the largest parts is cut once more until there are enough. Parts of a
    range follow one another and differ by one record at most.
    """
    found = [each for each in ranges if len(each)]
    parts = [1 if max_records is None else -(-len(each) // max_records) for each in found]
    missing = 0 if min_partitions is None else min_partitions - sum(parts)
    if missing > 0:
        # The largest part first; of equals the first range.
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
    return [
        OffsetRange(whole.stream, whole.incarnation, whole.partition, edges[i], edges[i + 1])
        for i in range(parts)
    ]


def apportion(sizes: Sequence[int], limit: int, turn: int = 0) -> list[int]:
    """Share out `limit` among what is of these sizes: as much in all, or everything.

    Shares are proportional to sizes, but everything that is not empty gets one at least. If there
    are more than `limit`, some get one and the others nothing: those whose turn it is.
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
    # One each, and of the rest in proportion to what is left of each.
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
