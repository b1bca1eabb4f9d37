"""Credit as a promise of room: `python examples/broker/flow_control.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Alarms, Config, Limits, Listener, Queue
from ferrymq_broker.server import BrokerServer

CONFIG = Config(
    listener=[Listener(url="amqp://127.0.0.1:0")],
    limits=Limits(credit=1000),
    queue=[Queue(name="jobs", max_length=10, overflow="block")],
    alarms=Alarms(memory=1_000_000, low_water=500_000),
)


async def main() -> None:
    """Show a queue whose senders share its room, and a broker that is full."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        free = await connection.sender("anything")
        await free.send(Message(body="first"))
        print("credit of a queue without a bound:", free.credit)
        senders = [await connection.sender("jobs") for _ in range(3)]
        for sender in senders:
            await sender.ready(timeout=5)
        print("promised for ten places:", sum(sender.credit for sender in senders))

        # Two large messages exceed the alarm's limit. Credit that was granted stays valid.
        await free.send_many(Message(body=bytes(600_000)) for _ in range(2))
        late = await connection.sender("anything")
        print("alarms:", list(server.broker.alarms), "credit of who comes now:", late.credit)
        waiting = asyncio.create_task(late.send(Message(body="last")))
        async with connection.receiver("anything") as receiver:
            for _ in range(3):
                await (await receiver.receive(timeout=5)).accept()
            await waiting  # there is room again
            print("alarms:", list(server.broker.alarms))
            print("received:", (await receiver.receive(timeout=5)).message.body)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# credit of a queue without a bound: 999
# promised for ten places: 10
# alarms: ['memory'] credit of who comes now: 0
# alarms: []
# received: last
