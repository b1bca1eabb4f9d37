"""An estimate of how many records a number of bytes covers in a log."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.streams.segments import Extent, LogSegment


@final
class SizeEstimate:
    """A walk through consecutive extents until `left` bytes are used up; then `offset` is the
    offset of the first record that does not fit completely.

    Records in memory are counted one by one. For other records only the size of the extent is
    known, and they count with its average size. So the result never gets lower when more bytes are
    asked for, or when the walk begins at a later offset.
    """

    __slots__ = ("offset", "left")

    def __init__(self, offset: i64, left: i64) -> None:
        self.offset: i64 = offset
        self.left: i64 = left

    def go_through(self, extent: Extent, segment: LogSegment | None) -> bool:
        """Return whether bytes are left after the extent; `segment` has its records if they are in
        memory."""
        index = self.offset - extent.first
        if index == 0 and extent.bytes <= self.left:
            self.left -= extent.bytes
            self.offset = extent.first + extent.count
            return True
        return self._estimate(extent, index) if segment is None else self._count(segment, index)

    def between(self, start: i64, next: i64) -> i64:
        """Return the resulting offset: after the record at `start`, and at most `next`."""
        offset = self.offset
        if offset <= start:
            offset = start + 1
        return offset if offset < next else next

    def _count(self, segment: LogSegment, index: i64) -> bool:
        payloads = segment.payloads
        left = self.left
        while index < segment.count:
            left -= len(payloads[index])
            if left < 0:
                break
            index += 1
        self.offset = segment.first + index
        if left < 0:
            return False
        self.left = left
        return True

    def _estimate(self, extent: Extent, index: i64) -> bool:
        size = extent.bytes
        count = extent.count
        if count == 0:
            return True
        end = index * size // count + self.left
        if end >= size:
            self.left = end - size
            self.offset = extent.first + count
            return True
        # The most records whose share of the bytes is not more than that.
        self.offset = extent.first + ((end + 1) * count - 1) // size
        return False
