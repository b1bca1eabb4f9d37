"""A reader of a stream: the position of one link in each partition.

A reader is the node that its link consumes from. Each link has its own, so that a slow link does
not affect others. A reader takes a slice of the records in one turn and goes to the end of the
agenda; the share of a pass that its connection has limits the number of turns. Records that a
filter rejects do not count there. Therefore, after `SCAN` such records in a pass, the reader waits
and continues in a pass of its own.

`RecordReader` sends records one by one, `ChunkReader` many at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.streams.partition import RecordWaiter, StreamPartition
from ferrymq_broker.nodes.streams.reader_groups import NO_EPOCH
from ferrymq_broker.nodes.streams.segments import ENDLESS, LogSegment
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.streams.stream import Stream

TRIMMED: Final = "ferrymq:stream-trimmed"

# How many rejected records a reader may pass before others have their turn, in simple questions to
# a filter: more records if they are short and the filter is simple, fewer if not.
SCAN: Final = 1024


@final
class PartitionCursor(RecordWaiter):
    """The position of a reader in one partition: before the record `index` of `segment`.

    The reader reads no record with the offset `until` or higher. `skipped` counts the records that
    were dropped before the reader came to them and of which the client has not been told. `waiting`
    is true while the partition has to wake the reader for the next record.
    """

    __slots__ = ("reader", "partition", "segment", "index", "until", "skipped")

    def __init__(self, reader: StreamReader, partition: StreamPartition, offset: i64) -> None:
        super().__init__()
        self.reader: StreamReader = reader
        self.partition: StreamPartition = partition
        self.segment: LogSegment = _somewhere(offset)
        self.index: i64 = 0
        self.until: i64 = ENDLESS
        self.skipped: i64 = 0

    def rouse(self) -> None:
        """Give the reader its turn, because there is another record."""
        self.reader.touch()

    def at(self) -> i64:
        """The offset of the next record to read."""
        return self.segment.first + self.index

    def place(self, offset: i64) -> None:
        """Set the next record to read by its offset."""
        self.segment = _somewhere(offset)
        self.index = 0

    def seek(self, offset: i64) -> None:
        """Go to the record with this offset. Raises `BrokerError` if the record cannot be read."""
        segment = self.partition.find(offset)
        self.segment = segment
        self.index = offset - segment.first


def _somewhere(offset: i64) -> LogSegment:
    """Return an empty segment: the real one is looked up when the record is read."""
    segment = LogSegment(offset)
    segment.dropped = True
    return segment


class StreamReader(Node):
    """The node that one link consumes from. `forgiving` is whether the reader continues after a
    gap.

    `group` is its consumer group, `epoch` is `NO_EPOCH` unless it is the only reader of the group.
    `tells_last` is whether each delivery tells of the last record of its partition. `parked` is
    true while the reader waits for a pass of its own. `fault` is the reason why it cannot continue,
    once it has reached something that it cannot read.
    """

    __slots__ = (
        "stream",
        "consumer",
        "cursors",
        "whole",
        "forgiving",
        "group",
        "epoch",
        "tells_last",
        "parked",
        "fault",
        "scanned",
        "_entry",
        "_draining",
    )

    def __init__(self, stream: Stream, whole: bool, forgiving: bool) -> None:
        super().__init__(stream.address, stream.space)
        self.stream: Stream = stream
        self.consumer: Consumer | None = None
        self.cursors: list[PartitionCursor] = []
        # Whether it reads all partitions, including those that are added later.
        self.whole: bool = whole
        self.forgiving: bool = forgiving
        self.group: str = ""
        self.epoch: i64 = NO_EPOCH
        self.tells_last: bool = False
        self.parked: bool = False
        self.fault: Error | None = None
        # How many records a filter has rejected since others had their turn.
        self.scanned: i64 = 0
        # The entry that is shown to the consumer: always the same one, because copies are not held.
        self._entry: Entry | None = None
        self._draining = False

    @property
    def kind(self) -> str:
        """``reader``."""
        return "reader"

    # -- the consumer ----------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Begin to read for a link. A reader with an epoch takes the place of others."""
        self.consumer = consumer
        self.stream.groups.enter(self)
        self.stream.readers.append(self)
        for cursor in self.cursors:
            cursor.partition.count_readers(1)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget the link, which is gone."""
        if self.consumer is None:
            return
        self.consumer = None
        self._draining = False
        self.stream.readers.remove(self)
        self.stream.groups.leave(self)
        for cursor in self.cursors:
            partition = cursor.partition
            partition.count_readers(-1)
            if cursor.waiting:
                partition.waiting.remove(cursor)
        self.cursors = []
        self._entry = None

    def wake(self, consumer: Consumer) -> None:
        """Continue reading: the link has credit, or its connection takes bytes again."""
        consumer.ready = True
        self.touch()

    def count_available(self, consumer: Consumer) -> i64:
        """Return the number of records that the link has not been offered; a filter may reject
        some."""
        found: i64 = 0
        for cursor in self.cursors:
            log = cursor.partition.log
            start = max(cursor.at(), log.first)
            found += max(min(log.next, cursor.until) - start, 0)
        return found

    def want_drained(self, consumer: Consumer) -> None:
        """Tell the client when there is no more, because it asked for a drain (AMQP 1.0 §2.6.7)."""
        self._draining = True
        self.touch()

    def read_too(self, partition: StreamPartition) -> None:
        """Read a new partition of the stream, too, from its beginning."""
        self.cursors.append(PartitionCursor(self, partition, 0))
        partition.count_readers(1)
        self.stream.groups.enter_too(self, partition)
        self.touch()

    def bookmark(self, consumer: Consumer) -> list[int] | None:
        """Return the offset of the next record to read, for each partition."""
        return [int(cursor.at()) for cursor in self.cursors]

    def rewind(self, consumer: Consumer, bookmark: list[int]) -> None:
        """Go back. Records that were dropped meanwhile are a gap, as for every reader."""
        # The number of partitions never falls.
        for cursor, place in zip(self.cursors, bookmark, strict=False):
            offset: i64 = place
            if offset >= cursor.until:
                # The reader was at its end; it does not matter what is gone.
                continue
            first = cursor.partition.log.first
            if offset < first and not self.forgiving:
                self.stop(consumer, _gap(cursor, offset))
                return
            if offset < first:
                if first > cursor.until:
                    # All records before the end offset are gone.
                    first = cursor.until
                cursor.skipped += first - offset
                cursor.place(first)
            elif cursor.at() > offset:
                cursor.place(offset)
        self.touch()

    # -- reading ---------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Take a slice of the records."""
        consumer = self.consumer
        if consumer is None:
            return
        ended = False
        if consumer.ready and not self.parked:
            ended = self.read(consumer)
            if self.consumer is None:
                return
        if self._draining and (ended or not consumer.ready):
            self._draining = not consumer.nothing_left()

    def read(self, consumer: Consumer) -> bool:
        """Take a slice for the consumer, which is ready; return whether nothing is left for now."""
        return True

    def show(self, consumer: Consumer, message: BrokerMessage, offset: i64) -> i64:
        """Send the consumer a message; return the result of `Consumer.deliver`."""
        return consumer.deliver(self._entry_of(message, offset))

    def show_stamped(
        self, consumer: Consumer, message: BrokerMessage, offset: i64, head: bytes, start: i64
    ) -> i64:
        """Send a message that consists of `head` and the payload from `start` on; see `show`."""
        return consumer.deliver_headed(self._entry_of(message, offset), head, start)

    def _entry_of(self, message: BrokerMessage, offset: i64) -> Entry:
        entry = self._entry
        if entry is None:
            entry = Entry(message, offset)
            self._entry = entry
        else:
            entry.message = message
            entry.renumber(offset)
        return entry

    def go_on(self) -> None:
        """Ask for another turn, because there is more than one slice."""
        if self.scanned >= SCAN:
            self.scanned = 0
            self.parked = True
            self.stream.park(self)
        else:
            self.touch()

    def wait(self) -> None:
        """Wait until the partitions have more records."""
        self.scanned = 0
        for cursor in self.cursors:
            if not cursor.waiting and cursor.at() < cursor.until:
                cursor.waiting = True
                cursor.partition.waiting.append(cursor)

    def step(self, cursor: PartitionCursor) -> bool:
        """Leave a segment that is read to its end or dropped; return false if there is nothing to
        read.

        That is at the end, or if there is a `fault`: a record that cannot be read, or a gap for a
        client that does not want to continue after one.
        """
        segment = cursor.segment
        log = cursor.partition.log
        expected = cursor.at()
        if expected >= cursor.until:
            return False
        if segment.dropped:
            first = log.first
            if expected < first:
                if not self.forgiving:
                    self.fault = _gap(cursor, expected)
                    return False
                if first >= cursor.until:
                    # All records before the end offset are gone.
                    cursor.place(cursor.until)
                    return False
                cursor.skipped += first - expected
                expected = first
        elif expected >= log.next:
            return False
        try:
            cursor.seek(expected)
        except BrokerError as error:
            # To skip the record, forgiving or not, would hide that it is lost.
            self.fault = Error(
                condition=error.condition, description=error.description, info=error.info
            )
            return False
        return cursor.index < cursor.segment.count

    # -- the end ---------------------------------------------------------------------------

    def give_up(self, consumer: Consumer, cursor: PartitionCursor, offset: i64, size: i64) -> None:
        """End the link, because a record is larger than the client accepts; to skip it would hide
        it."""
        self.stop(
            consumer,
            Error(
                condition="amqp:link:message-size-exceeded",
                description=f"{cursor.partition.address!r}: the record {offset} makes a message of "
                f"{size} bytes, more than the max-message-size of the link",
                info={
                    "partition": int(cursor.partition.number),
                    "offset": int(offset),
                    "size": int(size),
                },
            ),
        )

    def stop(self, consumer: Consumer, error: Error) -> None:
        """End the link, which cannot continue."""
        consumer.evict(error)
        # Whatever the link does, the reader stops.
        self.unsubscribe(consumer)


def _gap(cursor: PartitionCursor, expected: i64) -> Error:
    partition = cursor.partition
    log = partition.log
    return Error(
        condition=TRIMMED,
        description=f"{partition.address!r}: the next record to read was {expected}, but the "
        f"records before {log.first} have been dropped",
        info={
            "partition": int(partition.number),
            "expected": int(expected),
            "first": int(log.first),
            "next": int(log.next),
        },
    )
