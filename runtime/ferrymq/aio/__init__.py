"""The asyncio client: the engine driven by an event loop.

`transport` carries bytes between the engine and the loop, `dispatch` hands the engine's events to
the objects they concern, and `connection`, `session`, `sender`, `receiver` and `delivery` are
those objects. `connect` opens the transport; `recovery` opens it again.
"""

from __future__ import annotations

from ferrymq.aio.chunks import ChunkReader
from ferrymq.aio.connect import connect
from ferrymq.aio.connection import Connection
from ferrymq.aio.delivery import Delivery
from ferrymq.aio.management import ManagementClient
from ferrymq.aio.partitioned_sender import PartitionedSender
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.requests import Pair
from ferrymq.aio.sender import Sender
from ferrymq.aio.session import Session
from ferrymq.aio.transaction import Transaction
from ferrymq.aio.worker import Worker

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
