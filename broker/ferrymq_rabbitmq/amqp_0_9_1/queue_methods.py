"""The class queue: declare, bind, unbind, purge and delete."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_rabbitmq.address_v2 import vhost_of
from ferrymq_rabbitmq.amqp_0_9_1.direct_reply import DIRECT_REPLY, is_reply_queue
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault
from ferrymq_types_0_9_1.constants import NOT_FOUND, PRECONDITION_FAILED
from ferrymq_types_0_9_1.queue import (
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)

if TYPE_CHECKING:
    from ferrymq_codec_0_9_1.method import Method
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel

GENERATED: Final = "amq.gen-"
_TOKEN_BYTES: Final = 16
_MOST: Final = 0xFFFFFFFF


def declare(channel: Channel, method: Method) -> None:
    """Make a queue, or check that it exists as declared; with `passive` only that it exists."""
    assert isinstance(method, QueueDeclare)
    name = method.queue
    if name == DIRECT_REPLY or is_reply_queue(name):
        # Clients ask so whether there is somebody to answer.
        there = name == DIRECT_REPLY or channel.space.find(name) is not None
        if not there:
            raise _missing(channel, name)
        if not method.no_wait:
            channel.answer(QueueDeclareOk(queue=name, message_count=0, consumer_count=1))
        return
    queues = channel.requests.queues
    if method.passive:
        # An empty name is that of no queue here, not that of the last one.
        if not name:
            raise _missing(channel, name)
        queues.describe(channel.party(), name)
    else:
        generated = not name
        if generated:
            name = f"{GENERATED}{secrets.token_urlsafe(_TOKEN_BYTES)}"
        body: dict[str, object] = {
            "durable": method.durable,
            "exclusive": method.exclusive,
            "auto_delete": method.auto_delete,
            "arguments": method.arguments,
        }
        queues.declare(channel.party(), name, body, generated)
    node = channel.space.find(name)
    if isinstance(node, Queue):
        node.expect_unlocked(channel.client.id)
        note_use(node)
    channel.last_queue = name
    if not method.no_wait:
        ready, consumers = _counts(node)
        channel.answer(QueueDeclareOk(queue=name, message_count=ready, consumer_count=consumers))


def note_use(queue: Queue) -> None:
    """Begin the time of ``x-expires`` again: a declaration or a get uses the queue, too."""
    if queue.policy.auto_delete > 0:
        queue.lifecycle.on_unconsumed()


def _expect_unlocked(channel: Channel, name: str) -> None:
    """Raise `BrokerError` if the queue is exclusive to another connection."""
    node = channel.space.find(name)
    if isinstance(node, Queue):
        node.expect_unlocked(channel.client.id)


def _counts(node: object) -> tuple[int, int]:
    """Return how many messages are ready, and how many consumers there are."""
    if isinstance(node, Queue):
        return min(int(node.available), _MOST), int(node.consumer_count())
    if isinstance(node, Stream):
        return min(int(node.message_count()), _MOST), int(node.links)
    return 0, 0


def _missing(channel: Channel, name: str) -> ChannelFault:
    return ChannelFault(NOT_FOUND, f"no queue '{name[:200]}' in vhost '{vhost_of(channel.space)}'")


def bind(channel: Channel, method: Method) -> None:
    """Bind a queue to an exchange."""
    assert isinstance(method, QueueBind)
    name = channel.named(method.queue)
    _expect_unlocked(channel, name)
    # Without a queue and a key, the key is the name of the queue (AMQP 0-9-1 §1.7.2.3).
    key = method.routing_key or (name if not method.queue else "")
    channel.requests.bindings.bind(
        channel.party(),
        {
            "source": method.exchange,
            "destination_queue": name,
            "binding_key": key,
            "arguments": method.arguments,
        },
    )
    if not method.no_wait:
        channel.answer(QueueBindOk())


def unbind(channel: Channel, method: Method) -> None:
    """Remove the binding of a queue."""
    assert isinstance(method, QueueUnbind)
    name = channel.named(method.queue)
    _expect_unlocked(channel, name)
    channel.requests.bindings.remove(
        channel.party(), method.exchange, name, method.routing_key, method.arguments
    )
    channel.answer(QueueUnbindOk())


def purge(channel: Channel, method: Method) -> None:
    """Drop the messages that are ready."""
    assert isinstance(method, QueuePurge)
    found = channel.requests.queues.purge(channel.party(), channel.named(method.queue))
    if not method.no_wait:
        count = found["message_count"]
        assert isinstance(count, int)
        channel.answer(QueuePurgeOk(message_count=min(count, _MOST)))


def delete(channel: Channel, method: Method) -> None:
    """Delete a queue; with a condition, only if it is unused or empty."""
    assert isinstance(method, QueueDelete)
    name = channel.named(method.queue)
    node = channel.space.find(name)
    # Of a stream, nothing is ready.
    ready = 0
    if isinstance(node, Queue | Stream):
        count, consumers = _counts(node)
        ready = count if isinstance(node, Queue) else 0
        where = f"queue '{name[:200]}' in vhost '{vhost_of(channel.space)}'"
        if method.if_unused and consumers > 0:
            raise ChannelFault(PRECONDITION_FAILED, f"{where} in use")
        if method.if_empty and count > 0:
            raise ChannelFault(PRECONDITION_FAILED, f"{where} not empty")
    channel.requests.queues.delete(channel.party(), name)
    if not method.no_wait:
        channel.answer(QueueDeleteOk(message_count=ready))
