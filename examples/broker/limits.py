"""Behaviour of full queues: `python examples/broker/limits.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import DeliveryRejected, Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[
        Queue(name="rejects", max_length=2),
        Queue(name="forgets", max_length=2, overflow="drop-head"),
        Queue(name="puts-aside", max_length=2, overflow="dead-letter", dead_letter="aside"),
        Queue(name="blocks", max_length=2, overflow="block"),
        Queue(name="aside"),
    ],
)


async def contents(connection: ferrymq.Connection, queue: str) -> list[object]:
    """Return the messages in a queue, by browsing it."""
    async with connection.receiver(queue, mode="copy", credit=0) as browser:
        browser.add_credit(10)
        await browser.drain(timeout=5)
        return [(await browser.receive()).message.body for _ in range(browser.queued)]


async def main() -> None:
    """Publish three messages to queues that have room for two."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        for queue in ("rejects", "forgets", "puts-aside"):
            sender = await connection.sender(queue)
            for number in (1, 2, 3):
                try:
                    await sender.send(Message(body=number))
                except DeliveryRejected as rejected:
                    print(f"{number} is rejected:", rejected.error and rejected.error.condition)
            print(queue, "has", await contents(connection, queue))
        print("aside has", await contents(connection, "aside"))

        sender = await connection.sender("blocks")
        await sender.send_many([Message(body=1), Message(body=2)])
        print("blocks has", await contents(connection, "blocks"), "credit left:", sender.credit)
        third = asyncio.create_task(sender.send(Message(body=3)))
        async with connection.receiver("blocks", credit=0) as receiver:
            receiver.add_credit(1)
            await (await receiver.receive(timeout=5)).accept()
        await third  # the queue has room again
        print("blocks has", await contents(connection, "blocks"))


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# 3 is rejected: amqp:resource-limit-exceeded
# rejects has [1, 2]
# forgets has [2, 3]
# puts-aside has [2, 3]
# aside has [1]
# blocks has [1, 2] credit left: 0
# blocks has [2, 3]
