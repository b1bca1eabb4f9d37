"""Users with rules for their own nodes only: `python examples/broker/access.py`."""

from __future__ import annotations

import asyncio
import tomllib

import ferrymq
from ferrymq import DeliveryRejected, LinkDetached, Message
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[security.users]
shop = "s"
depot = "d"

[security.groups]
shipping = ["depot"]

[[queue]]
name = "orders"

[[rule]]                        # every user has an inbox
who = "*"
may = ["receive", "create"]
where = "inbox.{user}"

[[rule]]
who = "*"
may = "send"
where = ["inbox.*", "orders"]

[[rule]]
who = "group:shipping"
may = ["receive", "browse"]
where = "orders"
"""


async def main() -> None:
    """Send an order as the shop, answer it as the depot, and show what the depot may not do."""
    async with BrokerServer(Config.model_validate(tomllib.loads(CONFIG))) as server:
        at = server.url.removeprefix("amqp://")
        async with (
            ferrymq.connect(f"amqp://shop:s@{at}") as shop,
            ferrymq.connect(f"amqp://depot:d@{at}") as depot,
        ):
            inbox = await shop.receiver("inbox.shop")
            await (await shop.sender("orders")).send(Message(body="a book"))

            order = await (await depot.receiver("orders")).receive(timeout=5)
            anywhere = await depot.sender(None)
            await anywhere.send(Message(body=f"shipped: {order.message.body}", to="inbox.shop"))
            print("the shop is told:", (await inbox.receive(timeout=5)).message.body)

            for address in ("inbox.shop", "inbox.nobody"):
                try:
                    await depot.receiver(address)
                except LinkDetached as refused:
                    print("the depot is told:", refused.error and refused.error.description)
            try:
                await anywhere.send(Message(body="mine", to="secrets"))
            except DeliveryRejected as rejected:
                print("and of a message:", rejected.error and rejected.error.description)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# the shop is told: shipped: a book
# the depot is told: receive at 'inbox.shop' is not allowed to you
# the depot is told: receive at 'inbox.nobody' is not allowed to you
# and of a message: send at 'secrets' is not allowed to you
