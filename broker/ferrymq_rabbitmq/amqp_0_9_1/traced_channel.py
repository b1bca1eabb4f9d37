"""Channels of a broker with tracing, chosen when a channel is opened.

The context of a message is in the headers ``traceparent`` and ``tracestate``, which become
application-properties (`docs/decisions/0032-opentelemetry.md`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.traced_links import OpenDeliveries
from ferrymq_broker.nodes.trace_context import TRACEPARENT, TraceContext, parse_traceparent
from ferrymq_codec.errors import DecodeError
from ferrymq_rabbitmq.amqp_0_9_1.acknowledgements import ACCEPT, DISCARD
from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel
from ferrymq_rabbitmq.amqp_0_9_1.channel_consumer import ChannelConsumer
from ferrymq_types_0_9_1.basic import BasicProperties

if TYPE_CHECKING:
    from ferrymq_broker.connections.message_tracer import MessageTracer
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.node import Node
    from ferrymq_rabbitmq.amqp_0_9_1.channel_connection import ChannelConnection
    from ferrymq_rabbitmq.amqp_0_9_1.unacknowledged import Unacknowledged
    from ferrymq_rabbitmq.management.host_requests import HostRequests
    from ferrymq_types_0_9_1.basic import BasicPublish

AMQP_0_9_1: Final = "0-9-1"
_TRACESTATE: Final = "tracestate"
_KEY: Final = TRACEPARENT.encode()
_MOST_STATE: Final = 512


@final
class TracedChannelConsumer(ChannelConsumer):
    """A consumer that records the deliveries of sampled messages in `open_deliveries`."""

    __slots__ = ("open_deliveries",)

    def __init__(
        self,
        open_deliveries: OpenDeliveries,
        channel: Channel,
        asked: Node,
        node: Node,
        terms: SourceTerms,
        tag: str,
        no_ack: bool,
        prefetch: i64,
    ) -> None:
        super().__init__(channel, asked, node, terms, tag, no_ack, prefetch)
        self.open_deliveries: OpenDeliveries = open_deliveries

    def deliver(self, entry: Entry) -> i64:
        """Write the message, as without tracing."""
        return self._note(entry, super().deliver(entry))

    def deliver_headed(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Write the message, as without tracing."""
        return self._note(entry, super().deliver_headed(entry, head, start))

    def _note(self, entry: Entry, verdict: i64) -> i64:
        return self.open_deliveries.note(self, entry, verdict, self.node, AMQP_0_9_1)


@final
class TracedChannel(Channel):
    """A channel that records sampled messages with `tracer`."""

    __slots__ = ("tracer", "open_deliveries")

    def __init__(
        self,
        connection: ChannelConnection,
        number: i64,
        requests: HostRequests,
        tracer: MessageTracer,
    ) -> None:
        super().__init__(connection, number, requests)
        self.tracer: MessageTracer = tracer
        self.open_deliveries: OpenDeliveries = OpenDeliveries(tracer)

    def on_content(self, method: BasicPublish, properties: bytes, body: bytes) -> None:
        """Publish a message, and record it if it is sampled."""
        context = self._context(properties) if _KEY in properties else None
        if context is None:
            context = self.tracer.begin_trace() if _KEY not in properties else None
            if context is not None:
                properties = _with_context(properties, context)
        if context is None or not context.sampled:
            super().on_content(method, properties, body)
            return
        changes = self.space.agenda.changes
        confirms = self.confirms
        begun = self.tracer.now()
        total = changes.total
        refused = 0 if confirms is None else len(confirms.refused)
        outcome = "error"
        try:
            super().on_content(method, properties, body)
            outcome = ""
            if confirms is not None:
                outcome = "rejected" if len(confirms.refused) > refused else "accepted"
        finally:
            self.tracer.published(
                context,
                method.exchange or method.routing_key,
                AMQP_0_9_1,
                len(properties) + len(body),
                begun,
                outcome,
                changes.total != total,
            )

    def _context(self, properties: bytes) -> TraceContext | None:
        try:
            headers = BasicProperties.from_bytes(properties).headers
        except DecodeError:
            # The channel refuses the message.
            return None
        parent = None if headers is None else headers.get(TRACEPARENT)
        context = parse_traceparent(parent) if isinstance(parent, str) else None
        if context is not None and headers is not None:
            state = headers.get(_TRACESTATE)
            if isinstance(state, str) and len(state) <= _MOST_STATE:
                context.state = state
        return context

    def new_consumer(
        self, asked: Node, node: Node, terms: SourceTerms, tag: str, no_ack: bool
    ) -> ChannelConsumer:
        """Return a new consumer, as without tracing."""
        return TracedChannelConsumer(
            self.open_deliveries, self, asked, node, terms, tag, no_ack, self.prefetch
        )

    def on_got(self, entry: Entry, address: str, no_ack: bool) -> None:
        """Record a message that basic.get has taken."""
        context = self.open_deliveries.context_of(entry)
        if context is not None:
            self.open_deliveries.add(context, entry, address, AMQP_0_9_1, no_ack)

    def forget(self, each: Unacknowledged, outcome: i64) -> None:
        """Note that a delivery has its outcome, and record that."""
        entry = each.entry
        if entry is not None and len(self.open_deliveries) > 0:
            self.open_deliveries.end(entry, _outcome_name(outcome), self.tracer.now())
        super().forget(each, outcome)

    def close(self) -> bool:
        """End the channel, and with it the deliveries that have no outcome."""
        self.open_deliveries.end_all("")
        return super().close()


def _outcome_name(outcome: i64) -> str:
    return "accepted" if outcome == ACCEPT else "rejected" if outcome == DISCARD else "released"


def _with_context(properties: bytes, context: TraceContext) -> bytes:
    """Return the properties of a message with the context of a new trace in its headers."""
    try:
        found = BasicProperties.from_bytes(properties)
    except DecodeError:
        # The channel refuses the message.
        return properties
    found.headers = {**(found.headers or {}), TRACEPARENT: context.traceparent()}
    return found.to_bytes()
