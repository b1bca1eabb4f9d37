"""The records of one partition, in order: what is kept, where it begins, how it is found.

A log is a row of segments. A record is appended to the last one; what is too old goes by whole
segments, from the front. A record costs its payload, which is the very object that arrived, and two
numbers: segments hold no object for a record that the garbage collector would have to look at.

`Log` is what partitions and readers know; `MemoryLog` keeps everything in memory, `StoredLog` does
not have to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import Message

# No limit.
ENDLESS: Final = 0x7FFF_FFFF_FFFF_FFFF

# Segments that have gone from the front are taken out of the row in batches of at least this many.
SLACK: Final = 64


class Extent:
    """A run of `count` records without gaps, of which `first` is the offset of the first.

    `bytes` is the size of their payloads together.
    """

    __slots__ = ("first", "count", "bytes")

    def __init__(self, first: i64) -> None:
        self.first: i64 = first
        self.count: i64 = 0
        self.bytes: i64 = 0

    def last_time(self) -> i64:
        """When the last record was appended; there has to be one."""
        return 0


@final
class Segment(Extent):
    """A run of records in memory.

    `payloads` are the encoded messages, `times` when they were appended (milliseconds since the
    epoch, never falling), `origins` the numbers of the connections that brought them. `formats` has
    the message-formats that are not 0, by index. `dropped` is set when its records are gone, from
    the log or only from memory: whoever still points here asks the log for their offset.
    """

    __slots__ = ("payloads", "times", "origins", "formats", "dropped")

    def __init__(self, first: i64) -> None:
        super().__init__(first)
        self.payloads: list[bytes] = []
        self.times = vec[i64]()
        self.origins = vec[i64]()
        self.formats: dict[int, int] | None = None
        self.dropped = False

    def last_time(self) -> i64:
        """When the last record was appended; there has to be one."""
        return self.times[self.count - 1]

    def index_at(self, time: i64) -> i64:
        """The index of the first record appended at `time` or later; `count` if there is none."""
        low: i64 = 0
        high = self.count
        while low < high:
            middle = (low + high) // 2
            if self.times[middle] < time:
                low = middle + 1
            else:
                high = middle
        return low

    def drop(self) -> None:
        """Let the records go."""
        self.dropped = True
        self.payloads = []
        self.times = vec[i64]()
        self.origins = vec[i64]()
        self.formats = None


class Log:
    """Records with offsets from 0 without gaps: those from `first` to before `next` may be read.

    `bytes` is the size of their payloads together. A log that keeps its records elsewhere hands
    out segments with the records in memory, by the same methods. It may have records that nobody
    may see yet: behind `next`, in nothing of what this says, and their offsets are taken.
    """

    __slots__ = ("first", "next", "bytes")

    def __init__(self) -> None:
        self.first: i64 = 0
        self.next: i64 = 0
        self.bytes: i64 = 0

    def divide(self, segment_bytes: i64, segment_records: i64, segment_span: i64) -> None:
        """Close segments from now on when they have so many bytes or records, or are so old."""

    def append(self, message: Message, now: i64) -> None:
        """Add a record with the next offset, at the time `now`, or the last one's if later."""

    def find(self, offset: i64) -> Segment:
        """The segment with the record at an offset between `first` and `next`, both included.

        That of `next` is the one it will be in, or the one that ends there. Raises `StoreDamaged`
        if the record is kept elsewhere and cannot be read.
        """
        return Segment(offset)

    def offset_at(self, time: i64) -> i64:
        """The offset of the first record appended at `time` or later; `next` if there is none."""
        return self.next

    def began(self) -> i64:
        """When the first record was appended; there has to be one."""
        return 0

    def ended(self) -> i64:
        """When the last record was appended; there has to be one."""
        return 0

    def oldest(self) -> Extent | None:
        """The records that would go next, together; None if there are none."""
        return None

    def trim(self) -> i64:
        """Drop what `oldest` has; how many bytes of memory that frees."""
        return 0

    def trimmed(self) -> None:
        """That was all for now that is dropped."""

    def doom(self) -> i64:
        """All records there are will be dropped, by `trim`; how many."""
        return self.next - self.first


