"""Send a few orders and process them, with asyncio.

make run                            # in one terminal
python examples/client_asyncio.py   # in another
"""

from __future__ import annotations

import asyncio
import sys

import ferrymq
from ferrymq import Message


async def produce(connection: ferrymq.Connection, count: int) -> None:
    """Send `count` orders; each send waits until the broker has the message."""
    async with connection.sender("orders") as sender:
        for number in range(count):
            message = Message(
                {"order": number, "articles": ["bread", "salt"]},
                subject="new",
                application_properties={"urgent": number % 2 == 0},
            )
            await sender.send(message, timeout=5)
    print(f"sent {count} orders")


async def consume(connection: ferrymq.Connection, count: int) -> None:
    """Take `count` orders; orders that cannot be processed are returned."""
    done = 0
    async for delivery in connection.receiver("orders", credit=10):
        message = delivery.message
        if message.subject != "new":
            await delivery.reject("example:unknown-order", f"subject {message.subject!r}")
            continue
        urgent = message.application_properties["urgent"]
        print(f"order {message.body['order']}{', urgent' if urgent else ''}")
        await delivery.accept()
        done += 1
        if done == count:
            return


async def main(url: str) -> None:
    """Produce and consume over one connection."""
    async with ferrymq.connect(url, timeout=5) as connection:
        await asyncio.gather(produce(connection, 5), consume(connection, 5))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://localhost"))
