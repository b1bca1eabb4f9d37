"""Deliveries without an outcome: who holds which message, by the number of the delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Node
    from ferrymq_rabbitmq.amqp_0_9_1.channel_consumer import ChannelConsumer


@final
class Unacknowledged:
    """A delivery that waits for its acknowledgement.

    `holder` holds the `entry` of `node`: the consumer, or a stand-in after it was cancelled. The
    entry is None for a record of a stream, and for a message whose queue was deleted. `consumer` is
    that whose prefetch counts the delivery, None after it was cancelled.
    """

    __slots__ = ("tag", "node", "holder", "entry", "consumer")

    def __init__(
        self,
        tag: i64,
        node: Node,
        holder: Consumer,
        entry: Entry | None,
        consumer: ChannelConsumer | None,
    ) -> None:
        self.tag: i64 = tag
        self.node: Node = node
        self.holder: Consumer = holder
        self.entry: Entry | None = entry
        self.consumer: ChannelConsumer | None = consumer
