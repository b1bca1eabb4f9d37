"""Sessions and links of AMQP 1.0 as management shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.connections.shown_links import ShownLink, ShownSession, UnsettledCounts
from ferrymq_types.messaging import Source, Target

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.session import Session
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.consumer_link import ConsumerLink
    from ferrymq_broker.connections.links import ConnectionLinks
    from ferrymq_broker.connections.producer_link import ProducerLink
    from ferrymq_broker.nodes.node import Node


@final
class BegunSession(ShownSession):
    """A session of AMQP 1.0."""

    __slots__ = ("session",)

    def __init__(self, client: ConnectedClient, session: Session) -> None:
        super().__init__(client, session.channel)
        self.session: Session = session

    def describe(self) -> dict[str, object]:
        """Return the attributes by their public names."""
        session = self.session
        remote = session.remote_begin
        return {
            "connection": str(self.client.id),
            "channel": int(session.channel),
            "remote-channel": int(session.remote_channel),
            "links": len(session.links),
            "unsettled": session.outgoing.unsettled.count + session.incoming.unsettled.count,
            "incoming-window": int(session.incoming.window),
            "remote-incoming-window": int(session.outgoing.remote_window),
            "handle-max": None if remote is None else remote.handle_max,
        }


@final
class AttachedLink(ShownLink):
    """A link of AMQP 1.0: a consumer, a producer, or neither, such as a control link."""

    __slots__ = ("link", "_links", "_consumer", "_producer")

    def __init__(self, links: ConnectionLinks, link: Link) -> None:
        super().__init__(links.client, link.session.channel, link.is_sender, link.name)
        self.link: Link = link
        self._links = links
        self._consumer: ConsumerLink | None = links.consumer_of(link)
        self._producer: ProducerLink | None = links.producer_of(link)

    def describe(self, counts: UnsettledCounts) -> dict[str, object]:
        """Return the attributes by their public names."""
        link = self.link
        consumer = self._consumer
        source = link.source.address if isinstance(link.source, Source) else None
        target = link.target.address if isinstance(link.target, Target) else None
        attach = link.remote_attach
        described: dict[str, object] = {
            "name": link.name,
            "connection": str(self.client.id),
            "session": f"{self.client.id}/{self.channel}",
            "role": "receiver" if self.receives else "sender",
            "address": source if self.receives else target,
            "source": source,
            "target": target,
            "credit": int(link.credit),
            "delivery-count": int(link.delivery_count),
            "snd-settle-mode": link.snd_settle_mode.name.lower(),
            "rcv-settle-mode": link.rcv_settle_mode.name.lower(),
            "max-message-size": int(link.remote_max_message_size),
            "paired": link.paired,
            "properties": None if attach is None else attach.properties,
        }
        # A reader of a stream holds nothing.
        if consumer is None or consumer.copies or consumer.node.kind == "reader":
            described["unsettled"] = counts.of(link)
        else:
            described["unsettled"] = int(consumer.held)
        producer = self._producer
        rate = None if producer is None else producer.rate
        count = link.deliveries if producer is None else int(producer.message_count())
        if consumer is not None:
            rate = consumer.rate
        if rate is not None:
            now = self._links.parts.shared.agenda.now
            described["messages"] = int(rate.total(count))
            described["rate"] = rate.rate(count, now)
        return described

    def uses(self, node: Node) -> bool:
        """See `ShownLink.uses`."""
        consumer = self._consumer
        if consumer is not None:
            return consumer.asked is node or consumer.node is node
        return self._producer is not None and self._producer in node.producers

    def end(self, reason: str) -> None:
        """See `ShownLink.end`."""
        self._links.force_detach(self.link, reason)
