"""A message that is sent twice arrives once: `python examples/broker/duplicates.py`."""

from __future__ import annotations

import asyncio
from uuid import UUID

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

# A window of ten minutes, in seconds.
CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[Queue(name="payments", duplicate_window=600)],
)
ORDER = UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")


async def pay(url: str, order: UUID) -> None:
    """Pay for an order, on a new connection, as after a lost one."""
    async with ferrymq.connect(url) as connection, connection.sender("payments") as sender:
        await sender.send(Message(body="12.50", message_id=order))
        print("accepted")


async def main() -> None:
    """Pay twice for the same order; see one payment."""
    async with (
        BrokerServer(CONFIG) as server,
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        await pay(server.url, ORDER)
        await pay(server.url, ORDER)
        queue = await management.read("queue", "payments")
        print("payments:", queue["available"], "duplicates:", queue["duplicates"])
        # A duplicate is dropped even if the first message has been consumed.
        receiver = await connection.receiver("payments")
        await (await receiver.receive(timeout=5)).accept()
        await pay(server.url, ORDER)
        queue = await management.read("queue", "payments")
        print("payments:", queue["available"], "duplicates:", queue["duplicates"])


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# accepted
# accepted
# payments: 1 duplicates: 1
# accepted
# payments: 0 duplicates: 2
