"""Messages that expire: `python examples/broker/expiry.py`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    queue=[
        Queue(name="quotes", expired="late"),
        Queue.model_validate({"name": "ticks", "message-ttl": "20ms", "expired": "late"}),
        Queue(name="late"),
    ],
)


async def main() -> None:
    """Let one message expire by its own ttl and one by the queue's; a third stays."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        quotes = await connection.sender("quotes")
        await quotes.send(Message(body="17.30, for a moment", ttl=0.005))
        await quotes.send(Message(body="17.40, for an hour", ttl=timedelta(hours=1)))
        ticks = await connection.sender("ticks")
        await ticks.send(Message(body="tick"))
        # The two queues have no consumers. Their messages expire on time all the same.
        async with connection.receiver("late") as late:
            for _ in range(2):
                delivery = await late.receive(timeout=5)
                annotations = delivery.message.message_annotations
                source = annotations["x-opt-deadletter-source"]
                reason = annotations["x-opt-deadletter-reason"]
                print(f"{source}: {delivery.message.body!r}, {reason}")
                await delivery.accept()
        async with connection.receiver("quotes") as receiver:
            delivery = await receiver.receive(timeout=5)
            print("still good:", delivery.message.body)
            await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# quotes: '17.30, for a moment', expired
# ticks: 'tick', expired
# still good: 17.40, for an hour
