"""Channels and consumers as management shows them: a channel as a session, a consumer as a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.connections.shown_links import ShownLink, ShownSession, UnsettledCounts

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel
    from ferrymq_rabbitmq.amqp_0_9_1.channel_consumer import ChannelConsumer


@final
class ShownChannel(ShownSession):
    """A channel."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.client, channel.number)
        self._channel = channel

    def describe(self) -> dict[str, object]:
        """Return the attributes by their public names."""
        channel = self._channel
        return {
            "connection": str(self.client.id),
            "channel": int(channel.number),
            "links": len(channel.consumers),
            "unsettled": channel.count_unsettled(),
            "prefetch": int(channel.prefetch),
            "total-prefetch": int(channel.total_prefetch),
            "confirms": channel.confirms is not None,
            "transactional": channel.transaction is not None,
        }


@final
class ShownConsumer(ShownLink):
    """A consumer of a channel; its name is the consumer tag."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: ChannelConsumer) -> None:
        channel = consumer.channel
        super().__init__(channel.client, channel.number, True, consumer.tag)
        self._consumer = consumer

    def describe(self, counts: UnsettledCounts) -> dict[str, object]:
        """Return the attributes by their public names."""
        consumer = self._consumer
        prefetch = int(consumer.prefetch)
        outstanding = int(consumer.outstanding)
        return {
            "name": self.name,
            "connection": str(self.client.id),
            "session": f"{self.client.id}/{self.channel}",
            "role": "receiver",
            "address": consumer.asked.address,
            "source": consumer.asked.address,
            "credit": max(prefetch - outstanding, 0) if prefetch else None,
            "prefetch": prefetch,
            "unsettled": outstanding,
            "snd-settle-mode": "settled" if consumer.no_ack else "unsettled",
        }

    def uses(self, node: Node) -> bool:
        """See `ShownLink.uses`."""
        consumer = self._consumer
        return consumer.asked is node or consumer.node is node

    def end(self, reason: str) -> None:
        """Cancel the consumer; its deliveries return, and later acknowledgements change nothing.
        The protocol has no field for the reason."""
        self._consumer.channel.on_evicted(self._consumer)
