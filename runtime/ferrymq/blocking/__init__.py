"""The blocking client: the API of `ferrymq.aio` for code without an event loop.

    with ferrymq.blocking.connect("amqp://localhost") as connection:
        sender = connection.sender("orders")
        sender.send(Message(b"..."), timeout=5)
        for delivery in connection.receiver("orders"):
            delivery.accept()

Every connection runs the asyncio client in a thread of its own (`portal`), so heart-beats go on
while the program computes. Calls may come from any thread.
"""

from __future__ import annotations

from ferrymq.blocking.chunks import ChunkReader
from ferrymq.blocking.connection import Connection, Session, connect
from ferrymq.blocking.links import Delivery, PartitionedSender, Receiver, Sender
from ferrymq.blocking.management import ManagementClient, Pair
from ferrymq.blocking.transaction import Transaction
from ferrymq.blocking.worker import Worker

__all__ = [
    "ChunkReader",
    "Connection",
    "Delivery",
    "ManagementClient",
    "Pair",
    "PartitionedSender",
    "Receiver",
    "Sender",
    "Session",
    "Transaction",
    "Worker",
    "connect",
]
