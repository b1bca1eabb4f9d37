"""RabbitMQ 4: its addresses, its management over AMQP 1.0, and the options of its streams.

    async with ferrymq.connect("amqp://guest:guest@localhost") as connection:
        async with rabbitmq.management(connection) as management:
            await management.declare_queue("orders", type="quorum", delivery_limit=5)
            await management.bind("sales", queue="orders", key="eu.#")
        sender = await connection.sender(rabbitmq.exchange_address("sales", "eu.fr"))

`ferrymq.rabbitmq.blocking` has the management for the blocking client. Everything else is the
client itself: sending, receiving and settling are those of `ferrymq.Connection`.
"""

from __future__ import annotations

from ferrymq.rabbitmq.addresses import exchange_address, queue_address, vhost
from ferrymq.rabbitmq.arguments import QueueArguments, QueueType
from ferrymq.rabbitmq.errors import (
    AccessRefused,
    BadRequest,
    NotFound,
    PreconditionFailed,
    RabbitMQError,
)
from ferrymq.rabbitmq.management_client import Management, management
from ferrymq.rabbitmq.requests import Binding, QueueInfo
from ferrymq.rabbitmq.streams import StreamOffset, StreamOptions, stream_options

__all__ = [
    "AccessRefused",
    "BadRequest",
    "Binding",
    "Management",
    "NotFound",
    "PreconditionFailed",
    "QueueArguments",
    "QueueInfo",
    "QueueType",
    "RabbitMQError",
    "StreamOffset",
    "StreamOptions",
    "exchange_address",
    "management",
    "queue_address",
    "stream_options",
    "vhost",
]
