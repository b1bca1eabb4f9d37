"""Read, process and answer as a whole or not at all: `python examples/broker/transactions.py`.

Orders are taken from one queue and invoices put into another. Each order and its invoice are one
transaction: whatever fails in between, an invoice is sent if and only if its order is removed.
"""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer


async def bill(connection: ferrymq.Connection, failures: set[str]) -> None:
    """Turn one order into an invoice. Fail once for each order in `failures`."""
    orders = await connection.receiver("orders", credit=0)
    invoices = await connection.sender("invoices")
    try:
        async with connection.transaction() as txn:
            # Acquired in the transaction: a rollback makes the order available again.
            orders.add_credit(1, transaction=txn)
            order = await orders.receive(timeout=5)
            await order.accept(transaction=txn)
            text = str(order.message.body)
            await invoices.send(Message(body=f"invoice for {text}"), transaction=txn)
            if text in failures:
                failures.remove(text)
                raise RuntimeError(f"no price for {text}")
    except RuntimeError as error:
        print("rolled back:", error)
    finally:
        await orders.close()
        await invoices.close()


async def main() -> None:
    """Bill three orders, one of which fails at first."""
    config = Config(listener=[Listener(url="amqp://127.0.0.1:0")])
    async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("orders")
        for what in ("tea", "coffee", "cake"):
            await sender.send(Message(body=what))
        failures = {"coffee"}
        for _ in range(4):
            await bill(connection, failures)
        async with connection.receiver("invoices") as receiver:
            for _ in range(3):
                delivery = await receiver.receive(timeout=5)
                print(delivery.message.body)
                await delivery.accept()


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# rolled back: no price for coffee
# invoice for tea
# invoice for coffee
# invoice for cake
