"""The cache of records that have left memory: readers get them back in pages of a few dozen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.event_log import log as journal
from ferrymq_broker.nodes.streams.segments import Extent, LogSegment
from ferrymq_broker.nodes.streams.stored import HEAD, format_of, origin_of, time_of
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.record_run import VALUE
from ferrymq_broker.store.tables import RECORD

if TYPE_CHECKING:
    from ferrymq_broker.nodes.streams.partition import StreamPartition

# The most records of a page, and the bytes with which it is full.
PAGE: Final = 64
_PAGE_BYTES: Final = 128 * 1024

# How many unreadable records are remembered, so that each is logged once.
_REMEMBERED: Final = 1000


@final
class PageCache:
    """The pages of a partition that are in memory: at most `most` bytes, but at least one page.

    `bytes` is the size of their payloads, which are counted in `Agenda.held`. Records before the
    offset `recovered` came before the broker was started: the connection numbers in them are not
    valid now.
    """

    __slots__ = ("most", "bytes", "recovered", "_partition", "_id", "_pages", "_spoken_of")

    def __init__(self, partition: StreamPartition, id: i64, most: i64) -> None:
        self.most: i64 = most
        self.bytes: i64 = 0
        self.recovered: i64 = 0
        self._partition = partition
        self._id: i64 = id
        # By the lowest offset that a page with these records could have; the last used page is at
        # the end.
        self._pages: dict[int, LogSegment] = {}
        self._spoken_of: set[int] = set()

    def find(self, extent: Extent, offset: i64) -> LogSegment:
        """Return the page with a record of the extent. Raises `StoreDamaged` if the record cannot
        be read."""
        pages = self._pages
        slot = offset - (offset - extent.first) % PAGE
        page = pages.pop(slot, None)
        if page is not None:
            if page.first <= offset and offset < page.first + page.count:
                pages[slot] = page
                return page
            self._evict(page)
        end = extent.first + extent.count
        page = self._load(offset, slot + PAGE if slot + PAGE < end else end)
        size = page.bytes
        self.bytes += size
        self._partition.agenda.pin(size)
        while pages and self.bytes > self.most:
            self._evict(pages.pop(next(iter(pages))))
        pages[slot] = page
        return page

    def _load(self, offset: i64, end: i64) -> LogSegment:
        """Read records from an offset on, at least one, up to a record that cannot be read."""
        page = LogSegment(offset)
        store = self._partition.agenda.store
        if store is not None:
            run = store.run(RECORD, self._id, offset, end, _PAGE_BYTES)
            for index, stored in enumerate(run.stored):
                payload = run.rest(index, HEAD)
                if payload is None:
                    break
                self._add(page, stored, VALUE, payload)
        if page.count == 0:
            value = self.value_of(offset)
            if value is None:
                # The reason has been logged.
                raise StoreDamaged(f"the record {offset} cannot be read")
            self._add(page, value, 0, value[HEAD:])
        return page

    def _add(self, page: LogSegment, data: bytes, head: i64, payload: bytes) -> None:
        """Add a record, whose head is at this place of the data."""
        origin: i64 = 0
        if page.first + page.count >= self.recovered:
            origin = origin_of(data, head)
        page.add(page.count, payload, time_of(data, head), origin, format_of(data, head))
        page.count += 1

    def value_of(self, offset: i64) -> bytes | None:
        """Return the value of a record; None if it cannot be read, which is logged once."""
        reason = "the record is missing"
        partition = self._partition
        store = partition.agenda.store
        if store is not None:
            try:
                value = store.get(RECORD, self._id, offset)
                if value is not None:
                    if len(value) >= HEAD:
                        return value
                    reason = "the record is shorter than its head"
            except StoreDamaged as error:
                reason = str(error)
        if offset not in self._spoken_of and len(self._spoken_of) < _REMEMBERED:
            self._spoken_of.add(offset)
            journal.error(
                "record of a stream cannot be read",
                stream=partition.stream.address,
                partition=int(partition.number),
                offset=int(offset),
                reason=reason,
            )
        return None

    def search(self, extent: Extent, time: i64) -> i64:
        """Return the offset of the first record of the extent that was appended at `time` or later;
        the end of the extent if there is none. Reads only a few records."""
        low = extent.first
        high = low + extent.count
        while low < high:
            middle = (low + high) // 2
            # An unreadable record counts as being as old as the next one.
            probe = middle
            value = self.value_of(probe)
            while value is None and probe + 1 < high:
                probe += 1
                value = self.value_of(probe)
            if value is not None and time_of(value) < time:
                low = probe + 1
            else:
                high = middle
        return low

    def drop_before(self, end: i64) -> None:
        """Drop records before this offset from the cache, because they are deleted."""
        for slot in list(self._pages):
            if slot < end:
                self._evict(self._pages.pop(slot))

    def _evict(self, page: LogSegment) -> None:
        self.bytes -= page.bytes
        self._partition.agenda.unpin(page.bytes)
        page.drop()
