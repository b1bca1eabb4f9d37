"""A broker inside a program, and a client of it: `python examples/broker/embedded.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Nodes, Queue
from ferrymq_broker.server import BrokerServer


async def main() -> None:
    """Serve two queues on a free port, send a message and take it."""
    config = Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        nodes=Nodes(auto_create=False),
        queue=[Queue(name="orders"), Queue(name="invoices")],
    )
    async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
        print("listening on", server.url)
        sender = await connection.sender("orders")
        await sender.send(Message(body="one coffee, please"))
        async with connection.receiver("orders") as receiver:
            delivery = await receiver.receive(timeout=5)
            print("received", delivery.message.body)
            await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# listening on amqp://127.0.0.1:…
# received one coffee, please
