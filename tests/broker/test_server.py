"""The server: listeners, transports and the end, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
from librt.strings import BytesWriter

from ferrymq.engine.frames import begin_frame, end_frame
from ferrymq_broker.clock import Clock
from ferrymq_broker.config import Config, Limits, Listener, Nodes, Queue, Store
from ferrymq_broker.nodes.queues.queue import Queue as NodeQueue
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Source, Target
from ferrymq_types.transport import Begin, Close, Open
from tests.broker.harness import text
from tests.broker.socket_client import SocketClient

LOCAL = Listener(url="amqp://127.0.0.1:0")


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    async with BrokerServer(Config(listener=[LOCAL])) as server:
        yield server


def queue_of(server: BrokerServer) -> NodeQueue:
    """The queue of these tests."""
    space = server.broker.default
    queue = space.find("q") or space.create("q", QueuePolicy())
    assert isinstance(queue, NodeQueue)
    return queue


async def test_messages_go_through(server: BrokerServer) -> None:
    async with SocketClient(server.port) as client:
        session = client.engine.begin()
        sender = session.attach_sender("s", target=Target(address="q"))
        receiver = session.attach_receiver("r", source=Source(address="q"))
        await client.until(lambda: sender.credit > 0)
        for number in range(10):
            sender.send(b"\x00\x53\x75\xa0\x01%d" % number)
        receiver.set_credit(100)
        await client.until(lambda: len(client.deliveries) == 10)
        assert [text(d.payload) for d in client.deliveries] == [b"%d" % n for n in range(10)]
        for delivery in client.deliveries:
            delivery.settle(Accepted())
        await client.round_trip()
        assert queue_of(server).acquired == 0


async def test_the_open_says_what_it_is(server: BrokerServer) -> None:
    async with SocketClient(server.port) as client:
        remote = client.engine.remote_open
        assert remote is not None
        assert remote.container_id == server.config.container_id
        assert remote.offered_capabilities == [
            "ANONYMOUS-RELAY",
            "LINK_PAIR_V1_0",
            "SHARED-SUBS",
        ]
        assert remote.max_frame_size == 65536
        assert remote.idle_time_out == 30000
        assert remote.properties is not None and remote.properties["product"] == "ferrymq"
        assert remote.properties["ferrymq:authenticated"] is False


async def broker_id(path: Path | None) -> str:
    """Return the properties of the open of a broker with this store, or with none."""
    config = Config(listener=[LOCAL], store=Store(path=path))
    async with BrokerServer(config) as server, SocketClient(server.port) as client:
        assert client.engine.remote_open is not None
        return str((client.engine.remote_open.properties or {})["ferrymq:broker-id"])


async def test_the_open_names_the_data_of_the_broker(tmp_path: Path) -> None:
    first = await broker_id(tmp_path / "a")
    assert str(UUID(first)) == first
    assert await broker_id(tmp_path / "a") == first
    assert await broker_id(tmp_path / "b") != first
    # Nothing is kept, so each start has other data.
    assert await broker_id(None) != await broker_id(None)


@pytest.mark.spec("2.4.5")
async def test_tcp_keeps_alive_too(server: BrokerServer) -> None:
    async with SocketClient(server.port):
        (protocol,) = server.connections
        connected = protocol._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.spec("2.2")
@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n", b"AMQP\x02\x01\x00\x00"])
async def test_a_client_with_another_protocol_gets_our_header_whatever_it_goes_on_to_write(
    server: BrokerServer, opening: bytes
) -> None:
    """Closing the socket on input that nobody reads would reset it, and our header be lost."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(opening)
    assert await reader.read() == b"AMQP\x00\x01\x00\x00"
    # Our header and the end of our stream are there; the client has not finished yet.
    for _ in range(64):
        writer.write(b"x" * 65536)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_closing_the_server_closes_connections_with_a_reason(server: BrokerServer) -> None:
    async with SocketClient(server.port) as client:
        await asyncio.gather(server.close(), client.ended.wait())
        assert client.closed_with is not None
        assert client.closed_with.condition == "amqp:connection:forced"
    assert not server.connections
    with pytest.raises(OSError):
        await SocketClient(server.port).__aenter__()
    await server.close()


async def test_a_client_that_does_not_answer_the_close_is_dropped() -> None:
    config = Config(listener=[LOCAL], limits=Limits(close_timeout=0.01))
    async with BrokerServer(config) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"AMQP\x00\x01\x00\x00")
        assert await reader.readexactly(8) == b"AMQP\x00\x01\x00\x00"
        await server.close()
        assert not server.connections
        await reader.read()
        writer.close()


async def test_several_listeners_serve_the_same_queues() -> None:
    async with BrokerServer(Config(listener=[LOCAL, LOCAL])) as server:
        first, second = server.addresses
        assert first.port != second.port != 0
        async with SocketClient(first.port) as one, SocketClient(second.port) as two:
            sender = one.engine.begin().attach_sender("s", target=Target(address="q"))
            receiver = two.engine.begin().attach_receiver("r", source=Source(address="q"))
            await one.until(lambda: sender.credit > 0)
            await two.until(lambda: receiver.usable)
            receiver.set_credit(1)
            two.flush()
            sender.send(b"\x00\x53\x75\xa0\x01x")
            one.flush()
            await two.until(lambda: len(two.deliveries) == 1)


