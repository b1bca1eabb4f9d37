"""A link that reads a stream: where it is in each partition, and how it goes on.

A reader is the node that its link consumes from, one for each link, so that a slow one is nobody's
concern but its own. It takes a slice of the records in a turn and goes to the end of the agenda;
the share of a pass that its connection has bounds how often. Records that a filter keeps from the
link do not count there. After `SCAN` of them in a pass the reader is set aside, and goes on in a
pass of its own.

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
from ferrymq_broker.nodes.streams.segments import ENDLESS, LogSegment
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.streams.stream import Stream

TRIMMED: Final = "ferrymq:stream-trimmed"

# Records a filter may keep from a reader before others have their turn; more if they are short and
# it is simple, fewer if not: simple questions.
SCAN: Final = 1024


@final
class PartitionCursor(RecordWaiter):
    """The position of a reader in one partition: before the record `index` of `segment`.

    It reads no record with the offset `until` or a later one. `skipped` counts the records that
    were dropped before the reader came to them and of which its client has not been told. `waiting`
    is true while the partition is to tell of the next record.
    """

    __slots__ = ("reader", "partition", "segment", "index", "until", "skipped")

    def __init__(self, reader: StreamReader, partition: StreamPartition, offset: i64) -> None:
        super().__init__()
        self.reader = reader
        self.partition = partition
        self.segment = _somewhere(offset)
        self.index: i64 = 0
        self.until: i64 = ENDLESS
        self.skipped: i64 = 0

    def rouse(self) -> None:
        """Give the reader its turn: there is another record."""
        self.reader.touch()

    def at(self) -> i64:
        """Return the offset of the record to be read next."""
        return self.segment.first + self.index

    def place(self, offset: i64) -> None:
        """Read the record with this offset next."""
        self.segment = _somewhere(offset)
        self.index = 0

    def seek(self, offset: i64) -> None:
        """Go to the record with this offset. Raises `BrokerError` if it cannot be read."""
        segment = self.partition.find(offset)
        self.segment = segment
        self.index = offset - segment.first


def _somewhere(offset: i64) -> LogSegment:
    """Return a segment that is to be looked for when the record is wanted."""
    segment = LogSegment(offset)
    segment.dropped = True
    return segment


class StreamReader(Node):
    """The node that one link consumes from. `forgiving` is whether it goes on behind a gap.

    `parked` is true while it waits for a pass of its own. `fault` is why it cannot go on, once it
    has come to what it cannot read.
    """

    __slots__ = (
        "stream",
        "consumer",
        "cursors",
        "whole",
        "forgiving",
        "parked",
        "fault",
        "scanned",
        "_entry",
        "_draining",
    )

    def __init__(self, stream: Stream, whole: bool, forgiving: bool) -> None:
        super().__init__(stream.address, stream.space)
        self.stream = stream
        self.consumer: Consumer | None = None
        self.cursors: list[PartitionCursor] = []
        # Whether it reads all partitions, those to come too.
        self.whole = whole
        self.forgiving = forgiving
        self.parked = False
        self.fault: Error | None = None
        # Records that a filter has kept from the link since others had their turn.
        self.scanned: i64 = 0
        # What is shown to the consumer: the same again and again, for copies are not held.
        self._entry: Entry | None = None
        self._draining = False

    @property
    def kind(self) -> str:
        """``reader``."""
        return "reader"

    # -- the consumer ----------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Begin to read for a link."""
        self.consumer = consumer
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
        for cursor in self.cursors:
            partition = cursor.partition
            partition.count_readers(-1)
            if cursor.waiting:
                partition.waiting.remove(cursor)
        self.cursors = []
        self._entry = None

    def wake(self, consumer: Consumer) -> None:
        """Read on: the link has credit, or its connection takes bytes again."""
        consumer.ready = True
        self.touch()

    def count_available(self, consumer: Consumer) -> i64:
        """Records that the link has not been offered; a filter may keep some from it."""
        found: i64 = 0
        for cursor in self.cursors:
            log = cursor.partition.log
            start = max(cursor.at(), log.first)
            found += max(min(log.next, cursor.until) - start, 0)
        return found

    def want_drained(self, consumer: Consumer) -> None:
        """Tell the client when there is no more, as it asked for (AMQP 1.0 §2.6.7)."""
        self._draining = True
        self.touch()

    def read_too(self, partition: StreamPartition) -> None:
        """Read a new partition of the stream from its beginning."""
        self.cursors.append(PartitionCursor(self, partition, 0))
        partition.count_readers(1)
        self.touch()

    def bookmark(self, consumer: Consumer) -> list[int] | None:
        """Return the offset to be read next, of each partition."""
        return [int(cursor.at()) for cursor in self.cursors]

    def rewind(self, consumer: Consumer, bookmark: list[int]) -> None:
        """Go back. What was dropped meanwhile is a gap, as it is to every reader."""
        # Partitions are never fewer than there were.
        for cursor, place in zip(self.cursors, bookmark, strict=False):
            offset: i64 = place
            if offset >= cursor.until:
                # It wanted nothing more, whatever is gone.
                continue
            first = cursor.partition.log.first
            if offset < first and not self.forgiving:
                self.stop(consumer, _gap(cursor, offset))
                return
            if offset < first:
                if first > cursor.until:
                    # All that was left is gone.
                    first = cursor.until
                cursor.skipped += first - offset
                cursor.place(first)
            elif cursor.at() > offset:
                cursor.place(offset)
        self.touch()

    # -- reading ---------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Take a slice of what there is."""
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
        """Take a slice for the consumer, which is ready; whether there is nothing more for now."""
        return True

    def show(self, consumer: Consumer, message: BrokerMessage, offset: i64) -> i64:
        """Send the consumer a message; the answer is that of `Consumer.deliver`."""
        return consumer.deliver(self._entry_of(message, offset))

    def show_stamped(
        self, consumer: Consumer, message: BrokerMessage, offset: i64, head: bytes, start: i64
    ) -> i64:
        """Show a message that consists of `head` and of the payload from `start` on; see `show`."""
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
        """Ask for another turn: there is more than a slice."""
        if self.scanned >= SCAN:
            self.scanned = 0
            self.parked = True
            self.stream.park(self)
        else:
            self.touch()

    def wait(self) -> None:
        """Everything is read: the partitions tell when there is more."""
        self.scanned = 0
        for cursor in self.cursors:
            if not cursor.waiting and cursor.at() < cursor.until:
                cursor.waiting = True
                cursor.partition.waiting.append(cursor)

    def step(self, cursor: PartitionCursor) -> bool:
        """Leave a segment that is read to its end or dropped; false if there is nothing to read.

        That is at the end, or there is a `fault`: a gap, for a client that is not to go on behind
        one, or a record that cannot be read.
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
                    # All that was left is gone.
                    cursor.place(cursor.until)
                    return False
                cursor.skipped += first - expected
                expected = first
        elif expected >= log.next:
            return False
        try:
            cursor.seek(expected)
        except BrokerError as error:
            # Leaving the record out, forgiving or not, would hide that it is lost.
            self.fault = Error(
                condition=error.condition, description=error.description, info=error.info
            )
            return False
        return cursor.index < cursor.segment.count

    # -- the end ---------------------------------------------------------------------------

    def give_up(self, consumer: Consumer, cursor: PartitionCursor, offset: i64, size: i64) -> None:
        """End the link: a record is larger than the client takes, and leaving it out would hide
        it."""
        self.stop(
            consumer,
            Error(
                condition="amqp:link:message-size-exceeded",
                description=f"{cursor.partition.address!r}: the record {offset} makes a message of"
                f" {size} bytes, more than the link takes",
                info={
                    "partition": int(cursor.partition.number),
                    "offset": int(offset),
                    "size": int(size),
                },
            ),
        )

    def stop(self, consumer: Consumer, error: Error) -> None:
        """End the link, which cannot go on."""
        consumer.evict(error)
        # Whatever it does about its link, it reads no further.
        self.unsubscribe(consumer)


def _gap(cursor: PartitionCursor, expected: i64) -> Error:
    partition = cursor.partition
    log = partition.log
    return Error(
        condition=TRIMMED,
        description=f"{partition.address!r}: the next record to read was {expected}, and what is"
        f" left begins at {log.first}",
        info={
            "partition": int(partition.number),
            "expected": int(expected),
            "first": int(log.first),
            "next": int(log.next),
        },
    )
