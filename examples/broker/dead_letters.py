"""Dead letters of a queue: `python examples/broker/dead_letters.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[
        Queue(name="orders", delivery_limit=1, dead_letter="orders.dead"),
        Queue(name="orders.dead"),
    ],
)


async def main() -> None:
    """Reject one order, fail twice with another, and read both as dead letters."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("orders")
        await sender.send(Message(body="a coffee without water"))
        await sender.send(Message(body="a coffee from the broken machine"))
        async with connection.receiver("orders") as receiver:
            impossible = await receiver.receive(timeout=5)
            await impossible.reject("cafe:impossible", "coffee needs water")
            for _ in range(2):
                attempt = await receiver.receive(timeout=5)
                print("attempt, failed before:", attempt.message.delivery_count)
                await attempt.modify(delivery_failed=True)
        async with connection.receiver("orders.dead") as dead:
            for _ in range(2):
                delivery = await dead.receive(timeout=5)
                annotations = delivery.message.message_annotations
                print(delivery.message.body)
                for key in ("reason", "source", "count", "condition", "description"):
                    value = annotations.get(f"x-opt-deadletter-{key}")
                    if value is not None:
                        print(f"  {key}: {value}")
                await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# attempt, failed before: 0
# attempt, failed before: 1
# a coffee without water
#   reason: rejected
#   source: orders
#   count: 1
#   condition: cafe:impossible
#   description: coffee needs water
# a coffee from the broken machine
#   reason: delivery-limit
#   source: orders
#   count: 1
