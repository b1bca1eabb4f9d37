"""Scheduled messages: `python examples/broker/scheduling.py`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")])


async def main() -> None:
    """Cancel a reminder; publish others in the wrong order and wait for them."""
    async with (
        BrokerServer(CONFIG) as server,
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        sender = await connection.sender("reminders")
        for text, delay in (("in an hour", 3_600_000), ("tomorrow", 86_400_000)):
            annotations: dict[str, object] = {"x-opt-delivery-delay": delay}
            await sender.send(Message(body=text, message_annotations=annotations))
        queue = await management.read("queue", "reminders")
        print("available:", queue["available"], "scheduled:", queue["scheduled"])
        call_off = {"sequences": [1]}
        await management.request("CANCEL-SCHEDULED", "queue", "reminders", call_off)
        queue = await management.read("queue", "reminders")
        print("available:", queue["available"], "scheduled:", queue["scheduled"])

        now = datetime.now(UTC)
        when = int(now.timestamp() * 1000) + 500
        times: dict[str, dict[str, object]] = {
            "third": {"x-opt-scheduled-enqueue-time": now + timedelta(milliseconds=600)},
            "second": {"x-opt-delivery-time": when},
            "first": {"x-opt-delivery-delay": 100},
        }
        for text, annotations in times.items():
            await sender.send(Message(body=text, message_annotations=annotations))
        async with connection.receiver("reminders") as receiver:
            for _ in range(3):
                delivery = await receiver.receive(timeout=5)
                print(delivery.message.body)
                await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# available: 0 scheduled: 2
# available: 0 scheduled: 1
# first
# second
# third
