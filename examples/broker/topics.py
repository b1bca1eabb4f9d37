"""Subscriptions: transient, durable and shared: `python examples/broker/topics.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Topic
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import TerminusExpiryPolicy

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")], topic=[Topic(name="news")])
NEVER = TerminusExpiryPolicy.NEVER


async def publish(connection: ferrymq.Connection, text: str, region: str) -> None:
    """Publish to the topic; the publisher does not know the subscribers."""
    async with connection.sender("news") as sender:
        await sender.send(Message(body=text, application_properties={"region": region}))


async def read(name: str, receiver: ferrymq.Receiver) -> None:
    """Take the next message and print which subscriber got it."""
    delivery = await receiver.receive(timeout=5)
    print(f"{name}: {delivery.message.body}")
    await delivery.accept()


async def main() -> None:
    """Use a transient subscription, a durable one that comes back, and two that share."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        listener = await connection.receiver("news", selector="region = 'south'")
        async with ferrymq.connect(server.url, container_id="archive") as first:
            archive = await first.receiver("news", name="all", expiry_policy=NEVER)
            await archive.detach()  # closing it would end the subscription
        workers = [
            await connection.receiver("news", name=f"work|{number}", capabilities=["shared"])
            for number in (1, 2)
        ]
        await publish(connection, "rain", "north")
        await publish(connection, "sun", "south")
        await read("listener", listener)
        await read("worker 1", workers[0])
        await read("worker 2", workers[1])
        async with ferrymq.connect(server.url, container_id="archive") as again:
            archive = await again.receiver("news", name="all", expiry_policy=NEVER)
            await read("archive", archive)
            await read("archive", archive)
            await archive.close()  # unsubscribes


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# listener: sun
# worker 1: rain
# worker 2: sun
# archive: rain
# archive: sun
