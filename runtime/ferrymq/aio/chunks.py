"""Readers of chunks: a partition of a stream, many records in each transfer (`ferrymq.chunks`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ferrymq.aio.delivery import Delivery
from ferrymq.aio.opening import Iterated, Opened, Opening
from ferrymq.aio.receiver import Receiver
from ferrymq.chunks import BYTES, CHUNK_FORMAT, CHUNKS, RECORDS, UNTIL, Chunk
from ferrymq.durations import Duration
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import DecodeError, LinkDetached, RemoteProtocolError, Scope
from ferrymq.options import ChunkReaderOptions, ReceiverOptions
from ferrymq.peers import POSITION
from ferrymq_codec.scalars import Described, Symbol, UInt, ULong
from ferrymq_types.transport import Error, SenderSettleMode

if TYPE_CHECKING:
    from ferrymq.aio.session import Session

ON_TRIM: Final = "ferrymq:on-trim"
_FIRST_OFFSET: Final = "ferrymq:first-offset"
_INCARNATION: Final = "ferrymq:incarnation"


def _receiver_options(options: ChunkReaderOptions) -> ReceiverOptions:
    properties: dict[str, object] = dict(options.properties or {})
    properties[CHUNKS] = {
        Symbol(BYTES): ULong(options.chunk_bytes),
        Symbol(RECORDS): UInt(options.chunk_records),
    }
    if options.until is not None:
        properties[UNTIL] = options.until
    if options.on_trim != "detach":
        properties[ON_TRIM] = options.on_trim
    return ReceiverOptions(
        name=options.name,
        credit=options.credit,
        renew="delivery",
        filters=options.filters,
        selector=options.selector,
        start=options.start,
        snd_settle_mode=SenderSettleMode.SETTLED,
        max_message_size=options.max_message_size,
        properties=properties,
        timeout=options.timeout,
    )


class ChunkLink(Receiver):
    """Receiver behind a `ChunkReader`.

    `next` is the offset at which the next chunk begins, None before the link was first attached.
    When the link is attached again, it continues after the chunks that have arrived.
    """

    def __init__(self, session: Session, address: str, options: ChunkReaderOptions) -> None:
        super().__init__(session, address, _receiver_options(options))
        self.next: int | None = None
        self.incarnation: UUID | None = None
        self._until = options.until
        self._forgiving = options.on_trim == "continue"
        # The offset at which the link continues.
        self._behind: int | None = None

    def fail(self, condition: str, description: str) -> RemoteProtocolError:
        """Close the link because the broker broke a rule, and return the error to raise."""
        engine = self._engine
        if engine is not None:
            reason = Error(condition=condition, description=description)
            self._give_up(engine, LinkDetached(self.place, reason, True))
        return RemoteProtocolError(condition, description, Scope.LINK)

    def _create(self, session: EngineSession) -> ReceiverLink:
        if self.next is not None:
            behind = self.next
            if self._queue:
                behind = int(Chunk(self._queue[-1].payload).next)
            self._behind = behind
            filters = dict(self._source.filter or {})
            filters[POSITION] = Described(Symbol(POSITION), ULong(behind))
            self._source.filter = filters
        return super()._create(session)

    def _lack(self) -> str | None:
        lack = super()._lack()
        if lack is not None:
            return lack
        properties = self.properties
        if CHUNKS not in properties:
            return "the peer does not send chunks"
        if self._until is not None and properties.get(UNTIL) != self._until:
            return f"the peer does not end before the offset {self._until}"
        incarnation = properties.get(_INCARNATION)
        if not isinstance(incarnation, UUID) or not isinstance(properties.get(_FIRST_OFFSET), int):
            return "the peer does not state the incarnation of the stream and the first offset"
        if self.incarnation is not None and incarnation != self.incarnation:
            return f"the stream {self.address!r} was deleted and made again meanwhile"
        first, behind = properties[_FIRST_OFFSET], self._behind
        if behind is not None and first != behind and not self._forgiving:
            return f"the records from {behind} to before {first} were dropped meanwhile"
        return None


class ChunkReader(Iterated, Opened):
    """Reader of a partition, chunk by chunk. Made by `Connection.chunk_reader`.

    ``async for chunk in reader`` gives chunks without gaps between them, and ends after the last
    record before `until`, or when this side closes the reader. `next_offset` is the offset at which
    the next chunk begins. With ``on_trim="continue"``, `skipped` is the number of records that were
    deleted before they could be read.
    """

    def __init__(self, link: ChunkLink, options: ChunkReaderOptions) -> None:
        self._link = link
        self._forgiving = options.on_trim == "continue"
        first = link.properties[_FIRST_OFFSET]
        incarnation = link.properties[_INCARNATION]
        assert isinstance(first, int) and isinstance(incarnation, UUID), "ChunkLink._lack saw to it"
        link.next = first
        link.incarnation = incarnation
        self._first_offset = first
        self._incarnation = incarnation
        self._until = options.until
        self.skipped: int = 0
        # The last chunk taken, and the position before it.
        self._taken: tuple[Chunk, Delivery, tuple[int | None, int]] | None = None

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        """Name of the link."""
        return self._link.name

    @property
    def address(self) -> str | None:
        """The partition that the reader reads."""
        return self._link.address

    @property
    def first_offset(self) -> int:
        """The offset at which reading began: `start`, or the first record if that was deleted."""
        return self._first_offset

    @property
    def incarnation(self) -> UUID:
        """Identifier that tells the stream from earlier and later ones of the same name."""
        return self._incarnation

    @property
    def until(self) -> int | None:
        """The offset before which reading ends, None if it does not."""
        return self._until

    @property
    def next_offset(self) -> int:
        """The offset at which the next chunk begins."""
        behind = self._link.next
        return self._first_offset if behind is None else behind

    @property
    def properties(self) -> dict[str, object]:
        """The properties in the broker's attach (AMQP 1.0 §2.7.3)."""
        return self._link.properties

    @property
    def queued(self) -> int:
        """How many chunks have arrived and have not been taken."""
        return self._link.queued

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._link.closed

    @property
    def closed_here(self) -> bool:
        """Whether this side ended the link."""
        return self._link.closed_here

    async def receive(self, *, timeout: Duration | None = None) -> Chunk | None:
        """Take the next chunk, waiting for it if need be; return None after the last record before
        `until`.

        Raises `TimeoutError` when none comes in time; `LinkDetached`, `SessionEnded` or
        `ConnectionClosed` when none will come: with the condition ``ferrymq:stream-trimmed`` if
        records were deleted before they were read, ``ferrymq:record-damaged`` if one cannot be
        read. Raises `RemoteProtocolError` and closes the link if a chunk does not begin where the
        last one ended, and `DecodeError` if the message is no chunk.
        """
        if self._until is not None and self.next_offset >= self._until:
            return None
        delivery = await self._link.receive(timeout=timeout)
        if delivery.message_format != CHUNK_FORMAT:
            raise self._link.fail(
                "amqp:not-allowed",
                f"{self.address!r}: a message of format {delivery.message_format:#x} came, and no"
                " chunk",
            )
        try:
            chunk = Chunk(delivery.payload)
        except DecodeError as error:
            self._link.fail("amqp:decode-error", str(error))
            raise
        before = self._link.next, self.skipped
        self._advance(chunk)
        self._taken = chunk, delivery, before
        return chunk

    async def close(self) -> None:
        """Close the link; see `Receiver.close`."""
        await self._link.close()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        try:
            chunk = await self.receive()
        except LinkDetached:
            if self.closed_here:
                raise StopAsyncIteration from None
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    def put_back(self, chunk: Chunk | None) -> None:
        """Put back the last chunk taken, which the caller did not receive: it comes next again."""
        if self._taken is not None and self._taken[0] is chunk:
            _, delivery, (self._link.next, self.skipped) = self._taken
            self._taken = None
            self._link.put_back([delivery])

    def _advance(self, chunk: Chunk) -> None:
        expected = self.next_offset
        if chunk.first != expected and not (self._forgiving and chunk.first > expected):
            raise self._link.fail(
                "amqp:illegal-state",
                f"{self.address!r}: the next chunk had to begin at {expected} and begins at"
                f" {chunk.first}",
            )
        self.skipped += int(chunk.first) - expected
        self._link.next = int(chunk.next)


class OpeningChunkReader(Iterated, Opening[ChunkReader]):
    """A reader that is not attached yet; ``async for`` attaches, iterates and closes it."""

    __slots__ = ()

    def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        return self._iterate()

    async def _iterate(self) -> AsyncGenerator[Chunk, None]:
        reader = await self.open()
        try:
            async for chunk in reader:
                yield chunk
        finally:
            await reader.close()
