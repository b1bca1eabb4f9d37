"""A stream that is read from any position: `python examples/broker/streams.py`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import ferrymq
from ferrymq import Message
from ferrymq.options import Start
from ferrymq_broker.config import Config, Listener, Stream
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    stream=[Stream(name="clicks"), Stream(name="orders", partitions=4)],
)


async def read(connection: ferrymq.Connection, start: Start, count: int) -> list[str]:
    """Return offsets and bodies of the records from a position on."""
    found = []
    async with connection.receiver("clicks", start=start) as reader:
        for _ in range(count):
            message = (await reader.receive(timeout=5)).message
            found.append(f"{message.message_annotations['x-opt-offset']} {message.body}")
    return found


async def main() -> None:
    """Read the same records several times; show how keys choose partitions."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        begun = datetime.now(UTC).replace(microsecond=0)
        sender = await connection.sender("clicks")
        await sender.send_many(Message(body=text) for text in ("home", "shop", "cart"))
        print("first:", await read(connection, "first", 3))
        print("offset 1:", await read(connection, 1, 2))
        print("last:", await read(connection, "last", 1))
        print("by time:", await read(connection, begun, 1))
        newcomer = await connection.receiver("clicks", start="next")
        await sender.send(Message(body="paid"))
        print("next:", (await newcomer.receive(timeout=5)).message.body)

        orders = await connection.sender("orders")
        reader = await connection.receiver("orders", start="first")
        for customer in ("ann", "ben", "ann"):
            await orders.send(Message(body=customer, group_id=customer))
            message = (await reader.receive(timeout=5)).message
            print(message.body, "is in partition", message.message_annotations["x-opt-partition"])
        alone = await connection.sender("orders::2")
        await alone.send(Message(body="for partition 2"))
        message = (await reader.receive(timeout=5)).message
        print(message.body, "is in partition", message.message_annotations["x-opt-partition"])


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# first: ['0 home', '1 shop', '2 cart']
# offset 1: ['1 shop', '2 cart']
# last: ['2 cart']
# by time: ['0 home']
# next: paid
# ann is in partition 3
# ben is in partition 1
# ann is in partition 3
# for partition 2 is in partition 2
