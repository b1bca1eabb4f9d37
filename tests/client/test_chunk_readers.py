"""Readers of chunks: against our broker, and against a peer that breaks its word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

import ferrymq
from ferrymq import Chunk, Message, blocking
from ferrymq.chunks import CHUNK_FORMAT, ChunkBuilder
from ferrymq.engine import events
from ferrymq.options import ChunkReaderArguments
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.streams.chunk_reader import ChunkStreamReader
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
from ferrymq_types.transport import SenderSettleMode
from tests.client.cutter import Cutter
from tests.client.keeper import POLICY, Cut
from tests.client.peer import Peer, PeerConnection


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
    async with BrokerServer(config) as running:
        yield running


@pytest.fixture
async def client(server: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(server.url) as connected:
        yield connected


def declare(server: BrokerServer, **policy: int) -> Stream:
    stream = server.broker.default.create("orders", StreamPolicy(**policy))  # type: ignore[arg-type]
    assert isinstance(stream, Stream)
    return stream


async def publish(connection: ferrymq.Connection, count: int, start: int = 0) -> None:
    async with connection.sender("orders::0") as sender:
        await sender.send_many(
            Message(b"%d" % number, application_properties={"odd": number % 2 == 1})
            for number in range(start, start + count)
        )


def records(chunk: Chunk) -> list[tuple[int, object]]:
    return [
        (chunk.offset(i), Message.decode(chunk.payload(i)).body) for i in range(int(chunk.count))
    ]


def numbers(start: int, end: int) -> list[tuple[int, object]]:
    return [(number, b"%d" % number) for number in range(start, end)]


async def test_a_range_is_read_and_ends(server: BrokerServer, client: ferrymq.Connection) -> None:
    stream = declare(server, partitions=2)
    await publish(client, 1000)
    found: list[tuple[int, object]] = []
    async with client.chunk_reader("orders::0", start=100, until=950, chunk_records=64) as reader:
        assert (reader.first_offset, reader.until, reader.next_offset) == (100, 950, 100)
        assert reader.incarnation == stream.incarnation
        assert reader.address == "orders::0"
        async for chunk in reader:
            assert chunk.count <= 64 and chunk.end == 1000
            found += records(chunk)
        assert reader.next_offset == 950
        assert await reader.receive(timeout=0) is None
    assert found == numbers(100, 950)
    assert reader.closed and stream.readers == []


async def test_the_end_may_be_to_come(server: BrokerServer, client: ferrymq.Connection) -> None:
    declare(server)
    await publish(client, 10)
    async with client.chunk_reader("orders::0", until=15) as reader:
        first = await reader.receive(timeout=20)
        assert first is not None and records(first) == numbers(0, 10)
        await publish(client, 10, 10)
        found = [record async for chunk in reader for record in records(chunk)]
    assert found == numbers(10, 15)


async def test_a_filter_is_told_how_far_it_got(
    server: BrokerServer, client: ferrymq.Connection
) -> None:
    declare(server)
    await publish(client, 100)
    options: ChunkReaderArguments = {"until": 50, "selector": "odd"}
    found = [
        offset
        async for chunk in client.chunk_reader("orders::0", **options)
        for offset, _ in records(chunk)
    ]
    assert found == list(range(1, 50, 2))
    none = [
        chunk async for chunk in client.chunk_reader("orders::0", until=50, selector="odd IS NULL")
    ]
    assert [(chunk.count, chunk.next) for chunk in none] == [(0, 50)]


async def round_trips(client: ferrymq.Connection) -> None:
    """What was on its way is there, what that has caused too."""
    for _ in range(3):
        await client.fence("nobody", "nothing", timeout=20)


async def test_whoever_takes_nothing_stops_the_broker(
    server: BrokerServer, client: ferrymq.Connection
) -> None:
    stream = declare(server)
    await publish(client, 1000)
    async with client.chunk_reader("orders::0", chunk_records=10, credit=4) as reader:
        [there] = stream.readers
        assert isinstance(there, ChunkStreamReader)
        await round_trips(client)
        assert (there.next, reader.queued) == (40, 4)
        await round_trips(client)
        assert (there.next, reader.queued) == (40, 4)
        # Credit is given again when half of it is used.
        for taken, expected in ((1, 40), (2, 60), (3, 60), (4, 80)):
            assert await reader.receive(timeout=20) is not None
            await round_trips(client)
            assert (there.next, reader.queued) == (expected, expected // 10 - taken)


async def test_what_is_gone_ends_the_reader_or_is_counted(
    server: BrokerServer, client: ferrymq.Connection
) -> None:
    declare(server, max_records=50)
    await publish(client, 50)
    strict = await client.chunk_reader("orders::0", chunk_records=5, credit=1)
    lenient = await client.chunk_reader(
        "orders::0", chunk_records=5, credit=1, on_trim="continue", until=590
    )
    await round_trips(client)
    await publish(client, 600, 50)
    with pytest.raises(ferrymq.LinkDetached) as caught:
        async for _ in strict:
            pass
    assert caught.value.condition == "ferrymq:stream-trimmed"
    assert caught.value.error is not None and caught.value.error.info is not None
    assert caught.value.error.info["expected"] == strict.next_offset == 5
    found = [chunk async for chunk in lenient]
    # All of it was gone but the first chunk.
    assert [(chunk.first, chunk.next) for chunk in found] == [(0, 5), (590, 590)]
    assert (lenient.skipped, lenient.next_offset) == (585, 590)
    await lenient.close()


async def test_what_cannot_be_read_in_chunks_is_refused(
    server: BrokerServer, client: ferrymq.Connection
) -> None:
    declare(server)
    server.broker.default.create("queue", QueuePolicy())
    with pytest.raises(ferrymq.LinkDetached, match="ferrymq:chunks is for one partition"):
        await client.chunk_reader("orders")
    with pytest.raises(ferrymq.LinkDetached, match="does not"):
        await client.chunk_reader("queue")
    with pytest.raises(ferrymq.LinkDetached, match="reading cannot begin at 7"):
        await client.chunk_reader("orders::0", start=7)
    for options in ({"credit": 0}, {"chunk_bytes": 0}, {"chunk_records": -1}, {"until": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            client.chunk_reader("orders::0", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_trim"):
        client.chunk_reader("orders::0", on_trim="perhaps")  # type: ignore[arg-type]


async def test_closing_ends_the_iteration(server: BrokerServer, client: ferrymq.Connection) -> None:
    declare(server)
    reader = await client.chunk_reader("orders::0")

    async def iterate() -> int:
        return len([chunk async for chunk in reader])

    waiting = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    await reader.close()
    assert await waiting == 0


async def test_threads_read_too(server: BrokerServer) -> None:
    stream = declare(server)

    def work() -> None:
        with blocking.connect(server.url) as connection:
            connection.sender("orders").send_many(Message(b"%d" % i) for i in range(100))
            with connection.chunk_reader("orders::0", until=90, chunk_records=7) as reader:
                assert (reader.first_offset, reader.until) == (0, 90)
                assert reader.incarnation == stream.incarnation
                found = [record for chunk in reader for record in records(chunk)]
                assert found == numbers(0, 90)
                assert reader.next_offset == 90 and reader.receive() is None
                assert (reader.skipped, reader.closed) == (0, False)
            assert reader.closed
            with connection.session() as session, session.chunk_reader("orders::0") as more:
                assert more.receive(timeout=20) is not None
                with pytest.raises(TimeoutError):
                    more.receive(timeout=0.01)

    await asyncio.get_running_loop().run_in_executor(None, work)
    assert stream.readers == []


@pytest.mark.parametrize("cut", [3000, 6000, 9000, 12_000, 20_000])
async def test_a_lost_connection_is_made_up_for(server: BrokerServer, cut: int) -> None:
    declare(server)
    async with ferrymq.connect(server.url) as connection:
        await publish(connection, 1000)
    port = int(server.url.rsplit(":", 1)[1])
    async with (
        Cutter(port, [Cut(outgoing=cut)]) as cutter,
        ferrymq.connect(cutter.url, reconnect=POLICY) as connection,
        connection.chunk_reader("orders::0", until=1000, chunk_records=50) as reader,
    ):
        found: list[tuple[int, object]] = []
        async for chunk in reader:
            found += records(chunk)
    assert found == numbers(0, 1000)
    assert cutter.connections == 2


# -- peers that break their word ---------------------------------------------------------------

INCARNATION = uuid4()


class ChunkPeer(Peer):
    """Sends `payloads`, as far as credit goes."""

    def __init__(self, payloads: list[bytes], format: int = CHUNK_FORMAT) -> None:
        super().__init__()
        self.payloads = payloads
        self.format = format
        self.granted: dict[str, object] = {
            "ferrymq:chunks": {},
            "ferrymq:first-offset": 5,
            "ferrymq:incarnation": INCARNATION,
        }
        self.on[events.AttachReceived] = self.answer
        self.on[events.CreditReceived] = self.send

    def answer(self, connection: PeerConnection, event: events.AttachReceived) -> None:
        remote = event.link.remote_attach
        assert remote is not None
        assert remote.snd_settle_mode is SenderSettleMode.SETTLED
        self.attach(connection, event, properties=self.granted)

    def send(self, connection: PeerConnection, event: events.CreditReceived) -> None:
        while self.payloads and event.link.credit > 0:
            event.link.send(self.payloads.pop(0), settled=True, message_format=self.format)


def chunk(first: int, next: int) -> bytes:
    builder = ChunkBuilder()
    builder.begin(first)
    for offset in range(first, next):
        builder.add(b"payload", 0, offset, 0)
    return builder.build(next, 100)


@pytest.mark.parametrize(("second", "begins"), [(chunk(9, 10), 9), (chunk(7, 10), 7)])
async def test_a_chunk_that_does_not_follow_is_an_error(second: bytes, begins: int) -> None:
    async with ChunkPeer([chunk(5, 8), second]) as peer, ferrymq.connect(peer.url) as connection:
        reader = await connection.chunk_reader("orders::0", start=5)
        assert (await reader.receive(timeout=20)) is not None
        with pytest.raises(ferrymq.RemoteProtocolError, match=f"begin at 8 and begins at {begins}"):
            await reader.receive(timeout=20)
        assert reader.next_offset == 8
        assert (await peer.seen(events.DetachReceived)).error is not None
        with pytest.raises(ferrymq.LinkDetached):
            await reader.receive(timeout=20)


async def test_going_on_behind_gaps_is_going_forward() -> None:
    payloads = [chunk(7, 8), chunk(5, 8)]
    async with ChunkPeer(payloads) as peer, ferrymq.connect(peer.url) as connection:
        reader = await connection.chunk_reader("orders::0", on_trim="continue")
        assert (await reader.receive(timeout=20)) is not None and reader.skipped == 2
        with pytest.raises(ferrymq.RemoteProtocolError, match="begin at 8 and begins at 5"):
            await reader.receive(timeout=20)


async def test_what_is_no_chunk_is_an_error() -> None:
    async with ChunkPeer([b"\0" * 8]) as peer, ferrymq.connect(peer.url) as connection:
        with pytest.raises(ferrymq.DecodeError, match="chunk"):
            await (await connection.chunk_reader("orders::0")).receive(timeout=20)
        await peer.seen(events.DetachReceived)
    async with ChunkPeer([chunk(5, 6)], 0) as peer, ferrymq.connect(peer.url) as connection:
        with pytest.raises(ferrymq.RemoteProtocolError, match="format 0x0 came"):
            await (await connection.chunk_reader("orders::0")).receive(timeout=20)
        await peer.seen(events.DetachReceived)


@pytest.mark.parametrize(
    ("name", "value", "lack"),
    [
        ("ferrymq:chunks", None, "does not send chunks"),
        ("ferrymq:incarnation", None, "incarnation of the stream"),
        ("ferrymq:first-offset", None, "the first offset"),
        ("ferrymq:until", 51, "does not end before the offset 50"),
    ],
)
async def test_what_is_not_granted_is_missed(name: str, value: object, lack: str) -> None:
    async with ChunkPeer([]) as peer, ferrymq.connect(peer.url) as connection:
        peer.granted["ferrymq:until"] = 50
        if value is None:
            del peer.granted[name]
        else:
            peer.granted[name] = value
        with pytest.raises(ferrymq.LinkDetached, match=lack):
            await connection.chunk_reader("orders::0", until=50)


@pytest.mark.parametrize("forgiving", [True, False])
async def test_records_may_go_while_there_is_no_connection(forgiving: bool) -> None:
    async with (
        ChunkPeer([chunk(5, 8)]) as peer,
        ferrymq.connect(peer.url, reconnect=POLICY) as connection,
    ):
        reader = await connection.chunk_reader(
            "orders::0", on_trim="continue" if forgiving else "detach"
        )
        assert (await reader.receive(timeout=20)) is not None
        peer.granted["ferrymq:first-offset"] = 20
        peer.payloads = [chunk(20, 22)]
        peer.connection.transport.abort()
        if forgiving:
            assert (await reader.receive(timeout=20)) is not None
            assert (reader.skipped, reader.next_offset) == (12, 22)
        else:
            with pytest.raises(ferrymq.LinkDetached, match="from 8 to before 20 were dropped"):
                await reader.receive(timeout=20)


async def test_another_incarnation_is_another_stream() -> None:
    async with (
        ChunkPeer([chunk(5, 8)]) as peer,
        ferrymq.connect(peer.url, reconnect=POLICY) as connection,
    ):
        reader = await connection.chunk_reader("orders::0")
        assert (await reader.receive(timeout=20)) is not None
        assert reader.incarnation == INCARNATION
        peer.granted["ferrymq:incarnation"] = UUID(int=1)
        peer.payloads = [chunk(8, 9)]
        peer.connection.transport.abort()
        with pytest.raises(ferrymq.LinkDetached, match="deleted and made again"):
            await reader.receive(timeout=20)
