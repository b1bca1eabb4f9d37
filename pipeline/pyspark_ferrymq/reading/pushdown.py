"""Filters that Spark would apply to rows: ranges made narrower, and a selector for the broker.

What is said of `address`, `partition`, `offset` and `enqueuedTime` becomes ranges of offsets, and
Spark need not look again. What is said of fields of the properties that are strings becomes a
selector; Spark applies it once more, because the broker can read a field of a message that is
malformed elsewhere, which has no value in any column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_ferrymq.metadata import Service
from pyspark_ferrymq.planning import Range
from pyspark_ferrymq.reading.batch import BatchReader
from pyspark_ferrymq.reading.selectors import LONGEST, selector_of

if TYPE_CHECKING:
    from pyspark_ferrymq.options import SourceOptions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# Columns that are never null.
_POSITION: Final = ("address", "partition", "offset", "enqueuedTime")
# Times a record can have, in milliseconds.
_EARLIEST: Final = -(1 << 62)


@dataclass
class Bounds:
    """What has to be true of the place of a record. Times are in milliseconds since the epoch."""

    first: int = 0
    until: int | None = None
    since: int | None = None
    before: int | None = None
    # Conditions for a stream, and for the number of a partition.
    streams: list[Callable[[str], bool]] = field(default_factory=list)
    partitions: list[Callable[[int], bool]] = field(default_factory=list)

    def add(self, filter: Filter) -> bool:
        """Take in a filter; False if it says nothing of places, or something that is no range."""
        if isinstance(filter, IsNotNull):
            return filter.attribute in [(name,) for name in _POSITION]
        if not isinstance(
            filter,
            EqualTo
            | EqualNullSafe
            | GreaterThan
            | GreaterThanOrEqual
            | LessThan
            | LessThanOrEqual
            | In,
        ):
            return False
        values = list(filter.value) if isinstance(filter, In) else [filter.value]
        if filter.attribute == ("offset",) and _all(values, int):
            return self._offset(filter, values)
        if filter.attribute == ("enqueuedTime",) and _all(values, datetime):
            return self._time(filter, values)
        if filter.attribute == ("partition",) and _all(values, int):
            self.partitions.append(_Holds(filter, values))
            return True
        if filter.attribute == ("address",) and _all(values, str):
            if isinstance(filter, EqualTo | EqualNullSafe | In):
                self.streams.append(_Holds(filter, values))
                return True
        return False

    def _offset(self, filter: Filter, values: Sequence[int]) -> bool:
        low, high = min(values), max(values)
        if isinstance(filter, GreaterThan):
            self.first = max(self.first, low + 1)
        elif isinstance(filter, GreaterThanOrEqual):
            self.first = max(self.first, low)
        elif isinstance(filter, LessThan):
            self.until = high if self.until is None else min(self.until, high)
        elif isinstance(filter, LessThanOrEqual):
            self.until = high + 1 if self.until is None else min(self.until, high + 1)
        else:
            self.first = max(self.first, low)
            self.until = high + 1 if self.until is None else min(self.until, high + 1)
        # Of offsets that are listed, Spark takes its pick.
        return not isinstance(filter, In) or high - low + 1 == len(set(values))

    def _time(self, filter: Filter, values: Sequence[datetime]) -> bool:
        if any(value.tzinfo is None for value in values):
            return False
        low, high = min(values) - _EPOCH, max(values) - _EPOCH
        # Records have whole milliseconds.
        if isinstance(filter, GreaterThan):
            self._since(low // _MILLISECOND + 1)
        elif isinstance(filter, GreaterThanOrEqual):
            self._since(-(-low // _MILLISECOND))
        elif isinstance(filter, LessThan):
            self._before(-(-high // _MILLISECOND))
        elif isinstance(filter, LessThanOrEqual):
            self._before(high // _MILLISECOND + 1)
        else:
            self._since(-(-low // _MILLISECOND))
            self._before(high // _MILLISECOND + 1)
        return not isinstance(filter, In) or low == high

    def _since(self, time: int) -> None:
        self.since = time if self.since is None else max(self.since, time)

    def _before(self, time: int) -> None:
        self.before = time if self.before is None else min(self.before, time)

    def narrow(self, ranges: Iterable[Range], service: Service) -> list[Range]:
        """What is left of the ranges."""
        left = [
            Range(
                each.stream,
                each.incarnation,
                each.partition,
                max(each.first, self.first),
                each.until if self.until is None else min(each.until, self.until),
            )
            for each in ranges
            if all(holds(each.stream) for holds in self.streams)
            and all(holds(each.partition) for holds in self.partitions)
        ]
        for time, is_end in ((self.since, False), (self.before, True)):
            if time is not None:
                left = _cut_at(left, max(time, _EARLIEST), is_end, service)
        return left


@dataclass(frozen=True)
class _Holds:
    """Whether a filter is true of a value."""

    filter: Filter
    values: list[object]

    def __call__(self, value: object) -> bool:
        if isinstance(self.filter, EqualTo | EqualNullSafe | In):
            return value in self.values
        assert isinstance(value, int)
        bound = self.values[0]
        assert isinstance(bound, int)
        if isinstance(self.filter, GreaterThan):
            return value > bound
        if isinstance(self.filter, GreaterThanOrEqual):
            return value >= bound
        if isinstance(self.filter, LessThan):
            return value < bound
        return value <= bound


def _all(values: Sequence[object], kind: type) -> bool:
    return bool(values) and all(
        isinstance(value, kind) and not isinstance(value, bool) for value in values
    )


def _cut_at(ranges: list[Range], time: int, is_end: bool, service: Service) -> list[Range]:
    """Ranges that end, or else begin, with the first record of a time or later."""
    places: dict[str, dict[int, int]] = {}
    for each in ranges:
        places.setdefault(each.stream, {})[each.partition] = time
    found = {name: service.at_time(name, times) for name, times in places.items()}
    cut: list[Range] = []
    for each in ranges:
        at = found[each.stream][each.partition]
        first = each.first if is_end else max(each.first, at)
        until = min(each.until, at) if is_end else each.until
        cut.append(Range(each.stream, each.incarnation, each.partition, first, until))
    return cut


class FilteringReader(BatchReader):
    """A reader that takes filters. Needs ``spark.sql.python.filterPushdown.enabled``."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self.bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take in what can be; those that Spark still has to apply."""
        conditions: list[str] = []
        length = 0
        rest: list[Filter] = []
        for filter in filters:
            if self.bounds.add(filter):
                continue
            rest.append(filter)
            condition = selector_of(filter)
            if condition is not None and length + len(condition) <= LONGEST:
                conditions.append(condition)
                length += len(condition) + len(" AND ")
        self.selector = " AND ".join(conditions) or None
        return rest

    def ranges(self, service: Service) -> list[Range]:
        """What is to be read."""
        return self.bounds.narrow(super().ranges(service), service)
