"""AMQP 1.0 for Python: clients for asyncio and for threads over one engine without I/O.

    async with ferrymq.connect("amqp://localhost") as connection:
        sender = await connection.sender("orders")
        await sender.send(Message(body=b"..."))
        async for delivery in connection.receiver("orders"):
            await delivery.accept()

`ferrymq.blocking` offers the same to code without an event loop, `connection.management()` a client
of a broker's management node. `ferrymq.rabbitmq` and `ferrymq.azure` have what these brokers add to
AMQP. The names below are imported when they are first used, so that a program pays for what it
needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ferrymq import errors
from ferrymq.errors import (
    AmqpError,
    AuthenticationError,
    CodecError,
    ConnectionClosed,
    DecodeError,
    DeliveryError,
    DeliveryModified,
    DeliveryRejected,
    DeliveryReleased,
    EncodeError,
    FenceMismatch,
    FencePassed,
    LinkDetached,
    LocalProtocolError,
    ManagementError,
    PeerError,
    ProtocolError,
    RemoteProtocolError,
    SessionEnded,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
    TransportError,
)

if TYPE_CHECKING:
    from ferrymq import aio, azure, blocking, rabbitmq
    from ferrymq.aio import (
        ChunkReader,
        Connection,
        Delivery,
        ManagementClient,
        PartitionedSender,
        Receiver,
        Sender,
        Session,
        Transaction,
        Worker,
    )
    from ferrymq.chunks import Chunk
    from ferrymq.connecting import connect
    from ferrymq.fence import Committed, Digest, Fence
    from ferrymq.management import ManagementResponse, MoveResult, PeekedMessage
    from ferrymq.message import Message
    from ferrymq.reconnect import ReconnectPolicy
    from ferrymq.retries import Reject, Retry
    from ferrymq.unsettled import Unsettled

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "connect",
    "Connection",
    "Session",
    "Sender",
    "PartitionedSender",
    "Receiver",
    "ChunkReader",
    "Chunk",
    "Delivery",
    "Transaction",
    "ManagementClient",
    "ManagementResponse",
    "MoveResult",
    "PeekedMessage",
    "Message",
    "ReconnectPolicy",
    "Worker",
    "Retry",
    "Reject",
    "Committed",
    "Digest",
    "Fence",
    "Unsettled",
    "aio",
    "azure",
    "blocking",
    "errors",
    "rabbitmq",
    "AmqpError",
    "CodecError",
    "EncodeError",
    "DecodeError",
    "ProtocolError",
    "LocalProtocolError",
    "RemoteProtocolError",
    "PeerError",
    "ConnectionClosed",
    "SessionEnded",
    "LinkDetached",
    "TransactionError",
    "TransactionRolledBack",
    "FenceMismatch",
    "FencePassed",
    "TransactionInDoubt",
    "TransportError",
    "AuthenticationError",
    "ManagementError",
    "DeliveryError",
    "DeliveryRejected",
    "DeliveryReleased",
    "DeliveryModified",
]

_HOMES: Final = {
    "Chunk": "ferrymq.chunks",
    "ChunkReader": "ferrymq.aio",
    "connect": "ferrymq.connecting",
    "Connection": "ferrymq.aio",
    "Session": "ferrymq.aio",
    "Sender": "ferrymq.aio",
    "PartitionedSender": "ferrymq.aio",
    "Receiver": "ferrymq.aio",
    "Delivery": "ferrymq.aio",
    "Transaction": "ferrymq.aio",
    "ManagementClient": "ferrymq.aio",
    "ManagementResponse": "ferrymq.management",
    "MoveResult": "ferrymq.management",
    "PeekedMessage": "ferrymq.management",
    "Message": "ferrymq.message",
    "ReconnectPolicy": "ferrymq.reconnect",
    "Reject": "ferrymq.retries",
    "Retry": "ferrymq.retries",
    "Worker": "ferrymq.aio",
    "Committed": "ferrymq.fence",
    "Digest": "ferrymq.fence",
    "Fence": "ferrymq.fence",
    "Unsettled": "ferrymq.unsettled",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    if name in ("aio", "azure", "blocking", "rabbitmq"):
        return import_module(f"ferrymq.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ferrymq' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all public names, imported or not."""
    return sorted({*globals(), *__all__})
