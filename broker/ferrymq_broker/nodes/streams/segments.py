"""Extents and segments: runs of records, the row of runs, and when the next run begins.

A record in a segment costs its payload, which is the object that arrived, and two numbers: segments
have no object for each record that the garbage collector would have to visit.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

from librt.vecs import append, vec
from mypy_extensions import i64

# No limit.
ENDLESS: Final = 0x7FFF_FFFF_FFFF_FFFF

# Extents that have gone from the front are removed from the list in batches of at least this many.
SLACK: Final = 64


class Extent:
    """A run of `count` records without gaps; `first` is the offset of the first record.

    `bytes` is the size of their payloads; `began` and `ended` are the dates on which the first and
    the last record were appended. `moment` is `ended` by `Agenda.now`, which retention uses because
    the wall clock can be set.
    """

    __slots__ = ("first", "count", "bytes", "began", "ended", "moment")

    def __init__(self, first: i64) -> None:
        self.first: i64 = first
        self.count: i64 = 0
        self.bytes: i64 = 0
        self.began: i64 = 0
        self.ended: i64 = 0
        self.moment: i64 = 0


@final
class LogSegment(Extent):
    """A run of records in memory.

    `payloads` are the encoded messages, `times` when they were appended (milliseconds since the
    epoch, never falling), `origins` the numbers of the connections that brought them. `formats` has
    the message-formats that are not 0, by index. `dropped` is set when the records are gone, from
    the log or only from memory: a reader that still points here asks the log for its offset again.

    `add` does not change `count` and `ended`, because added records may not be visible yet.
    """

    __slots__ = ("payloads", "times", "origins", "formats", "dropped")

    def __init__(self, first: i64) -> None:
        super().__init__(first)
        self.payloads: list[bytes] = []
        self.times: vec[i64] = vec[i64]()
        self.origins: vec[i64] = vec[i64]()
        self.formats: dict[int, int] | None = None
        self.dropped: bool = False

    def add(self, index: i64, payload: bytes, time: i64, origin: i64, format: i64) -> None:
        """Add a record behind the others; it gets this index."""
        self.payloads.append(payload)
        self.times = append(self.times, time)
        self.origins = append(self.origins, origin)
        self.bytes += len(payload)
        if format != 0:
            formats = self.formats
            if formats is None:
                formats = {}
                self.formats = formats
            formats[index] = format

    def index_at(self, time: i64) -> i64:
        """Return the index of the first record that was appended at `time` or later; `count` if
        there is none."""
        low: i64 = 0
        high = self.count
        while low < high:
            middle = (low + high) // 2
            if self.times[middle] < time:
                low = middle + 1
            else:
                high = middle
        return low

    def drop(self) -> list[bytes]:
        """Drop the records and return their payloads, because freeing many of them takes long."""
        payloads = self.payloads
        self.dropped = True
        self.payloads = []
        self.times = vec[i64]()
        self.origins = vec[i64]()
        self.formats = None
        return payloads


@final
class Division:
    """The rule for when a record begins another extent: when the last extent would exceed `bytes`,
    has `records` records, or has a first record that is `span` milliseconds old."""

    __slots__ = ("bytes", "records", "span", "_until")

    def __init__(self, bytes: i64, records: i64, span: i64) -> None:
        self.bytes: i64 = bytes
        self.records: i64 = records
        self.span: i64 = span
        # When the last extent must be closed.
        self._until: i64 = ENDLESS

    def change(self, bytes: i64, records: i64, span: i64) -> None:
        """Use other limits from now on."""
        self.bytes = bytes
        self.records = records
        self.span = span

    def is_full(self, extent: Extent, size: i64, now: i64) -> bool:
        """Return whether a record of this size must begin another extent."""
        return (
            extent.bytes + size > self.bytes or extent.count >= self.records or now >= self._until
        )

    def begin(self, extent: Extent, time: i64, now: i64) -> None:
        """Begin the extent with its first record, which was appended at `time`."""
        extent.began = time
        span = self.span
        self._until = ENDLESS if span == ENDLESS else now + span


ExtentType = TypeVar("ExtentType", bound=Extent)


@final
class RecordRow(Generic[ExtentType]):
    """A row of consecutive extents, at least one: those in `extents` from `head` on."""

    __slots__ = ("extents", "head")

    def __init__(self, only: ExtentType) -> None:
        # Extents before `head` are gone.
        self.extents: list[ExtentType] = [only]
        self.head: i64 = 0

    def restart(self, only: ExtentType) -> None:
        """Keep only this extent."""
        self.extents = [only]
        self.head = 0

    def front(self) -> ExtentType:
        """Return the first extent."""
        return self.extents[self.head]

    def drop_front(self) -> None:
        """Drop the first extent, which is not the only one."""
        self.head += 1
        if self.head >= SLACK and self.head * 2 >= len(self.extents):
            del self.extents[: self.head]
            self.head = 0

    def index_of(self, offset: i64) -> i64:
        """Return the index in `extents` of the extent with an offset: the last one that begins
        there or before."""
        extents = self.extents
        low = self.head
        high: i64 = len(extents)
        while high - low > 1:
            middle = (low + high) // 2
            if extents[middle].first <= offset:
                low = middle
            else:
                high = middle
        return low

    def find(self, offset: i64) -> ExtentType:
        """Return the extent with an offset: the last one that begins there or before."""
        return self.extents[self.index_of(offset)]

    def overdue(
        self, size: i64, end: i64, offset: i64, max_bytes: i64, max_records: i64, before: i64
    ) -> i64:
        """Return the bytes of extents, from that of `offset` on, that are beyond the limits.

        The row has `size` bytes and ends before `end`. The limits are the last `max_bytes`, the
        last `max_records`, and the time after the moment `before`. An extent that is beyond any one
        of these limits is dropped.
        """
        extents = self.extents
        found: i64 = 0
        i = self.head
        while i < len(extents):
            extent = extents[i]
            after = extent.first + extent.count
            size -= extent.bytes
            if extent.count == 0 or after > end:
                break
            if size < max_bytes and end - after < max_records and extent.moment > before:
                break
            if after > offset:
                found += extent.bytes
            i += 1
        return found

    def find_time(self, time: i64) -> ExtentType | None:
        """Return the first extent that does not end before `time`; None if all end before it."""
        extents = self.extents
        low = self.head
        high: i64 = len(extents)
        while low < high:
            middle = (low + high) // 2
            extent = extents[middle]
            if extent.count > 0 and extent.ended < time:
                low = middle + 1
            else:
                high = middle
        return extents[low] if low < len(extents) else None