async def test_every_address_of_a_host_is_told() -> None:
    config = Config(listener=[Listener(url="amqp://localhost:0")])
    async with BrokerServer(config) as server:
        for address in server.addresses:
            assert address.port != 0 and address.is_loopback
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()


async def test_configured_queues_are_there_from_the_start() -> None:
    config = Config(
        listener=[LOCAL], nodes=Nodes(auto_create=False), queue=[Queue(name="a"), Queue(name="b")]
    )
    async with BrokerServer(config) as server:
        assert list(server.broker.default.nodes) == ["a", "b", "$management"]


async def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = Config(listener=[LOCAL, Listener(url=f"amqp://127.0.0.1:{port}")])
        with pytest.raises(OSError, match="in use"):
            await BrokerServer(config).start()


async def test_garbage_is_answered_with_our_protocol_and_the_end(server: BrokerServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b"AMQP\x00\x01\x00\x00"
    writer.close()


async def test_a_lost_transport_returns_messages(server: BrokerServer) -> None:
    client = SocketClient(server.port)
    async with client:
        session = client.engine.begin()
        sender = session.attach_sender("s", target=Target(address="q"))
        receiver = session.attach_receiver("r", source=Source(address="q"))
        await client.until(lambda: sender.credit > 0 and receiver.usable)
        receiver.set_credit(1)
        sender.send(b"\x00\x53\x75\xa0\x01x")
        await client.until(lambda: len(client.deliveries) == 1)
        client.abort()
    async with SocketClient(server.port) as other:
        receiver = other.engine.begin().attach_receiver("r", source=Source(address="q"))
        await other.until(lambda: receiver.usable)
        receiver.set_credit(1)
        await other.until(lambda: len(other.deliveries) == 1)


async def test_a_client_that_does_not_read_is_not_served_beyond_its_buffers(
    server: BrokerServer,
) -> None:
    """Its messages stay in the queue for others, who are served meanwhile."""
    body = b"\x00\x53\x75\xb0\x00\x01\x00\x00" + bytes(65536)
    async with SocketClient(server.port) as producer, SocketClient(server.port) as slow:
        sender = producer.engine.begin().attach_sender("s", target=Target(address="q"))
        receiver = slow.engine.begin().attach_receiver("r", source=Source(address="q"))
        await producer.until(lambda: sender.credit > 0)
        await slow.until(lambda: receiver.usable)
        slow.pause()
        receiver.set_credit(100_000)
        slow.flush()
        for _ in range(500):
            await producer.until(lambda: sender.credit > 0)
            sender.send(body)
        await producer.until(lambda: not producer.unsettled(sender))
        assert queue_of(server).available > 100
        async with SocketClient(server.port) as quick:
            other = quick.engine.begin().attach_receiver("r", source=Source(address="q"))
            await quick.until(lambda: other.usable)
            other.set_credit(10)
            await quick.until(lambda: len(quick.deliveries) == 10)
        slow.resume()
        await slow.until(lambda: len(slow.deliveries) >= 490)


async def test_an_internal_error_costs_one_connection(server: BrokerServer) -> None:
    async with SocketClient(server.port) as good, SocketClient(server.port) as bad:
        (protocol,) = [
            p for p in server.connections if p.handler.client.peer.endswith(f":{bad.local_port}")
        ]

        output = protocol.handler.output
        write = output._write

        def fail(data: bytes) -> None:
            output._write = write
            raise RuntimeError("a mistake")

        output._write = fail
        bad.engine.begin()
        bad.flush()
        await bad.ended.wait()
        assert bad.closed_with is not None
        assert bad.closed_with.condition == "amqp:internal-error"
        session = good.engine.begin()
        await good.until(lambda: session.mapped)


async def test_pipelined_opening(server: BrokerServer) -> None:
    """A client may send everything up to the close before it has heard a word."""
    w = BytesWriter()
    w.write(b"AMQP\x00\x01\x00\x00")
    for frame in (
        Open(container_id="hasty"),
        Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10),
        Close(),
    ):
        mark = begin_frame(w, 0)
        frame.encode(w)
        end_frame(w, mark)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(w.getvalue())
    data = await reader.read()
    codes = []
    pos = 8
    while pos < len(data):
        codes.append(data[pos + 10])
        pos += int.from_bytes(data[pos : pos + 4], "big")
    # The session was over before it could be answered.
    assert codes == [0x10, 0x18]
    writer.close()


async def test_a_clock_that_is_set_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    class SetClock(Clock):
        def __init__(self) -> None:
            self.asked = 0
            self.followed = asyncio.Event()

        def epoch(self) -> float:
            self.asked += 1
            if self.asked > 2:
                self.followed.set()
                return super().epoch() + 3600
            return super().epoch()

    monkeypatch.setattr("ferrymq_broker.server.server.CLOCK_PERIOD", 0)
    clock = SetClock()
    async with BrokerServer(Config(listener=[LOCAL]), clock) as server:
        before = server.broker.clock.epoch
        await asyncio.wait_for(clock.followed.wait(), 10)
        assert server.broker.clock.epoch - before > 3599
