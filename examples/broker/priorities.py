"""Urgent messages overtake waiting ones: `python examples/broker/priorities.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[Queue(name="jobs"), Queue(name="in-order", priorities=1)],
)


async def main() -> None:
    """Publish from the least urgent to the most urgent, then print the order of delivery."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        for queue in ("jobs", "in-order"):
            sender = await connection.sender(queue)
            await sender.send(Message(body="some day", priority=0))
            await sender.send(Message(body="today"))  # 4, the default
            await sender.send(Message(body="today, too", priority=4))
            await sender.send(Message(body="now", priority=9))
            async with connection.receiver(queue) as receiver:
                for _ in range(4):
                    delivery = await receiver.receive(timeout=5)
                    print(f"{queue}: {delivery.message.body}")
                    await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# jobs: now
# jobs: today
# jobs: today, too
# jobs: some day
# in-order: some day
# in-order: today
# in-order: today, too
# in-order: now
