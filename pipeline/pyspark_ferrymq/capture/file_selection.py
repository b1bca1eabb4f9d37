"""The choice of files for `read_capture`, the boundary to the broker, and missing offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ferrymq.capture import CaptureName, Coverage, Range
from pyspark_ferrymq.errors import AmqpDataLossError

if TYPE_CHECKING:
    from pyspark_ferrymq.capture.capture_range import CaptureRange
    from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges

LOGGER: Final = logging.getLogger("pyspark_ferrymq")


@dataclass
class Cut:
    """The part of a partition that is read: from `files` the offsets from `first` to before
    `boundary`, and from the broker the offsets from `boundary` to before `next`."""

    partition: int
    first: int
    boundary: int
    next: int
    files: list[CaptureName] = field(default_factory=list)


def cut_files(
    stream: str,
    covered: Mapping[int, Coverage],
    bounds: CaptureRange,
    live: StreamRanges | None,
    fail: bool,
) -> list[Cut]:
    """Return a `Cut` for each partition. Raises `AmqpDataLossError` for records that are in two
    files and, if `fail` is true, for missing records."""
    numbers = set(covered) | set(bounds.first) | set(bounds.next)
    if live is not None:
        numbers |= set(live.partitions)
    cuts: list[Cut] = []
    for number in sorted(numbers):
        there = None if live is None else live.partitions.get(number)
        cutter = _Cutter(stream, number, covered.get(number), there, bounds)
        cuts.append(cutter.cut())
        cutter.report(fail)
    return cuts


class _Cutter:
    def __init__(
        self,
        stream: str,
        number: int,
        covered: Coverage | None,
        live: PartitionRange | None,
        bounds: CaptureRange,
    ) -> None:
        self.where = f"stream {stream!r}, partition {number}"
        self.number = number
        self.covered = covered
        self.live = live
        self.bounds = bounds
        self.missing: list[Range] = []

    def cut(self) -> Cut:
        """Return the part of the partition that is read."""
        covered, live, bounds = self.covered, self.live, self.bounds
        if covered is None:
            first = 0 if live is None else live.first
            end = 0 if live is None else live.next
        else:
            first = covered.first
            end = covered.next if live is None else max(covered.next, live.next)
        first = bounds.first.get(self.number, first)
        next = bounds.next.get(self.number, max(end, first))
        boundary = first if covered is None else min(max(covered.next, first), next)
        if live is None:
            if next > boundary:
                self.missing.append(Range(boundary, next))
            next = boundary
        elif next > boundary:
            self._check_live(live, boundary, next)
        cut = Cut(self.number, first, boundary, next)
        if covered is not None and first < boundary:
            self._choose(covered, cut)
        return cut

    def _check_live(self, live: PartitionRange, boundary: int, next: int) -> None:
        if live.first > boundary:
            self.missing.append(Range(boundary, min(live.first, next)))
        if live.next < next:
            self.missing.append(Range(max(boundary, live.next), next))

    def _choose(self, covered: Coverage, cut: Cut) -> None:
        chosen: list[CaptureName] = []
        # With times, the gap between an older and a younger file may be part of the range.
        begun, end = cut.first, cut.boundary
        for name in covered.files:
            if name.next <= cut.first or name.first >= cut.boundary:
                continue
            if self.bounds.are_behind(name):
                begun = max(begun, name.next)
            elif self.bounds.are_before(name):
                end = min(end, name.first)
            else:
                chosen.append(name)
        cut.files = chosen
        for overlap in covered.partial:
            if overlap.file in chosen and overlap.range.next > cut.first:
                raise AmqpDataLossError(
                    f"{self.where}: the offsets from {overlap.range.first} to before"
                    f" {overlap.range.next} are in {overlap.file.path} and in the file before it."
                    " Two captures wrote to one folder: move the files of one of them away"
                )
        self.missing += covered.missing(begun, end)

    def report(self, fail: bool) -> None:
        """Raise `AmqpDataLossError` for what is missing, or log it."""
        if not self.missing:
            return
        ranges = ", ".join(
            f"from {each.first} to before {each.next}" for each in sorted(self.missing)
        )
        there = "no files" if self.covered is None else f"files {_all(self.covered)}"
        if self.live is not None:
            there += f", the broker {self.live.first}..{self.live.next}"
        text = f"{self.where}: the offsets {ranges} are missing; there are {there}"
        if fail:
            raise AmqpDataLossError(
                f"{text}. To read the available records, set fail_on_data_loss to False; to also"
                " read from the broker, give a url"
            )
        LOGGER.warning("%s; they are skipped", text)


def _all(covered: Coverage) -> str:
    return ", ".join(map(str, covered.ranges))
