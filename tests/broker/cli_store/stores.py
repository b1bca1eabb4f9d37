"""Stores with something of every kind in them, as a real broker leaves them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Binding, Config, Exchange, Listener, Queue, Store, Stream, Topic
from ferrymq_broker.config.model import Alias
from ferrymq_broker.server import BrokerServer
from ferrymq_codec.scalars import UInt

SEGMENT = 64 * 1024


def config(path: Path) -> Config:
    """A broker on a free port with nodes of every kind."""
    return Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        store=Store(path=path, segment_bytes=SEGMENT),
        queue=[
            Queue(name="orders", duplicate_window=3600, delivery_limit=5),
            Queue(name="copies"),
        ],
        topic=[Topic(name="news")],
        stream=[Stream(name="clicks", partitions=2)],
        exchange=[
            Exchange(
                name="router",
                routing="fanout",
                binding=[Binding(to="orders"), Binding(to="copies")],
            )
        ],
        alias=[Alias(name="bestellungen", to="orders")],
    )


async def _fill(path: Path) -> None:
    async with BrokerServer(config(path)) as server, ferrymq.connect(server.url) as connection:
        for address, count in (("orders", 20), ("router", 3), ("clicks", 10)):
            sender = await connection.sender(address)
            for number in range(count):
                message = Message(body=f"{address} {number}", durable=True)
                message.message_id = f"{address}-{number}"
                if address == "orders" and number == 19:
                    message.message_annotations = {"x-opt-delivery-delay": UInt(3_600_000)}
                await sender.send(message)
        receiver = await connection.receiver("orders", credit=1)
        # Given back as failed: it has a delivery count.
        await (await receiver.receive(timeout=10)).modify(delivery_failed=True)


def fill(path: Path) -> Path:
    """A store that was closed, in `path`."""
    asyncio.run(_fill(path))
    return path


async def _bodies(path: Path, address: str, count: int) -> list[object]:
    async with BrokerServer(config(path)) as server, ferrymq.connect(server.url) as connection:
        start = "first" if address == "clicks" else None
        receiver = await connection.receiver(address, credit=count, start=start)
        found = []
        for _ in range(count):
            delivery = await receiver.receive(timeout=10)
            found.append((delivery.message.body, delivery.message.delivery_count))
            await delivery.accept()
        return found


def bodies(path: Path, address: str, count: int) -> list[object]:
    """What a broker has in an address whose store this is, with delivery counts."""
    return asyncio.run(_bodies(path, address, count))
