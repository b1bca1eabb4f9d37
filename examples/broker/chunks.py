"""Reading a partition with many records at a time: `python examples/broker/chunks.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Stream
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")], stream=[Stream(name="orders", partitions=4)]
)


async def main() -> None:
    """Copy a range of offsets; find some records by a filter that covers the whole range."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        async with connection.sender("orders::2") as sender:
            await sender.send_many(
                Message(f"order {number}", application_properties={"large": number % 400 == 0})
                for number in range(1000)
            )
        async with connection.chunk_reader(
            "orders::2", start=100, until=900, chunk_records=300
        ) as reader:
            print("begins at", reader.first_offset)
            async for chunk in reader:
                first = Message.decode(chunk.payload(0)).body
                print(f"{chunk.first} to {chunk.next}: {chunk.count} records, {first!r} first")
        async for chunk in connection.chunk_reader("orders::2", until=1000, selector="large"):
            found = [chunk.offset(i) for i in range(chunk.count)]
            print(f"{chunk.first} to {chunk.next}: {found}")


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# begins at 100
# 100 to 400: 300 records, 'order 100' first
# 400 to 700: 300 records, 'order 400' first
# 700 to 900: 200 records, 'order 700' first
# 0 to 1000: [0, 400, 800]
