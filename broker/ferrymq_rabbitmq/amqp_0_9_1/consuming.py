"""basic.consume, basic.cancel and basic.qos."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ferrymq_broker.connections.permissions import meant_by, put_on_record, require_source
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.parse import parse_filters
from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.start_position import ON_TRIM
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_codec.scalars import Described, Symbol, Timestamp, ULong
from ferrymq_rabbitmq.address_v2 import vhost_of
from ferrymq_rabbitmq.amqp_0_9_1.direct_reply import DIRECT_REPLY, make_reply_queue
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault, ConnectionFault, not_implemented
from ferrymq_rabbitmq.arguments import age
from ferrymq_types_0_9_1.basic import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
)
from ferrymq_types_0_9_1.constants import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
)

if TYPE_CHECKING:
    from ferrymq_codec_0_9_1.method import Method
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel

PRIORITY: Final = "x-priority"
OFFSET: Final = "x-stream-offset"
_SPEC: Final = Symbol("rabbitmq:stream-offset-spec")
_WORDS: Final = ("first", "last", "next")
_TAG_BYTES: Final = 16


def consume(channel: Channel, method: Method) -> None:
    """Begin a consumer. Raises `ChannelFault`, `ConnectionFault`, `BrokerError`."""
    assert isinstance(method, BasicConsume)
    tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(_TAG_BYTES)}"
    if tag in channel.consumers:
        raise ConnectionFault(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag[:200]}'")
    channel.expect_more_consumers()
    if method.queue == DIRECT_REPLY:
        node: Node = _reply_queue(channel, method)
    else:
        node = readable_queue(channel, channel.named(method.queue))
    if isinstance(node, Queue):
        node.expect_unlocked(channel.client.id)
    terms = _terms(channel, method, node, tag)
    try:
        source = node.open_source(terms)
    except BrokerError as error:
        if error.condition == "amqp:resource-locked":
            raise ChannelFault(
                ACCESS_REFUSED,
                f"queue '{node.address[:200]}' in vhost '{vhost_of(channel.space)}' in exclusive "
                "use",
            ) from None
        raise
    consumer = channel.new_consumer(node, source, terms, tag, method.no_ack)
    channel.consumers[tag] = consumer
    node.link_opened()
    source.subscribe(consumer)
    if not method.no_wait:
        channel.answer(BasicConsumeOk(consumer_tag=tag))
    source.wake(consumer)


def readable_queue(channel: Channel, name: str) -> Queue | Stream:
    """Return the queue or stream with a name that the client may receive from.

    Raises `BrokerError` without the right, `ChannelFault` if there is none.
    """
    client = channel.client
    address = meant_by(client, name)
    try:
        require_source(client, address, name, False)
    except BrokerError as error:
        put_on_record(client, error, "link")
        raise
    node = channel.space.find(address)
    if not isinstance(node, Queue | Stream):
        raise ChannelFault(
            NOT_FOUND, f"no queue '{name[:200]}' in vhost '{vhost_of(channel.space)}'"
        )
    return node


def _reply_queue(channel: Channel, method: BasicConsume) -> Queue:
    if not method.no_ack:
        raise ChannelFault(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    return make_reply_queue(channel)


def _terms(channel: Channel, method: BasicConsume, node: Node, tag: str) -> SourceTerms:
    """Return what the client asks of the node."""
    arguments = method.arguments
    filters: dict[str, object] | None = None
    if isinstance(node, Stream):
        if method.no_ack:
            raise not_implemented("automatic acknowledgement not supported by streams")
        if channel.prefetch == 0:
            raise ChannelFault(
                PRECONDITION_FAILED,
                f"consumer prefetch count is not set for stream '{node.address[:200]}' in vhost "
                f"'{vhost_of(channel.space)}'",
            )
        filters = {_SPEC: Described(_SPEC, _position(arguments, node))}
    parsed = parse_filters(filters, channel.client.id, channel.space.position_words)
    terms = SourceTerms(channel.party(), tag, "", parsed)
    if filters is not None:
        # A reader that is overtaken by retention goes on with the first record that is left.
        terms.properties[ON_TRIM] = "continue"
    priority = arguments.get(PRIORITY, 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ChannelFault(
            PRECONDITION_FAILED, f"invalid arg '{PRIORITY}': {str(priority)[:100]!r} is no number"
        )
    terms.priority = priority
    terms.exclusive = method.exclusive
    return terms


def _position(arguments: Mapping[str, object], stream: Stream) -> object:
    """Return where to begin in a stream, as the filter of AMQP 1.0 has it.

    An interval such as ``5m`` is that long before now; an offset after the end is the end.
    """
    offset = arguments.get(OFFSET, "next")
    if isinstance(offset, datetime):
        return Timestamp(int(offset.timestamp() * 1000))
    if isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0:
        return ULong(offset) if offset <= stream.range(0)[1] else "next"
    if isinstance(offset, str):
        if offset in _WORDS:
            return offset
        return Timestamp(max(0, int(stream.agenda.wall) - age(OFFSET, offset)))
    raise ChannelFault(
        PRECONDITION_FAILED, f"invalid arg '{OFFSET}': {str(offset)[:100]!r} is no offset"
    )


def cancel(channel: Channel, method: Method) -> None:
    """End a consumer; its deliveries wait for their acknowledgements still."""
    assert isinstance(method, BasicCancel)
    consumer = channel.consumers.pop(method.consumer_tag, None)
    if consumer is not None:
        channel.end_consumer(consumer)
    if not method.no_wait:
        channel.answer(BasicCancelOk(consumer_tag=method.consumer_tag))


def set_prefetch(channel: Channel, method: Method) -> None:
    """Limit the deliveries without acknowledgement: of each later consumer, or with `global` of all
    consumers of the channel together."""
    assert isinstance(method, BasicQos)
    if method.prefetch_size != 0:
        raise not_implemented("prefetch_size!=0")
    if method.global_:
        channel.total_prefetch = method.prefetch_count
        channel.wake_waiting()
    else:
        channel.prefetch = method.prefetch_count
    channel.answer(BasicQosOk())
