"""AMQP over WebSocket, end to end: our own client on both loops, with and without TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop

import ferrymq
from ferrymq import ConnectionClosed, Message, TransportError
from ferrymq_broker.config import Config
from ferrymq_broker.config.limits import Limits
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.server import BrokerServer
from tests.broker.tls.pki import Pki, serving
from tests.broker.websocket.waiting import empty

SIZES = [0, 1, 65_535, 65_536, 65_537, 3_000_000]


def config(**changes: object) -> Config:
    return Config(listener=[Listener(url="ws://127.0.0.1:0", **changes)])  # type: ignore[arg-type]


async def exchange(connection: ferrymq.Connection, sizes: list[int]) -> None:
    sender = await connection.sender("q")
    receiver = await connection.receiver("q")
    for size in sizes:
        await sender.send(Message(body=b"x" * size))
        delivery = await receiver.receive(timeout=30)
        assert delivery.message.body == b"x" * size
        await delivery.accept()


async def test_messages_of_every_size() -> None:
    async with BrokerServer(config()) as server, ferrymq.connect(server.url) as connection:
        assert server.url.startswith("ws://127.0.0.1:")
        await exchange(connection, SIZES)


def test_on_the_other_event_loop() -> None:
    async def run() -> None:
        async with BrokerServer(config()) as server, ferrymq.connect(server.url) as connection:
            await exchange(connection, SIZES)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_another_path_is_none() -> None:
    async with BrokerServer(config()) as server:
        with pytest.raises(TransportError, match="answered with 404"):
            await ferrymq.connect(f"{server.url}/elsewhere")


async def test_a_reader_that_does_not_read_stops_the_sender_and_nobody_else() -> None:
    """Back-pressure goes through the WebSocket in both directions."""
    async with (
        BrokerServer(config()) as server,
        ferrymq.connect(server.url) as slow,
        ferrymq.connect(server.url) as other,
    ):
        receiver = await slow.receiver("big", credit=500)
        sender = await other.sender("big")
        for _ in range(100):
            await sender.send(Message(body=b"x" * 100_000))
        await exchange(other, [10])
        for _ in range(100):
            await (await receiver.receive(timeout=30)).accept()


async def test_tls(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    async with serving(pki.tls(), "wss://127.0.0.1:0") as server:
        assert server.url.startswith("wss://")
        async with ferrymq.connect(server.url, ssl=pki.trusting()) as connection:
            await exchange(connection, SIZES)
            (handler,) = server.broker.handlers
            assert handler.client.transport.tls_version.startswith("TLSv1.")
            assert handler.client.transport.encrypted
        with pytest.raises(TransportError, match="the certificate of the peer is not good"):
            await ferrymq.connect(server.url)


async def test_the_end_of_the_broker_is_told() -> None:
    async with BrokerServer(config()) as server:
        connection = await ferrymq.connect(server.url)
        await connection.sender("q")
    with pytest.raises(ConnectionClosed, match="amqp:connection:forced"):
        await connection.sender("q")


async def test_the_client_reconnects() -> None:
    async with (
        BrokerServer(config()) as server,
        ferrymq.connect(server.url, reconnect=True) as connection,
    ):
        sender = await connection.sender("q")
        await sender.send(Message(body="one"))
        for protocol in list(server.connections):
            protocol.abort()
        try:
            await sender.send(Message(body="two"))
        except ConnectionClosed:
            # It was under way when the connection was lost.
            await sender.send(Message(body="two"))
        receiver = await connection.receiver("q")
        bodies = [(await receiver.receive(timeout=30)).message.body for _ in range(2)]
    assert bodies == ["one", "two"]


async def test_connections_are_counted_with_all_others() -> None:
    settings = config().model_copy(update={"limits": Limits(connections=1)})
    async with BrokerServer(settings) as server:
        async with ferrymq.connect(server.url):
            with pytest.raises(TransportError):
                await ferrymq.connect(server.url)
        await empty(server)
        async with ferrymq.connect(server.url) as connection:
            await exchange(connection, [1])
