"""A writer that is run twice and writes once: `python examples/broker/fences.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import ferrymq
from ferrymq import Digest, Fence, FencePassed, Message
from ferrymq_broker.config import Config, Listener, Store
from ferrymq_broker.server import BrokerServer

BATCHES = [["1 apple", "2 pears"], ["3 plums"], ["4 figs", "5 dates"]]


async def write(connection: ferrymq.Connection, batches: list[list[str]]) -> None:
    """Write batches of rows, each in a transaction whose fence is the number of the batch.

    The writer stores nothing itself. If it is not known how far it came, it can be run again.
    """
    sender = await connection.sender("rows")
    for number, rows in enumerate(batches):
        fence = Fence("import", "worker 1", number, target="rows")
        digest = Digest()
        digest.add(row.encode() for row in rows)
        try:
            async with connection.transaction(fence=fence) as txn:
                await sender.send_many(
                    [Message(body=row, durable=True) for row in rows], transaction=txn
                )
                await txn.commit(digest=digest)
        except FencePassed as passed:
            print(f"batch {number}: there already, as all up to {passed.sequence}")
        else:
            print(f"batch {number}: written")
    await sender.close()


async def main() -> None:
    """Write two batches, stop the broker, and run the writer again with one more."""
    with TemporaryDirectory() as directory:
        config = Config(
            listener=[Listener(url="amqp://127.0.0.1:0")], store=Store(path=Path(directory))
        )
        async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
            await write(connection, BATCHES[:2])
        print("the broker has stopped")
        async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
            last = await connection.fence("import", "worker 1", target="rows")
            print("it knows the writer up to", last)
            await write(connection, BATCHES)
            receiver = await connection.receiver("rows")
            rows = [await receiver.receive(timeout=5) for batch in BATCHES for _ in batch]
            print(", ".join(str(row.message.body) for row in rows))


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# batch 0: written
# batch 1: written
# the broker has stopped
# it knows the writer up to 1
# batch 0: there already, as all up to 1
# batch 1: there already, as all up to 1
# batch 2: written
# 1 apple, 2 pears, 3 plums, 4 figs, 5 dates
