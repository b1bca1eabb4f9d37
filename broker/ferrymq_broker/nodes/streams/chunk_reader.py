"""A reader that sends many records in one message, as they were published: see `ferrymq.chunks`.

A chunk is gathered in slices, so that a large chunk does not stop others, and only while the link
can be sent something. The chunk ends before the end of the records, before a gap, and before a
record that cannot be read. So the gathered records are sent before the client is told of any
trouble. All readers together share a budget of work in one pass and of memory: see
`ferrymq_broker.nodes.chunk_budget`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.chunks import CHUNK_FORMAT, ChunkBuilder
from ferrymq_broker.nodes.chunk_budget import QUESTION, RECORD, ChunkMaker
from ferrymq_broker.nodes.consumer import IDLE, UNFIT, Consumer
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.streams.partition import SLICE
from ferrymq_broker.nodes.streams.reader import PartitionCursor, StreamReader

if TYPE_CHECKING:
    from ferrymq_broker.nodes.streams.stream import Stream

# The work of one turn: records (fewer if a filter is asked), or bytes.
_RECORDS: Final = 1024
_BYTES: Final = 256 * 1024
# The most offsets that a chunk covers, however few of the records pass the filter.
_SPAN: Final = 65_536

# The results of gathering.
_MORE: Final = 0  # the slice is used up
_FULL: Final = 1  # the chunk is full
_END: Final = 2  # nothing to read now, or ever


@final
class _Maker(ChunkMaker):
    """A reader as a `ChunkMaker` of the budget of all chunks."""

    __slots__ = ("_reader",)

    def __init__(self, reader: ChunkStreamReader) -> None:
        self._reader = reader

    def is_behind(self) -> bool:
        """See `ChunkMaker.is_behind`."""
        consumer = self._reader.consumer
        return consumer is not None and consumer.is_behind()

    def chunk_gone(self) -> None:
        """See `ChunkMaker.chunk_gone`."""
        self._reader.count_sent(0)

    def park(self) -> bool:
        """See `ChunkMaker.park`."""
        if self._reader.parked:
            return False
        self._reader.parked = True
        return True

    def resume(self) -> bool:
        """See `ChunkMaker.resume`."""
        self._reader.parked = False
        if self._reader.consumer is None:
            return False
        self._reader.touch()
        return True


@final
class ChunkStreamReader(StreamReader):
    """A reader of one partition. A chunk has up to `most_bytes` and `most_records`, but at least
    one record.

    `next` is the end of the last chunk that was sent: the client knows the records before it.
    """

    __slots__ = (
        "most_bytes",
        "most_records",
        "next",
        "_builder",
        "_built",
        "_covered",
        "_held",
        "_sent",
        "_maker",
    )

    def __init__(
        self, stream: Stream, forgiving: bool, most_bytes: i64, most_records: i64, start: i64
    ) -> None:
        super().__init__(stream, False, forgiving)
        self.most_bytes: i64 = most_bytes
        self.most_records: i64 = most_records
        self.next: i64 = start
        self._builder = ChunkBuilder()
        self._builder.begin(start)
        # A chunk that could not be sent yet; the end of that chunk, or of the chunk in the making.
        self._built: BrokerMessage | None = None
        self._covered: i64 = start
        # Bytes of payloads that were gathered and not sent (counted in `Agenda.held`), and of the
        # last sent chunk while it may not have gone out. Both are counted in `ChunkBudget.held`.
        self._held: i64 = 0
        self._sent: i64 = 0
        self._maker = _Maker(self)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget the link, which is gone."""
        self._begin_at(0)
        self.count_sent(0)
        super().unsubscribe(consumer)

    def bookmark(self, consumer: Consumer) -> list[int] | None:
        """Return the offset with which the next chunk begins."""
        return [int(self.next)]

    def rewind(self, consumer: Consumer, bookmark: list[int]) -> None:
        """Go back. If records are gone meanwhile, the chunk begins after them, and the client sees
        it."""
        if bookmark[0] < self.next:
            self.next = bookmark[0]
            super().rewind(consumer, bookmark)
            if self.cursors:
                self._begin_at(self.cursors[0].at())

    def _begin_at(self, offset: i64) -> None:
        """Drop the gathered records: the next chunk begins here."""
        self._built = None
        self._covered = offset
        self._builder.begin(offset)
        self.agenda.unpin(self._held)
        self.agenda.chunk_budget.held -= self._held
        self._held = 0

    def count_sent(self, size: i64) -> None:
        """Note how many bytes are on their way to the client."""
        before = self._sent
        self._sent = size
        if before != size:
            self.agenda.chunk_budget.count(self._maker, before, size)

    # -- reading ---------------------------------------------------------------------------

    def read(self, consumer: Consumer) -> bool:
        """Gather a slice, and send the chunk if it is complete; return whether nothing is left for
        now."""
        message = self._built
        cursor = self.cursors[0]
        if message is None:
            if not consumer.takes_more():
                consumer.ready = False
                return False
            self.count_sent(0)
            chunk_budget = self.agenda.chunk_budget
            if chunk_budget.is_spent():
                chunk_budget.wait(self._maker, True)
                return False
            state = self._gather(consumer, cursor)
            if state == _MORE and (self._builder.count == 0 or not chunk_budget.is_full()):
                if chunk_budget.is_spent():
                    chunk_budget.wait(self._maker, False)
                else:
                    self.touch()
                return False
            if state == _END and not self._has_news(consumer, cursor):
                fault = self.fault
                if fault is not None:
                    self.stop(consumer, fault)
                    return False
                self.wait()
                return True
            # The fault is found again after this chunk is sent.
            self.fault = None
            chunk = self._builder.build(self._covered, cursor.partition.log.next)
            message = BrokerMessage(chunk, CHUNK_FORMAT, 0)
        return self._send(consumer, cursor, message)

    def _send(self, consumer: Consumer, cursor: PartitionCursor, message: BrokerMessage) -> bool:
        verdict = self.show(consumer, message, self.next)
        if verdict == IDLE:
            self._built = message
            consumer.ready = False
            return False
        if verdict == UNFIT:
            self.give_up(consumer, cursor, self._covered - 1, len(message.payload))
            return False
        self.next = self._covered
        self.stream.delivered += self._builder.count
        # After a gap, the next chunk begins there.
        self._begin_at(cursor.at())
        self.count_sent(len(message.payload))
        self.touch()
        return False

    def _has_news(self, consumer: Consumer, cursor: PartitionCursor) -> bool:
        """Return whether the client must be told how far the reader has got, at the end of the
        records.

        Without a filter the client knows it, unless all records up to its end offset are gone.
        """
        if self._builder.count > 0:
            return True
        at = cursor.at()
        return self.next < at and (consumer.filter is not None or at >= cursor.until)

    def _gather(self, consumer: Consumer, cursor: PartitionCursor) -> i64:
        """Add records to the chunk, whose end is then `_covered`."""
        builder = self._builder
        partition = cursor.partition
        filter = consumer.filter
        until = cursor.until
        records: i64 = _RECORDS if filter is None else 4 * SLICE
        bytes: i64 = _BYTES
        chunk_budget = self.agenda.chunk_budget
        while records > 0 and bytes > 0:
            segment = cursor.segment
            index = cursor.index
            offset = segment.first + index
            if offset >= until:
                return _END
            if index >= segment.count or segment.dropped:
                moved = self.step(cursor)
                if cursor.at() != offset:
                    # The position has jumped: there is a gap.
                    if offset > builder.first:
                        return _FULL
                    self._covered = cursor.at()
                    builder.begin(cursor.at())
                if not moved:
                    return _END
                continue
            records -= 1
            payload = segment.payloads[index]
            size: i64 = len(payload)
            chunk_budget.taken += RECORD + size
            bytes -= size
            passes = True
            if filter is not None:
                message = partition.message_at(segment, index)
                question = QUESTION * filter.price(message)
                chunk_budget.taken += question
                bytes -= question
                passes = filter.matches(message)
            if not passes:
                cursor.index = index + 1
                self._covered = offset + 1
                if offset + 1 - builder.first >= _SPAN:
                    return _FULL
                continue
            if builder.count > 0 and not builder.fits(size, self.most_bytes):
                return _FULL
            format: i64 = 0
            formats = segment.formats
            if formats is not None:
                format = formats.get(index, 0)
            builder.add(payload, segment.times[index], offset, format)
            cursor.index = index + 1
            self._covered = offset + 1
            self._held += size
            self.agenda.pin(size)
            chunk_budget.held += size
            if builder.count >= self.most_records or offset + 1 - builder.first >= _SPAN:
                return _FULL
            if not builder.fits(0, self.most_bytes):
                # A record that is too large is the last of its chunk, so that `give_up` knows which
                # one it was.
                return _FULL
        return _MORE
