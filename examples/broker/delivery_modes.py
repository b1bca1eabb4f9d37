"""Delivery modes: `python examples/broker/delivery_modes.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import LinkDetached, Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")])


async def main() -> None:
    """Require or request modes, on links that can and cannot provide them."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        # If a resumed link sends a message again under its tag, the broker takes it once.
        sender = await connection.sender(
            "payments", name="till-7", properties={"delivery-mode": "exactly-once"}
        )
        print("the sender has", sender.properties["delivery-mode"])
        await sender.send(Message(body="12.50"))
        await sender.send(Message(body="3.20"))

        # No outcome is needed: the broker drops a message when it sends it.
        fast = await connection.receiver(
            "payments", credit=0, properties={"delivery-mode": "at-most-once"}
        )
        fast.add_credit(1)
        delivery = await fast.receive(timeout=5)
        print("settled on the way:", delivery.settled)
        await fast.close()

        safe = await connection.receiver(
            "payments",
            properties={"delivery-mode": "at-least-once", "opt-delivery-mode": "exactly-once"},
        )
        print("the condition is kept:", safe.properties.get("delivery-mode"))
        print("the wish is:", safe.properties.get("opt-delivery-mode"))
        delivery = await safe.receive(timeout=5)
        print("settled on the way:", delivery.settled)
        await delivery.accept()

        try:
            await connection.receiver("payments", properties={"delivery-mode": "exactly-once"})
        except LinkDetached as refused:
            print("as a condition it is refused:", refused.condition)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# the sender has exactly-once
# settled on the way: True
# the condition is kept: at-least-once
# the wish is: None
# settled on the way: False
# as a condition it is refused: amqp:not-implemented
