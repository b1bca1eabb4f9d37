"""Direct reply-to: answers to a request without a queue that the client declares.

A client consumes from the pseudo-queue ``amq.rabbitmq.reply-to`` and names it in reply-to. It gets
a queue of its own, whose name nobody can guess: the requests carry that name, and whoever answers
publishes to it through the default exchange. The queue ends with its consumer.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault
from ferrymq_types_0_9_1.constants import PRECONDITION_FAILED

if TYPE_CHECKING:
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel

DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"
_PREFIX: Final = f"{DIRECT_REPLY}."
_TOKEN_BYTES: Final = 18


def is_reply_queue(name: str) -> bool:
    """Return whether a name is that of a queue for direct replies."""
    return name.startswith(_PREFIX)


def make_reply_queue(channel: Channel) -> Queue:
    """Return the queue for the direct replies to a channel, made when the channel first needs it.

    Raises `ChannelFault` if a consumer has it already.
    """
    if channel.reply_queue is not None and not channel.reply_queue.deleted:
        raise ChannelFault(PRECONDITION_FAILED, "reply consumer already set")
    space = channel.space
    name = f"{_PREFIX}{secrets.token_urlsafe(_TOKEN_BYTES)}"
    node = space.create(name, QueuePolicy(durable=False))
    assert isinstance(node, Queue)
    node.lock_to(channel.client.id)
    channel.reply_queue = node
    return node


def replied_to(channel: Channel) -> str:
    """Return the name to which replies go. Raises `ChannelFault` without a consumer for them."""
    queue = channel.reply_queue
    if queue is None or queue.deleted:
        raise ChannelFault(PRECONDITION_FAILED, "fast reply consumer does not exist")
    return queue.address
