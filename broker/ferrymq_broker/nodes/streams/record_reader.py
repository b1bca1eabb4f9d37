"""A reader that sends records one by one, each with its place in the annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, UNFIT, Consumer
from ferrymq_broker.nodes.streams.partition import SLICE
from ferrymq_broker.nodes.streams.reader import SCAN, StreamReader

if TYPE_CHECKING:
    from ferrymq_broker.nodes.streams.stream import Stream

# A record with more bytes is not copied for a delivery.
LARGE: Final = 65_536


@final
class RecordStreamReader(StreamReader):
    """A reader that sends a slice of the records of each partition in turn."""

    __slots__ = ("_turn",)

    def __init__(self, stream: Stream, whole: bool, forgiving: bool) -> None:
        super().__init__(stream, whole, forgiving)
        self._turn: i64 = 0

    def read(self, consumer: Consumer) -> bool:
        """Send a slice of the records; return whether nothing is left for now."""
        cursors = self.cursors
        count: i64 = len(cursors)
        turn = self._turn
        filter = consumer.filter
        at_end: i64 = 0
        left: i64 = SLICE
        while at_end < count:
            if left == 0 or self.scanned >= SCAN:
                self._turn = turn
                self.go_on()
                return False
            if turn >= count:
                turn = 0
            cursor = cursors[turn]
            segment = cursor.segment
            index = cursor.index
            if index >= segment.count or segment.dropped:
                if not self.step(cursor):
                    fault = self.fault
                    if fault is not None:
                        self.stop(consumer, fault)
                        return False
                    at_end += 1
                    turn += 1
                    continue
                segment = cursor.segment
                index = cursor.index
            offset = segment.first + index
            if offset >= cursor.until:
                at_end += 1
                turn += 1
                continue
            at_end = 0
            left -= 1
            partition = cursor.partition
            # A large record is shared by all readers; only the sections in front are made for each.
            large = self.tells_last or len(segment.payloads[index]) > LARGE
            if filter is None and large:
                message = partition.raw(segment, index)
            else:
                message = partition.message_at(segment, index)
            if filter is None or filter.matches(message):
                if large:
                    message = partition.raw(segment, index)
                    told = partition.last_record(cursor.skipped) if self.tells_last else b""
                    head, start = partition.stamp(segment, index, cursor.skipped, told)
                    verdict = self.show_stamped(consumer, message, offset, head, start)
                else:
                    if cursor.skipped > 0:
                        message = partition.encode(segment, index, cursor.skipped)
                    verdict = self.show(consumer, message, offset)
                if verdict == IDLE:
                    consumer.ready = False
                    self._turn = turn
                    self.scanned = 0
                    return False
                if verdict == UNFIT:
                    if large:
                        message = partition.encode(segment, index, cursor.skipped)
                    self.give_up(consumer, cursor, offset, len(message.payload))
                    return False
                cursor.skipped = 0
                self.stream.delivered += 1
            else:
                self.scanned += filter.price(message)
            cursor.index = index + 1
            turn += 1
        self._turn = turn
        self.wait()
        return True
