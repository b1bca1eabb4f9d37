"""Message groups, each with one consumer: `python examples/broker/groups.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[Queue(name="accounts", groups=True)],
)


async def main() -> None:
    """Book on three accounts with two workers: one worker handles all of an account."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        workers = {name: await connection.receiver("accounts") for name in ("Ada", "Bob")}
        sender = await connection.sender("accounts")
        for number in (1, 2, 3):
            for account in ("rent", "food"):
                await sender.send(Message(body=f"{account} {number}", group_id=account))
        for name, worker in workers.items():
            for _ in range(3):
                delivery = await worker.receive(timeout=5)
                print(name, "books", delivery.message.body)
                if delivery.message.body == "food 3":
                    # Bob leaves without an outcome; Ada handles the account from now on.
                    await worker.close()
                else:
                    await delivery.accept()
        delivery = await workers["Ada"].receive(timeout=5)
        print("Ada books", delivery.message.body)
        await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# Ada books rent 1
# Ada books rent 2
# Ada books rent 3
# Bob books food 1
# Bob books food 2
# Bob books food 3
# Ada books food 3
