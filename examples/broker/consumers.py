"""Consumers that share or do not share a queue: `python examples/broker/consumers.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import LinkDetached, Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[Queue(name="jobs"), Queue(name="ledger", single_active=True)],
)


async def publish(connection: ferrymq.Connection, queue: str, count: int) -> None:
    """Publish messages 1, 2, 3, …"""
    async with connection.sender(queue) as sender:
        await sender.send_many(Message(body=number) for number in range(1, count + 1))


async def take(name: str, receiver: ferrymq.Receiver, count: int) -> None:
    """Take messages and print which consumer has taken them."""
    for _ in range(count):
        delivery = await receiver.receive(timeout=5)
        print(f"{name}: {delivery.message.body}")
        await delivery.accept()


async def main() -> None:
    """Show consumers with a priority, an exclusive consumer and a standby consumer."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        # The consumer with the higher priority is served while it has credit; here it has two.
        below = await connection.receiver("jobs")
        above = await connection.receiver("jobs", credit=0, properties={"priority": 5})
        above.add_credit(2)
        await publish(connection, "jobs", 4)
        await take("above", above, 2)
        await take("below", below, 2)

        try:
            await connection.receiver("jobs", properties={"exclusive": True})
        except LinkDetached as refused:
            print("exclusive:", refused.condition)
        await above.close()
        await below.close()
        async with connection.receiver("jobs", properties={"exclusive": True}):
            try:
                await connection.receiver("jobs")
            except LinkDetached as refused:
                print("beside it:", refused.condition)

        active = await connection.receiver("ledger")
        standby = await connection.receiver("ledger")
        await publish(connection, "ledger", 4)
        await take("active", active, 2)
        await active.close()
        await take("standby", standby, 2)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# above: 1
# above: 2
# below: 3
# below: 4
# exclusive: amqp:resource-locked
# beside it: amqp:resource-locked
# active: 1
# active: 2
# standby: 3
# standby: 4
