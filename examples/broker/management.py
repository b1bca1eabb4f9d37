"""Declaring and reading nodes by management requests: `python examples/broker/management.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import ManagementError, Message
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer


async def main() -> None:
    """Create an exchange with two queues, route through it, and peek into the queues."""
    config = Config(listener=[Listener(url="amqp://127.0.0.1:0")])
    async with (
        BrokerServer(config) as server,
        ferrymq.connect(server.url, desired_capabilities=[LINK_PAIR]) as connection,
        connection.management() as management,
    ):
        await management.create("exchange", "orders", {"routing": "topic"})
        for queue, key in (("new-orders", "order.new"), ("all-orders", "order.#")):
            await management.create("queue", queue, {"max-length": 1000})
            binding = {"exchange": "orders", "destination": queue, "key": key}
            await management.request("CREATE", "binding", None, binding)
        for key in ("new", "paid"):
            sender = await connection.sender(f"orders::order.{key}")
            await sender.send(Message(body=f"an order is {key}"))
        async for row in management.query("queue", ["name", "available"]):
            print(row["name"], "has", row["available"])
        for found in await management.peek("queue", "all-orders"):
            print(found.attributes["sequence"], found.message.body)
        print("moved", (await management.move("all-orders", "new-orders")).count)
        try:
            await management.delete("queue", "new-orders", if_empty=True)
        except ManagementError as error:
            print("not deleted:", error.status, error.description)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# all-orders has 2
# new-orders has 1
# 1 an order is new
# 2 an order is paid
# moved 2
# not deleted: 409 'new-orders' has 3 messages
