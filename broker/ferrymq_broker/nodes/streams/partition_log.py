"""The log of one partition: its records in order, where they begin, and how they are found.

A log is a row of segments. A record is appended to the last segment; old records are dropped in
whole segments, from the front.

`PartitionLog` is the interface for partitions and readers; `MemoryLog` keeps everything in memory,
`StoredLog` does not have to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.streams.segments import Division, Extent, LogSegment, RecordRow
from ferrymq_broker.nodes.streams.size_estimate import SizeEstimate
from ferrymq_broker.slices import Disposal, Slices

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage


class PartitionLog:
    """The log of a partition: offsets are from 0 without gaps; records from `first` to before
    `next` may be read.

    `bytes` is the size of the payloads of all readable records. A log that keeps records elsewhere
    returns segments with these records in memory. A log may have records that nobody may see yet:
    they are not counted here, but `next` is before them and their offsets are taken.
    """

    __slots__ = ("first", "next", "bytes")

    def __init__(self) -> None:
        self.first: i64 = 0
        self.next: i64 = 0
        self.bytes: i64 = 0

    def divide(self, segment_bytes: i64, segment_records: i64, segment_span: i64) -> None:
        """From now on, close a segment when it has so many bytes or records, or is so old."""

    def append(self, message: BrokerMessage, time: i64, now: i64) -> None:
        """Append a record with the next offset, at the moment `now`.

        Its date is `time`, or the date of the last record if that is later.
        """

    def find(self, offset: i64) -> LogSegment:
        """Return the segment with the record at an offset between `first` and `next`, both
        included.

        For `next` that is the segment in which it will be, or the one that ends there. Raises
        `StoreDamaged` if the record is kept elsewhere and cannot be read.
        """
        return LogSegment(offset)

    def offset_at(self, time: i64) -> i64:
        """Return the offset of the first record that was appended at `time` or later; `next` if
        there is none."""
        return self.next

    def reach(self, offset: i64, size: i64) -> i64:
        """Return the end of the records from `offset` on that have at most `size` bytes: at least
        one record, and at most up to `next`. `offset` is between `first` and `next`, both included.

        Records that are not in memory count with the average size of their extent.
        """
        return offset

    def began(self) -> i64:
        """Return when the first record was appended; the log must not be empty."""
        return 0

    def ended(self) -> i64:
        """Return when the last record was appended; the log must not be empty."""
        return 0

    def oldest(self) -> Extent | None:
        """Return the extent that is dropped next; None if there is none."""
        return None

    def overdue(self, offset: i64, max_bytes: i64, max_records: i64, before: i64) -> i64:
        """Return the bytes, from about an offset on, that are beyond the limits: see
        `RecordRow.overdue`."""
        return 0

    def trim(self, slices: Slices) -> i64:
        """Drop the `oldest` extent and free it in slices; return how many bytes of memory that
        is."""
        return 0

    def trimmed(self) -> None:
        """Store which records were dropped; called after the last `trim` of a pass."""

    def doom(self) -> i64:
        """Mark all records to be dropped by `trim`; return how many there are."""
        return self.next - self.first


@final
class MemoryLog(PartitionLog):
    """A log in memory, divided as `Division` says."""

    __slots__ = ("_division", "_row", "_tail", "_time")

    # Attributes of `PartitionLog` that the methods assign: their types for type checkers.
    first: i64
    next: i64

    def __init__(self, segment_bytes: i64, segment_records: i64, segment_span: i64) -> None:
        super().__init__()
        self._division = Division(segment_bytes, segment_records, segment_span)
        self._tail = LogSegment(0)
        self._row: RecordRow[LogSegment] = RecordRow(self._tail)
        # When the last record was appended.
        self._time: i64 = 0

    def divide(self, segment_bytes: i64, segment_records: i64, segment_span: i64) -> None:
        """From now on, close segments by these limits."""
        self._division.change(segment_bytes, segment_records, segment_span)

    def append(self, message: BrokerMessage, time: i64, now: i64) -> None:
        """Add a record on the date `time`, at the moment `now`."""
        if time < self._time:
            # The clock was set back; dates of records must not fall.
            time = self._time
        self._time = time
        payload = message.payload
        size: i64 = len(payload)
        tail = self._tail
        count = tail.count
        if count == 0:
            self._division.begin(tail, time, now)
        elif self._division.is_full(tail, size, now):
            tail = LogSegment(self.next)
            self._tail = tail
            self._row.extents.append(tail)
            self._division.begin(tail, time, now)
            count = 0
        tail.add(count, payload, time, message.origin, message.format)
        tail.count = count + 1
        tail.ended = time
        tail.moment = now
        self.bytes += size
        self.next += 1

    def find(self, offset: i64) -> LogSegment:
        """Return the segment with the record at an offset: the last segment that begins there or
        before."""
        return self._row.find(offset)

    def offset_at(self, time: i64) -> i64:
        """Return the offset of the first record that was appended at `time` or later."""
        segment = self._row.find_time(time)
        return self.next if segment is None else segment.first + segment.index_at(time)

    def reach(self, offset: i64, size: i64) -> i64:
        """Return the end of so many bytes from an offset on, exact to the record."""
        segments = self._row.extents
        i = self._row.index_of(offset)
        measure = SizeEstimate(offset, size)
        while i < len(segments) and measure.go_through(segments[i], segments[i]):
            i += 1
        return measure.between(offset, self.next)

    def began(self) -> i64:
        """Return when the first record was appended."""
        return self._row.front().began

    def ended(self) -> i64:
        """Return when the last record was appended."""
        return self._time

    def oldest(self) -> Extent | None:
        """Return the segment at the front."""
        segment = self._row.front()
        return None if segment.count == 0 else segment

    def overdue(self, offset: i64, max_bytes: i64, max_records: i64, before: i64) -> i64:
        """Return the bytes of segments, from the segment of an offset on, that are beyond the
        limits."""
        return self._row.overdue(self.bytes, self.next, offset, max_bytes, max_records, before)

    def trim(self, slices: Slices) -> i64:
        """Drop the segment at the front."""
        segment = self._row.front()
        size = segment.bytes
        self.first = segment.first + segment.count
        self.bytes -= size
        slices.do(Disposal(segment.drop()))
        if segment is self._tail:
            self._tail = LogSegment(self.next)
            self._row.restart(self._tail)
        else:
            self._row.drop_front()
        return size
