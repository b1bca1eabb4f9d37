"""What a set of capture files covers: ranges of offsets, and what is wrong between them.

In each partition the files are gone through by their first offsets. One that begins where those
before it have ended goes on; one that begins later leaves a gap. One that begins earlier overlaps:

| kind | it has | so |
|---|---|---|
| `SAME` | the offsets of one file before it | one of them is enough |
| `SUBSET` | nothing that those before it do not have | it can be left out |
| `PARTIAL` | some of it, and more | neither can be left out: records are there twice |

Files to be left out are `redundant`; `files` are the others. A file within several, of which none
has it all, is a `SUBSET` too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ferrymq.capture.names import CaptureName

SAME: Final = "same"
SUBSET: Final = "subset"
PARTIAL: Final = "partial"


class Range(NamedTuple):
    """Offsets from `first` to before `next`."""

    first: int
    next: int

    def __str__(self) -> str:
        return f"{self.first}..{self.next}"


class Overlap(NamedTuple):
    """Overlap: `range` are the offsets of `file` that earlier files have already."""

    kind: str
    file: CaptureName
    range: Range


@dataclass
class Coverage:
    """Coverage of one partition by its files.

    `ranges` rise and do not touch; between any two of them there is one of the `gaps`.
    """

    partition: int
    ranges: list[Range] = field(default_factory=list)
    gaps: list[Range] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    files: list[CaptureName] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The first offset that is covered."""
        return self.ranges[0].first

    @property
    def next(self) -> int:
        """The offset after the last one that is covered."""
        return self.ranges[-1].next

    @property
    def redundant(self) -> list[CaptureName]:
        """Files whose records are all in other files."""
        return [overlap.file for overlap in self.overlaps if overlap.kind != PARTIAL]

    @property
    def partial(self) -> list[Overlap]:
        """Overlaps that cannot be removed by leaving out files."""
        return [overlap for overlap in self.overlaps if overlap.kind == PARTIAL]

    def covers(self, first: int, next: int) -> bool:
        """Return whether all offsets from `first` to before `next` are covered."""
        return any(range.first <= first and next <= range.next for range in self.ranges)

    def missing(self, first: int, next: int) -> list[Range]:
        """Return the offsets from `first` to before `next` that are not covered."""
        found: list[Range] = []
        at = first
        for range in self.ranges:
            if range.next <= at:
                continue
            if range.first >= next:
                break
            if range.first > at:
                found.append(Range(at, range.first))
            at = range.next
        if at < next:
            found.append(Range(at, next))
        return found

    def _add(self, file: CaptureName) -> None:
        if not self.ranges:
            self.ranges.append(Range(file.first, file.next))
            self.files.append(file)
            return
        begun, end = self.ranges[-1]
        if file.next <= end:
            known = self.files[-1]
            same = (known.first, known.last) == (file.first, file.last)
            kind = SAME if same else SUBSET
            self.overlaps.append(Overlap(kind, file, Range(file.first, file.next)))
            return
        self.files.append(file)
        if file.first > end:
            self.gaps.append(Range(end, file.first))
            self.ranges.append(Range(file.first, file.next))
            return
        if file.first < end:
            self.overlaps.append(Overlap(PARTIAL, file, Range(file.first, end)))
        self.ranges[-1] = Range(begun, file.next)


def coverage(names: Iterable[CaptureName]) -> dict[int, Coverage]:
    """Return the coverage by partition; partitions without files are left out."""
    by_partition: dict[int, list[CaptureName]] = defaultdict(list)
    for name in names:
        by_partition[name.partition].append(name)
    found: dict[int, Coverage] = {}
    for partition in sorted(by_partition):
        covered = Coverage(partition)
        # Of files that begin together the longest comes first: the others lie within it.
        for name in sorted(by_partition[partition], key=_order):
            covered._add(name)
        found[partition] = covered
    return found


def _order(name: CaptureName) -> tuple[int, int, int]:
    return name.first, -name.last, name.hour
