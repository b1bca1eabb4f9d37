"""basic.get: one message, for a client that asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_rabbitmq.amqp_0_9_1.channel_consumer import MessageGetter
from ferrymq_rabbitmq.amqp_0_9_1.consuming import readable_queue
from ferrymq_rabbitmq.amqp_0_9_1.conversion.to_0_9_1 import content_of, key_of
from ferrymq_rabbitmq.amqp_0_9_1.faults import not_implemented
from ferrymq_rabbitmq.amqp_0_9_1.queue_methods import note_use
from ferrymq_rabbitmq.amqp_0_9_1.unacknowledged import Unacknowledged
from ferrymq_types_0_9_1.basic import BasicGet, BasicGetEmpty, BasicGetOk

if TYPE_CHECKING:
    from ferrymq_codec_0_9_1.method import Method
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel


def get(channel: Channel, method: Method) -> None:
    """Write the next message of a queue, or that there is none."""
    assert isinstance(method, BasicGet)
    queue = _queue(channel, channel.named(method.queue))
    queue.expect_unlocked(channel.client.id)
    note_use(queue)
    getter = channel.getter
    # While the broker shuts down, clients settle what they have, and get no more.
    if channel.output.quiet or not queue.dispatcher.serve_once(getter):
        channel.answer(BasicGetEmpty())
        return
    entry = getter.taken
    assert entry is not None
    getter.taken = None
    # The entry counts this delivery already.
    content = content_of(entry.message, key_of(queue.address), int(entry.failures))
    channel.last_tag += 1
    tag = channel.last_tag
    channel.engine.send_content(
        channel.number,
        BasicGetOk(
            delivery_tag=int(tag),
            redelivered=entry.attempts > 1,
            exchange=content.exchange,
            routing_key=content.routing_key,
            message_count=min(int(queue.available), 0xFFFFFFFF),
        ),
        content.properties,
        content.body,
    )
    channel.output.touch()
    channel.on_got(entry, queue.address, method.no_ack)
    if entry.sequence > queue.entries.records.stable:
        # The client may have published it just now, and must not see it before it is on disk.
        channel.output.need_latest()
    if method.no_ack:
        if entry.stored:
            # The message is removed from disk before it is sent: at most once.
            channel.output.need_batch()
        queue.remove(getter, entry)
    else:
        channel.remember(Unacknowledged(tag, queue, getter, entry, None))


def _queue(channel: Channel, name: str) -> Queue:
    node = readable_queue(channel, name)
    if not isinstance(node, Queue):
        raise not_implemented("basic.get not supported by stream queues")
    if node.policy.sessions or node.policy.groups:
        raise not_implemented("basic.get not supported by queues with sessions or groups")
    return node


def make_getter(channel: Channel) -> MessageGetter:
    """Return the receiver of a channel."""
    return MessageGetter(channel.numbers.next())
