"""The range that `read_capture` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpOptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ferrymq.capture import CaptureName


@dataclass(frozen=True)
class CaptureRange:
    """A range with times, or offsets by partition, or neither, at each end; the end is excluded."""

    after: datetime | None = None
    before: datetime | None = None
    first: Mapping[int, int] = field(default_factory=dict)
    next: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, start: datetime | Mapping[int, int] | None, end: datetime | Mapping[int, int] | None
    ) -> CaptureRange:
        """Make a range from the arguments of `read_capture`. Raises `AmqpOptionError`."""
        bounds = cls(
            _time("start", start), _time("end", end), _offsets("start", start), _offsets("end", end)
        )
        if bounds.after is not None and bounds.before is not None and bounds.before < bounds.after:
            raise AmqpOptionError(f"end: {bounds.before} is before start, {bounds.after}")
        for partition, offset in bounds.next.items():
            if offset < bounds.first.get(partition, 0):
                raise AmqpOptionError(
                    f"end: partition {partition} ends at {offset}, before it begins, at"
                    f" {bounds.first[partition]}"
                )
        return bounds

    def are_behind(self, name: CaptureName) -> bool:
        """Return whether all records of a file are older than this range, according to its hour."""
        return self.after is not None and name.hour < _hour(self.after)

    def are_before(self, name: CaptureName) -> bool:
        """Return whether all records of a file are younger than this range."""
        return self.before is not None and name.hour > _hour(self.before)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the rows whose times are in this range."""
        from pyspark.sql import functions as f

        if self.after is not None:
            frame = frame.where(f.col("enqueuedTime") >= f.lit(self.after))
        if self.before is not None:
            frame = frame.where(f.col("enqueuedTime") < f.lit(self.before))
        return frame


def _hour(time: datetime) -> int:
    return int((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() // 3600)


def _time(name: str, bound: object) -> datetime | None:
    if not isinstance(bound, datetime):
        return None
    if bound.tzinfo is None:
        raise AmqpOptionError(f"{name}: {bound} has no time zone; give a datetime with one")
    return bound


def _offsets(name: str, bound: object) -> dict[int, int]:
    if bound is None or isinstance(bound, datetime):
        return {}
    if not isinstance(bound, Mapping):
        raise AmqpOptionError(
            f"{name}: {bound!r} is neither a datetime nor offsets by partition, such as {{0: 100}}"
        )
    for partition, offset in bound.items():
        for each in (partition, offset):
            if isinstance(each, bool) or not isinstance(each, int) or each < 0:
                raise AmqpOptionError(
                    f"{name}: {bound!r}: partitions and offsets are numbers from 0"
                )
    return dict(bound)
