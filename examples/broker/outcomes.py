"""Outcomes that a consumer can give: `python examples/broker/outcomes.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import Accepted

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")])


async def main() -> None:
    """Return messages in several ways, and close a link with unsettled ones."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("jobs")
        await sender.send_many(Message(body=number) for number in (1, 2, 3))
        first = await connection.receiver("jobs", credit=3)
        one, two, three = [await first.receive(timeout=5) for _ in range(3)]
        # They return to their old places in the queue, whatever the order of their return.
        await three.release()
        await two.modify(delivery_failed=True, message_annotations={"x-opt-why": "too hard"})
        await one.modify(undeliverable_here=True)

        second = await connection.receiver("jobs", credit=3)
        one = await second.receive(timeout=5)
        print("the second gets", one.message.body)
        for _ in range(2):
            delivery = await first.receive(timeout=5)
            why = delivery.message.message_annotations.get("x-opt-why", "")
            print("the first gets", delivery.message.body, delivery.message.delivery_count, why)
            await delivery.accept()

        # Unsettled messages of a closed link get its default-outcome, which is accepted here.
        await one.release()
        await second.close()
        await first.close()
        async with connection.receiver("jobs", default_outcome=Accepted()) as last:
            print("the last gets", (await last.receive(timeout=5)).message.body)
        async with connection.receiver("jobs", credit=0) as nobody:
            nobody.add_credit(1)
            await nobody.drain(timeout=5)
            print("left:", nobody.queued)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# the second gets 1
# the first gets 2 1 too hard
# the first gets 3 0
# the last gets 1
# left: 0
