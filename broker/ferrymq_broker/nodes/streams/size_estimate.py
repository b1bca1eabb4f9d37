"""An estimate of how far so many bytes reach in a log."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.streams.segments import Extent, LogSegment


@final
class SizeEstimate:
    """Goes through extents, one behind the other, until `left` bytes are used up; then `offset` is
    that of the first record that is not wholly among them.

    Records in memory are counted one by one. Of others only the extent is known, and they count as
    if all of it had the same size. So what is found never goes back when more bytes are asked for,
    or the same from a later offset on.
    """

    __slots__ = ("offset", "left")

    def __init__(self, offset: i64, left: i64) -> None:
        self.offset: i64 = offset
        self.left: i64 = left

    def go_through(self, extent: Extent, segment: LogSegment | None) -> bool:
        """Return whether bytes are left behind the extent, which `segment` has in memory, if there
        is one."""
        index = self.offset - extent.first
        if index == 0 and extent.bytes <= self.left:
            self.left -= extent.bytes
            self.offset = extent.first + extent.count
            return True
        return self._estimate(extent, index) if segment is None else self._count(segment, index)

    def between(self, start: i64, next: i64) -> i64:
        """Return the offset that was found: behind the record at `start`, and `next` at most."""
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
        # The most records of which the share is no more than that.
        self.offset = extent.first + ((end + 1) * count - 1) // size
        return False
