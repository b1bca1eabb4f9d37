"""State that outlives a broker with a store: `python examples/broker/durability.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Store, Topic
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import TerminusExpiryPolicy


def configuration(directory: Path) -> Config:
    """Configure a broker that stores durable messages in a directory."""
    return Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        store=Store(path=directory),
        topic=[Topic(name="news")],
    )


async def subscribe(connection: ferrymq.Connection) -> ferrymq.Receiver:
    """Open a durable subscription; container-id and name identify it."""
    return await connection.receiver(
        "news", name="all", durable=True, expiry_policy=TerminusExpiryPolicy.NEVER
    )


async def before(directory: Path) -> None:
    """Leave messages in the queue and the subscription, and stop the broker."""
    async with (
        BrokerServer(configuration(directory)) as server,
        ferrymq.connect(server.url, container_id="archive") as connection,
    ):
        archive = await subscribe(connection)
        await archive.detach()  # closing it would end the subscription
        orders = await connection.sender("orders")
        await orders.send(Message(body="tea", durable=True))
        await orders.send(Message(body="not worth a disk"))
        later = {"x-opt-delivery-delay": 1000}
        await orders.send(Message(body="coffee", durable=True, message_annotations=later))
        news = await connection.sender("news")
        await news.send(Message(body="rain", durable=True))


async def after(directory: Path) -> None:
    """Start another broker with the same directory, and take the stored messages."""
    async with (
        BrokerServer(configuration(directory)) as server,
        ferrymq.connect(server.url, container_id="archive") as connection,
    ):
        archive = await subscribe(connection)
        orders = await connection.receiver("orders")
        for name, receiver in (("archive", archive), ("orders", orders), ("orders", orders)):
            delivery = await receiver.receive(timeout=5)
            print(f"{name}: {delivery.message.body}")
            await delivery.accept()


async def main() -> None:
    """Run one broker, and then another one after it."""
    with TemporaryDirectory() as directory:
        await before(Path(directory))
        print("the broker has stopped")
        await after(Path(directory))


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# the broker has stopped
# archive: rain
# orders: tea
# orders: coffee
