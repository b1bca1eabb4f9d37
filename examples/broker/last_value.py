"""The last price of everything: `python examples/broker/last_value.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[Queue(name="prices", last_value_key="article")],
)


async def show(connection: ferrymq.Connection) -> None:
    """Print all prices; browsing leaves them for the next reader."""
    async with connection.receiver("prices", mode="copy", credit=0) as browser:
        browser.add_credit(100)
        await browser.drain(timeout=5)
        for _ in range(browser.queued):
            message = (await browser.receive()).message
            print(message.application_properties["article"], message.body)


async def main() -> None:
    """Publish changing prices, and ask for the current ones."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("prices")
        for article, price in (("coffee", "2.20"), ("tea", "1.90"), ("coffee", "2.50")):
            await sender.send(Message(body=price, application_properties={"article": article}))
        await show(connection)
        print("and later")
        await sender.send(Message(body="2.10", application_properties={"article": "tea"}))
        await show(connection)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# tea 1.90
# coffee 2.50
# and later
# coffee 2.50
# tea 2.10
