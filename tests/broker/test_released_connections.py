"""Connections that have ended: the broker frees them without a garbage collection.

A full collection looks at every message that waits, and nothing else happens meanwhile. So what a
connection leaves behind may hold no cycle.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import ferrymq
from ferrymq import Connection, Message
from ferrymq_broker.config import Config, Listener, Queue, Stream, Topic
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.connections.links import SessionLinks
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.filters.filter_set import FilterSet
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.tls_stream import TlsStream
from ferrymq_broker.transactions.coordinator import Coordinator
from ferrymq_broker.transactions.transaction import BrokerTransaction
from ferrymq_broker.transactions.txn_publish import TxnPublish
from tests.broker.tls.pki import Pki

OF_THE_BROKER = (
    AmqpProtocol,
    ConnectionHandler,
    Coordinator,
    FilterSet,
    ProducerLink,
    ConsumerLink,
    SessionLinks,
    TlsStream,
    BrokerTransaction,
    TxnPublish,
)


def alive() -> Counter[str]:
    """How many objects of connections the broker has made since `gc.freeze`, by class."""
    types = (type(one) for one in gc.get_objects())
    return Counter(each.__name__ for each in types if issubclass(each, OF_THE_BROKER))


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.disable()
    # Objects of other tests, of which there may be millions, are not looked at.
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.fixture(params=["amqp", "amqps", "upgraded", "ws", "wss"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[BrokerServer, dict[str, object]]]:
    """A broker and how to connect to it."""
    kind = request.param
    scheme = "amqp" if kind == "upgraded" else kind
    options: dict[str, object] = {}
    settings: dict[str, object] = {}
    if kind in ("amqps", "upgraded", "wss"):
        pki = Pki(tmp_path)
        settings["tls"] = pki.tls()
        options["ssl"] = pki.trusting()
    if kind == "upgraded":
        settings["upgrade_tls"] = "required"
        options["upgrade_tls"] = True
    config = Config(
        listener=[Listener(url=f"{scheme}://127.0.0.1:0", **settings)],  # type: ignore[arg-type]
        queue=[Queue(name="q")],
        topic=[Topic(name="t")],
        stream=[Stream(name="s", partitions=1)],
    )
    async with BrokerServer(config) as server:
        yield server, options


async def work(connection: Connection) -> None:
    """Use what a connection can have."""
    sender = await connection.sender("q")
    receiver = await connection.receiver("q", selector="color = 'red'")
    await sender.send(Message(b"1", application_properties={"color": "red"}))
    await sender.send(Message(b"2"))
    await (await receiver.receive()).accept()
    await connection.receiver("t", name="news", durable=True)
    await connection.receiver("s")
    await (await connection.sender("t")).send(Message(b"3"))
    await connection.transaction()
    async with connection.transaction() as transaction:
        await sender.send(Message(b"4"), transaction=transaction)
        await sender.send_encoded(
            [Message(b"5").encode()] * 2, settled=True, transaction=transaction
        )
    session = await connection.session()
    await session.receiver("q")
    await session.close()


async def close(connection: Connection) -> None:
    await connection.close()


async def vanish(connection: Connection) -> None:
    transport = connection.transport
    assert transport is not None
    transport.abort()


async def settled(server: BrokerServer) -> None:
    """Wait until the broker has no connection, and has done what was left to do."""
    while server.connections or server.broker.handlers:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("end", [close, vanish])
async def test_nothing_is_left_for_the_garbage_collector(
    place: tuple[BrokerServer, dict[str, object]],
    end: Callable[[Connection], Awaitable[None]],
    no_collections: None,
) -> None:
    server, options = place
    before = alive()
    for _ in range(3):
        connection = await ferrymq.connect(server.url, container_id="c", **options)  # type: ignore[arg-type]
        await work(connection)
        assert alive()["ConnectionHandler"] == before["ConnectionHandler"] + 1
        await end(connection)
        await settled(server)
    assert alive() - before == Counter()
