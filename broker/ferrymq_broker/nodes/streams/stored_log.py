"""The log of a stored partition: new records are in memory, all records are in the store.

A *stretch* is a run of records in the index: some hundred bytes for thousands of records. The last
stretches have their records in memory, as the segments to which they were appended. Segments leave
memory in the order in which they came, when the store can read them (`Store.applied`); a reader
that comes to such a stretch gets its records in pages. All that the reader sees of this is a
segment that is `dropped`, and it asks again.

Readers must not see a record that is not on disk. Therefore the `count` of a segment ends before
such records. `next` is the offset of the first of them, while `end` is after the last record of
all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.streams.page_cache import PageCache
from ferrymq_broker.nodes.streams.partition_log import PartitionLog
from ferrymq_broker.nodes.streams.segments import ENDLESS, Division, Extent, LogSegment, RecordRow
from ferrymq_broker.nodes.streams.size_estimate import SizeEstimate
from ferrymq_broker.nodes.streams.stored import (
    HEAD,
    PartitionFields,
    encode_head,
    encode_partition,
    time_of,
)
from ferrymq_broker.slices import Disposal, Slices
from ferrymq_broker.store.tables import PARTITION, RECORD
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.streams.partition import StreamPartition

# How many bytes of messages a partition keeps in memory: of the newest records, and in pages.
CACHE_BYTES: Final = 3 * 1024 * 1024
PAGE_BYTES: Final = 1024 * 1024
# A segment has at most one part in so many of that.
_SEGMENTS: Final = 8

# Milliseconds until it is checked again whether the store can read what it could not read before.
_AGAIN: Final = 1000


@final
class Stretch(Extent):
    """A run of records in the index. `batch` is the last batch that has any of them; `segment` has
    the records until they leave memory for the first time."""

    __slots__ = ("batch", "segment")

    def __init__(self, first: i64) -> None:
        super().__init__(first)
        self.batch: i64 = 0
        self.segment: LogSegment | None = None


@final
class _Relief(Timer):
    """The timer that checks whether more segments can leave memory."""

    __slots__ = ("log",)

    def __init__(self, log: StoredLog) -> None:
        super().__init__()
        self.log = log

    def on_time(self, now: i64) -> None:
        """Check again."""
        self.log.trim_memory()


@final
class StoredLog(PartitionLog):
    """The log of a stored partition; `id` is that of the partition, 0 once it is deleted.

    `memory` is the size in bytes of its segments. Segments and pages are counted in `Agenda.held`:
    the partition adds what it appends, and subtracts the results of `trim` and `close`.
    """

    __slots__ = (
        "partition",
        "agenda",
        "id",
        "end",
        "memory",
        "cache_bytes",
        "doomed",
        "_division",
        "_row",
        "_tail",
        "_segment",
        "_time",
        "_stable_time",
        "_added",
        "_sealing",
        "_sealed",
        "_sealed_time",
        "_watched",
        "_written",
        "_resident",
        "pages",
        "_record_head",
        "_record_time",
        "_record_origin",
        "_record_format",
        "_relief",
    )

    # Attributes of `PartitionLog` that the methods assign: their types for type checkers.
    first: i64
    next: i64

    def __init__(self, partition: StreamPartition, id: i64) -> None:
        super().__init__()
        self.partition: StreamPartition = partition
        self.agenda: Agenda = partition.agenda
        self.id: i64 = id
        # The offset of the next record.
        self.end: i64 = 0
        self.memory: i64 = 0
        self.cache_bytes: i64 = CACHE_BYTES
        # Records before this offset are dropped as soon as they are on disk.
        self.doomed: i64 = 0
        self._division = Division(ENDLESS, ENDLESS, ENDLESS)
        # The last stretch and its segment, which never leaves memory.
        self._tail = Stretch(0)
        self._segment = LogSegment(0)
        self._tail.segment = self._segment
        self._row: RecordRow[Stretch] = RecordRow(self._tail)
        # When the last record was appended, and the last visible one.
        self._time: i64 = 0
        self._stable_time: i64 = 0
        # Bytes of records that are in no batch yet, and in the batch that is being written; and the
        # end offset and time of that batch.
        self._added: i64 = 0
        self._sealing: i64 = 0
        self._sealed: i64 = 0
        self._sealed_time: i64 = 0
        # The batch whose end is awaited.
        self._watched: i64 = 0
        # Whether `PARTITION` is stored: without it the records belong to no partition.
        self._written = False
        # The index of the first stretch with a segment in memory.
        self._resident: i64 = 0
        self.pages: PageCache = PageCache(partition, id, PAGE_BYTES)
        # A cached head: records of one read mostly have the same head.
        self._record_head = b""
        self._record_time: i64 = -1
        self._record_origin: i64 = 0
        self._record_format: i64 = 0
        self._relief = _Relief(self)

    def divide(self, segment_bytes: i64, segment_records: i64, segment_span: i64) -> None:
        """From now on, close segments by these limits, and small enough to leave memory one by
        one."""
        largest = self.cache_bytes // _SEGMENTS
        self._division.change(
            segment_bytes if segment_bytes < largest else largest, segment_records, segment_span
        )

    # -- records in ------------------------------------------------------------------------

    def append(self, message: BrokerMessage, time: i64, now: i64) -> None:
        """Add a record, which becomes visible when it is on disk."""
        if time < self._time:
            time = self._time
        self._time = time
        payload = message.payload
        size: i64 = len(payload)
        tail = self._tail
        count = tail.count
        if count == 0:
            self._division.begin(tail, time, now)
        elif self._division.is_full(tail, size, now):
            tail = self._close_tail()
            self._division.begin(tail, time, now)
            count = 0
        origin = message.origin
        format = message.format
        self._segment.add(count, payload, time, origin, format)
        if (
            time != self._record_time
            or origin != self._record_origin
            or format != self._record_format
        ):
            self._record_head = encode_head(time, origin, format)
            self._record_time = time
            self._record_origin = origin
            self._record_format = format
        offset = self.end
        self.end = offset + 1
        tail.bytes += size
        tail.count = count + 1
        tail.ended = time
        tail.moment = now
        self.memory += size
        self._added += size
        id = self.id
        if id == 0:
            return
        changes = self.agenda.changes
        changes.put_parts(RECORD, id, offset, self._record_head, payload)
        number = changes.number
        if number != self._watched:
            if not self._written:
                self.write()
            self._watched = number
            tail.batch = number
            changes.watch(self.partition)
        elif count == 0:
            tail.batch = number

    def _new_tail(self) -> Stretch:
        """Return the stretch for the next records; it is not in the row yet."""
        tail = Stretch(self.end)
        segment = LogSegment(self.end)
        tail.segment = segment
        self._tail = tail
        self._segment = segment
        return tail

    def _close_tail(self) -> Stretch:
        """Return the stretch for the next records, at the end of the row."""
        tail = self._new_tail()
        self._row.extents.append(tail)
        self.trim_memory()
        return tail

    def seal(self) -> None:
        """Note that the batch, which is complete now, has the records so far."""
        self._sealed = self.end
        self._sealed_time = self._time
        self._sealing += self._added
        self._added = 0

    def settle(self) -> None:
        """Show the records of a batch that is on disk now."""
        end = self._sealed
        self.bytes += self._sealing
        self._sealing = 0
        self._stable_time = self._sealed_time
        stretches = self._row.extents
        i = self._row.index_of(self.next)
        self.next = end
        while i < len(stretches):
            stretch = stretches[i]
            if stretch.first >= end:
                break
            segment = stretch.segment
            if segment is not None:
                visible = end - stretch.first
                segment.count = visible if visible < stretch.count else stretch.count
            i += 1

    # -- finding ---------------------------------------------------------------------------

    def find(self, offset: i64) -> LogSegment:
        """Return the segment or the page with the record at an offset. Raises `StoreDamaged`."""
        stretch = self._row.find(offset)
        segment = stretch.segment
        return self.pages.find(stretch, offset) if segment is None else segment

    def offset_at(self, time: i64) -> i64:
        """Return the offset of the first visible record that was appended at `time` or later."""
        stretch = self._row.find_time(time)
        if stretch is None:
            return self.next
        segment = stretch.segment
        if segment is not None:
            offset = segment.first + segment.index_at(time)
            return offset if offset < self.next else self.next
        return self.pages.search(stretch, time)

    def reach(self, offset: i64, size: i64) -> i64:
        """Return the end of so many bytes from an offset on: exact for records in memory, by the
        average size for a stretch that has left memory."""
        stretches = self._row.extents
        i = self._row.index_of(offset)
        measure = SizeEstimate(offset, size)
        while i < len(stretches) and measure.go_through(stretches[i], stretches[i].segment):
            i += 1
        return measure.between(offset, self.next)

    def began(self) -> i64:
        """Return when the first record was appended."""
        return self._row.front().began

    def ended(self) -> i64:
        """Return when the last visible record was appended."""
        return self._stable_time

    # -- memory ----------------------------------------------------------------------------

    def trim_memory(self) -> None:
        """Take the oldest segments out of memory while they exceed the allowed bytes."""
        store = self.agenda.store
        if store is None:
            return
        most = self.cache_bytes
        if self.memory <= most:
            return
        stretches = self._row.extents
        i = self._row.index_of(self._resident)
        while self.memory > most:
            stretch = stretches[i]
            segment = stretch.segment
            if segment is not None:
                if stretch is self._tail:
                    return
                if stretch.batch > store.applied or stretch.first + stretch.count > self.next:
                    timers = self.partition.space.timers
                    timers.set(self._relief, self.agenda.now + _AGAIN)
                    return
                stretch.segment = None
                self.memory -= segment.bytes
                self.agenda.unpin(segment.bytes)
                self.agenda.slices.do(Disposal(segment.drop()))
            self._resident = stretch.first + stretch.count
            i += 1

    # -- retention -------------------------------------------------------------------------

    def oldest(self) -> Extent | None:
        """Return the stretch at the front; None if it has records that are not visible yet."""
        stretch = self._row.front()
        count = stretch.count
        return None if count == 0 or stretch.first + count > self.next else stretch

    def overdue(self, offset: i64, max_bytes: i64, max_records: i64, before: i64) -> i64:
        """Return the bytes of stretches, from that of an offset on, that are beyond the limits."""
        return self._row.overdue(self.bytes, self.next, offset, max_bytes, max_records, before)

    def trim(self, slices: Slices) -> i64:
        """Drop the stretch at the front."""
        stretch = self._row.front()
        end = stretch.first + stretch.count
        self.first = end
        self.bytes -= stretch.bytes
        freed: i64 = 0
        segment = stretch.segment
        if segment is not None:
            freed = segment.bytes
            self.memory -= freed
            slices.do(Disposal(segment.drop()))
        self.pages.drop_before(end)
        if stretch is self._tail:
            self._row.restart(self._new_tail())
        else:
            self._row.drop_front()
        return freed

    def trimmed(self) -> None:
        """Drop the records before `first` in the store, too."""
        first = self.first if self.first > self.doomed else self.doomed
        if self.id != 0 and first > 0:
            self.agenda.changes.drop_range(RECORD, self.id, 0, first - 1)
        self.write()

    def doom(self) -> i64:
        """Drop all records: in the store at once, here when they become visible; return how
        many."""
        if self._tail.count > 0:
            # Later records must not be in the same stretch.
            self._close_tail()
        self.doomed = self.end
        return self.end - self.first

    def write(self) -> None:
        """Store the present state of the partition."""
        if self.id == 0:
            return
        fields = PartitionFields(
            int(self.partition.stream.store_id),
            int(self.partition.number),
            int(self.first if self.first > self.doomed else self.doomed),
            int(self.end),
            int(self._time),
        )
        changes = self.agenda.changes
        changes.put(PARTITION, self.id, 0, encode_partition(fields))
        self._written = changes.enabled

    def close(self) -> i64:
        """Drop the records of a deleted partition; return how many bytes of memory that frees."""
        self.id = 0
        freed = self.memory
        for stretch in self._row.extents:
            segment = stretch.segment
            if segment is not None:
                self.agenda.slices.do(Disposal(segment.drop()))
        self.pages.drop_before(self.end)
        self._row.restart(self._new_tail())
        self.memory = 0
        self.bytes = 0
        self.first = self.end
        self.next = self.end
        self.partition.space.timers.cancel(self._relief)
        return freed

    # -- recovery --------------------------------------------------------------------------

    def restore(self, fields: PartitionFields) -> None:
        """Restore the log of a stored partition; its records follow."""
        self._written = True
        self.first = fields.first
        self.end = fields.first
        self._sealed = fields.next
        self._sealed_time = fields.time
        self._tail = Stretch(fields.first)
        self._row.restart(self._tail)

    def restore_record(self, offset: i64, value: bytes) -> None:
        """Restore a record with this value, after all earlier records; an empty value cannot be
        read."""
        size: i64 = len(value) - HEAD
        if offset < self.end:
            return
        if size < 0:
            # Like a missing record, it belongs to the stretch of the next record.
            self._sealed = offset + 1
            return
        time = time_of(value)
        if time < self._time:
            time = self._time
        self._time = time
        tail = self._tail
        if tail.count == 0:
            self._division.begin(tail, time, time)
        elif self._division.is_full(tail, size, time):
            tail = Stretch(self.end)
            self._row.extents.append(tail)
            self._tail = tail
            self._division.begin(tail, time, time)
        self.end = offset + 1
        tail.count = offset + 1 - tail.first
        tail.bytes += size
        tail.ended = time
        self.bytes += size

    def restored(self) -> None:
        """End the restore, after all records."""
        if self._time < self._sealed_time:
            self._time = self._sealed_time
        tail = self._tail
        if self._sealed > self.end:
            # Records are missing at the end.
            if tail.count == 0:
                self._division.begin(tail, self._time, self._time)
            tail.count = self._sealed - tail.first
            tail.ended = self._time
            self.end = self._sealed
        for stretch in self._row.extents:
            stretch.moment = self.agenda.moment_of(stretch.ended)
        if tail.count == 0:
            self._row.restart(self._new_tail())
        else:
            self._row.extents.append(self._new_tail())
        self.next = self.end
        self._resident = self.end
        self._sealed = self.end
        self._stable_time = self._time
        self.pages.recovered = self.end
