"""A reader that sends many messages of a lease in one transfer: see `ferrymq.chunks`. Offsets are
positions in the lease, and times are 0. The budget is that of the chunks of streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.chunks import CHUNK_FORMAT, ChunkBuilder
from ferrymq_broker.nodes.chunk_budget import RECORD, ChunkMaker
from ferrymq_broker.nodes.consumer import IDLE, UNFIT, Consumer
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.queues.lease_reader import LeaseReader

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.lease import QueueLease
    from ferrymq_broker.nodes.queues.lease_terms import LeaseTerms
    from ferrymq_broker.nodes.queues.leases import QueueLeases

# The work of one turn: messages, or bytes.
_MESSAGES: Final = 256
_BYTES: Final = 256 * 1024


@final
class _Maker(ChunkMaker):
    """A reader as a `ChunkMaker` of the budget of all chunks."""

    __slots__ = ("_reader",)

    def __init__(self, reader: LeaseChunkReader) -> None:
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
class LeaseChunkReader(LeaseReader):
    """A reader whose chunks have up to `most_bytes` and `most_records`, but at least one
    message."""

    __slots__ = ("most_bytes", "most_records", "_builder", "_built", "_held", "_sent", "_maker")

    def __init__(
        self,
        leases: QueueLeases,
        entries: QueueEntries,
        lease: QueueLease,
        terms: LeaseTerms,
        most: tuple[int, int],
    ) -> None:
        super().__init__(leases, entries, lease, terms)
        self.most_bytes: i64 = most[0]
        self.most_records: i64 = most[1]
        self._builder = ChunkBuilder()
        self._builder.begin(self.at)
        # A chunk that could not be sent yet.
        self._built: BrokerMessage | None = None
        # Bytes of messages that were gathered and not sent, and of the last chunk that was sent
        # while it may not have gone out. Both are counted in `ChunkBudget.held`.
        self._held: i64 = 0
        self._sent: i64 = 0
        self._maker = _Maker(self)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget the link, which is gone."""
        self._drop()
        self.count_sent(0)
        super().unsubscribe(consumer)

    def read(self, consumer: Consumer) -> bool:
        """Gather messages, and send the chunk if it is complete; return whether none is left."""
        message = self._built
        if message is None:
            builder = self._builder
            if self.at == self.until and builder.first == self.at:
                return True
            if not consumer.takes_more():
                consumer.ready = False
                return False
            self.count_sent(0)
            chunk_budget = self.agenda.chunk_budget
            if chunk_budget.is_spent():
                chunk_budget.wait(self._maker, True)
                return False
            if not self._gather() and (builder.count == 0 or not chunk_budget.is_full()):
                if chunk_budget.is_spent():
                    chunk_budget.wait(self._maker, False)
                else:
                    self.touch()
                return False
            chunk = builder.build(self.at, len(self.lease.entries))
            message = BrokerMessage(chunk, CHUNK_FORMAT, 0)
        verdict = consumer.deliver(self.shown(message))
        if verdict == IDLE:
            self._built = message
            consumer.ready = False
            return False
        if verdict == UNFIT:
            self.give_up(len(message.payload))
            return False
        self._drop()
        self.count_sent(len(message.payload))
        self.touch()
        return False

    def _gather(self) -> bool:
        """Add messages to the chunk; return whether it is complete."""
        builder = self._builder
        chunk_budget = self.agenda.chunk_budget
        turns: i64 = _MESSAGES
        bytes: i64 = _BYTES
        while self.at < self.until:
            if turns == 0 or bytes <= 0:
                return False
            turns -= 1
            message = self.message()
            if message is not None:
                size: i64 = len(message.payload)
                if builder.count > 0 and not builder.fits(size, self.most_bytes):
                    return True
                builder.add(message.payload, 0, self.at, message.format)
                chunk_budget.taken += RECORD + size
                bytes -= size
                self._held += size
                self.agenda.pin(size)
                chunk_budget.held += size
            self.at += 1
            if builder.count >= self.most_records or not builder.fits(0, self.most_bytes):
                return True
        return True

    def _drop(self) -> None:
        """Forget the gathered messages: the next chunk begins here."""
        self._built = None
        self._builder.begin(self.at)
        self.agenda.unpin(self._held)
        self.agenda.chunk_budget.held -= self._held
        self._held = 0

    def count_sent(self, size: i64) -> None:
        """Note how many bytes are on their way to the client."""
        before = self._sent
        self._sent = size
        if before != size:
            self.agenda.chunk_budget.count(self._maker, before, size)
