"""Routing by key, pattern and headers: `python examples/broker/exchanges.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import DeliveryReleased, Message
from ferrymq_broker.config import Binding, Config, Exchange, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[Queue(name=name) for name in ("eu", "new", "invoices", "odd")],
    exchange=[
        Exchange(
            name="orders",
            routing="topic",
            alternate="odd",
            binding=[Binding(key="eu.#", to="eu"), Binding(key="*.*.new", to="new")],
        ),
        Exchange(
            name="papers",
            routing="headers",
            binding=[Binding(to="invoices", arguments={"kind": "invoice", "x-match": "all"})],
        ),
    ],
)


async def main() -> None:
    """Publish to the exchanges, then print the messages of each queue."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        orders = await connection.sender("orders")
        await orders.send(Message(body="1", subject="eu.fr.new"))
        await orders.send(Message(body="2", subject="us.tx.new"))
        await orders.send(Message(body="3", subject="mars"))
        # The key may be a part of the address as well.
        paid = await connection.sender("orders::eu.fr.paid")
        await paid.send(Message(body="4"))

        papers = await connection.sender("papers")
        await papers.send(Message(body="5", application_properties={"kind": "invoice"}))
        try:
            await papers.send(Message(body="6", application_properties={"kind": "postcard"}))
        except DeliveryReleased:
            print("6 went nowhere")

        for queue, count in (("eu", 2), ("new", 2), ("odd", 1), ("invoices", 1)):
            async with connection.receiver(queue) as receiver:
                deliveries = [await receiver.receive(timeout=5) for _ in range(count)]
                print(queue, "has", [delivery.message.body for delivery in deliveries])


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# 6 went nowhere
# eu has ['1', '4']
# new has ['1', '2']
# odd has ['3']
# invoices has ['5']