@final
class MemoryLog(Log):
    """A log in memory.

    A segment is closed when the next record would take it beyond `segment_bytes`, when it has
    `segment_records`, or when its first record is `segment_span` milliseconds old.
    """

    __slots__ = (
        "segment_bytes",
        "segment_records",
        "segment_span",
        "_segments",
        "_head",
        "_tail",
        "_time",
        "_until",
    )

    def __init__(self, segment_bytes: i64, segment_records: i64, segment_span: i64) -> None:
        super().__init__()
        self.segment_bytes: i64 = segment_bytes
        self.segment_records: i64 = segment_records
        self.segment_span: i64 = segment_span
        self._tail = Segment(0)
        # Those before `_head` are gone.
        self._segments: list[Segment] = [self._tail]
        self._head: i64 = 0
        # When the last record was appended.
        self._time: i64 = 0
        # When the last segment has to be closed.
        self._until: i64 = ENDLESS

    def divide(self, segment_bytes: i64, segment_records: i64, segment_span: i64) -> None:
        """Close segments so from now on."""
        self.segment_bytes = segment_bytes
        self.segment_records = segment_records
        self.segment_span = segment_span

    def append(self, message: Message, now: i64) -> None:
        """Add a record."""
        if now < self._time:
            # Somebody has set the clock back; the order of records does not follow.
            now = self._time
        self._time = now
        payload = message.payload
        size: i64 = len(payload)
        tail = self._tail
        count = tail.count
        if count == 0:
            self._open(now)
        elif (
            tail.bytes + size > self.segment_bytes
            or count >= self.segment_records
            or now >= self._until
        ):
            tail = Segment(self.next)
            self._tail = tail
            self._segments.append(tail)
            self._open(now)
            count = 0
        tail.payloads.append(payload)
        tail.times = append(tail.times, now)
        tail.origins = append(tail.origins, message.origin)
        if message.format != 0:
            formats = tail.formats
            if formats is None:
                formats = {}
                tail.formats = formats
            formats[count] = message.format
        tail.bytes += size
        tail.count = count + 1
        self.bytes += size
        self.next += 1

    def _open(self, now: i64) -> None:
        span = self.segment_span
        self._until = ENDLESS if span == ENDLESS else now + span

    def find(self, offset: i64) -> Segment:
        """The segment with the record at an offset: the last that begins there or before."""
        segments = self._segments
        low = self._head
        high: i64 = len(segments)
        while high - low > 1:
            middle = (low + high) // 2
            if segments[middle].first <= offset:
                low = middle
            else:
                high = middle
        return segments[low]

    def offset_at(self, time: i64) -> i64:
        """The offset of the first record appended at `time` or later."""
        segments = self._segments
        low = self._head
        high: i64 = len(segments)
        while low < high:
            middle = (low + high) // 2
            segment = segments[middle]
            if segment.count > 0 and segment.last_time() < time:
                low = middle + 1
            else:
                high = middle
        if low == len(segments):
            return self.next
        segment = segments[low]
        return segment.first + segment.index_at(time)

    def began(self) -> i64:
        """When the first record was appended."""
        return self._segments[self._head].times[0]

    def ended(self) -> i64:
        """When the last record was appended."""
        return self._time

    def oldest(self) -> Extent | None:
        """The segment at the front."""
        segment = self._segments[self._head]
        return None if segment.count == 0 else segment

    def trim(self) -> i64:
        """Drop the segment at the front."""
        segment = self._segments[self._head]
        size = segment.bytes
        self.first = segment.first + segment.count
        self.bytes -= size
        segment.drop()
        if segment is self._tail:
            self._tail = Segment(self.next)
            self._segments = [self._tail]
            self._head = 0
            return size
        self._head += 1
        if self._head >= SLACK and self._head * 2 >= len(self._segments):
            del self._segments[: self._head]
            self._head = 0
        return size
