"""Receivers with filters: `python examples/broker/filters.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import LinkDetached, Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer
from ferrymq_codec import Described, Symbol

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")])
SUBJECT = Described(Symbol("amqp:properties-filter"), {Symbol("subject"): "&p:ord"})


async def main() -> None:
    """Use a selector, a properties filter, an unknown filter and a malformed one."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("boxes")
        for colour, weight, subject in (("red", 1, "order"), ("red", 5, "offer"), ("blue", 7, "?")):
            properties: dict[str, object] = {"colour": colour, "weight": weight}
            text = f"{colour} box of {weight} kg"
            await sender.send(Message(text, subject=subject, application_properties=properties))

        selector = "colour = 'red' AND weight BETWEEN 2 AND 9"
        async with connection.receiver("boxes", selector=selector) as heavy:
            delivery = await heavy.receive(timeout=5)
            print("heavy and red:", delivery.message.body)
            await delivery.accept()
        async with connection.receiver("boxes", filters={"subject": SUBJECT}) as orders:
            delivery = await orders.receive(timeout=5)
            print("an order:", delivery.message.body)
            await delivery.accept()
        async with connection.receiver("boxes") as anything:
            delivery = await anything.receive(timeout=5)
            print("what nobody wanted:", delivery.message.body)
            await delivery.accept()

        # If a broker silently ignored a filter, it would send unwanted messages.
        unknown = Described(Symbol("example:smell"), "fresh")
        for filters in ({"smell": unknown}, {"bad": Described(SUBJECT.descriptor, 17)}):
            try:
                await connection.receiver("boxes", filters=dict(filters))
            except LinkDetached as refused:
                print("refused:", refused.error and refused.error.description)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# heavy and red: red box of 5 kg
# an order: red box of 1 kg
# what nobody wanted: blue box of 7 kg
# refused: the peer does not apply the filter smell
# refused: the filter 'bad' needs a map (AMQP 1.0 §3.5.8)
