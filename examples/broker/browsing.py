"""Browsing a queue without taking messages: `python examples/broker/browsing.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")])


async def main() -> None:
    """Browse the waiting messages, then the new ones, then take them all."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("orders")
        await sender.send_many(Message(body=text) for text in ("coffee", "tea", "cake"))
        consumer = await connection.receiver("orders", credit=0)
        consumer.add_credit(1)
        held = await consumer.receive(timeout=5)
        print("a consumer holds", held.message.body)

        browser = await connection.receiver("orders", mode="copy")
        for _ in range(2):
            delivery = await browser.receive(timeout=5)
            print("a browser sees", delivery.message.body)
            await delivery.accept()  # has no effect on a browsed message
        await sender.send(Message(body="soup"))
        print("a browser sees", (await browser.receive(timeout=5)).message.body)

        await held.accept()
        consumer.add_credit(3)
        for _ in range(3):
            delivery = await consumer.receive(timeout=5)
            print("a consumer takes", delivery.message.body)
            await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# a consumer holds coffee
# a browser sees tea
# a browser sees cake
# a browser sees soup
# a consumer takes tea
# a consumer takes cake
# a consumer takes soup
