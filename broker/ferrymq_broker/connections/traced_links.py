"""Links of a broker with tracing, chosen when a link is attached.

The context of the engine's link is a `TracedProducer` or `TracedConsumer` instead of the link of
the broker, which it calls. So links without tracing have no test for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.batches import BATCH_FORMAT
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.message_tracer import MessageTracer, OpenDelivery
from ferrymq_broker.connections.outcomes import is_terminal
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.nodes.consumer import SETTLED, TAKEN, Consumer
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.message import admit
from ferrymq_broker.nodes.trace_context import TRACEPARENT, TraceContext, trace_of
from ferrymq_broker.transactions.txn_delivery import TxnDelivery
from ferrymq_codec.errors import DecodeError
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
    from ferrymq.engine.sender import SenderLink
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.transactions.transaction_table import Transactions
    from ferrymq_types.unions import DeliveryState, Outcome

AMQP_1_0: Final = "1.0"
# The open deliveries of one link or channel that are recorded.
MOST_OPEN: Final = 10_000


@final
class OpenDeliveries:
    """The sampled deliveries of one link or channel without an outcome, by their entries."""

    __slots__ = ("tracer", "_by_entry")

    def __init__(self, tracer: MessageTracer) -> None:
        self.tracer: MessageTracer = tracer
        self._by_entry: dict[Entry, OpenDelivery] = {}

    def __len__(self) -> int:
        return len(self._by_entry)

    def context_of(self, entry: Entry) -> TraceContext | None:
        """Return the context of a message if it is sampled."""
        message = entry.message
        if message.opaque:
            return None
        context = trace_of(message.payload)
        return context if context is not None and context.sampled else None

    def note(
        self, consumer: Consumer, entry: Entry, verdict: i64, node: Node, protocol: str
    ) -> i64:
        """Note what a consumer has done with a message of a node, if the message is sampled and was
        sent; return the verdict (`Consumer.deliver`)."""
        if verdict in (TAKEN, SETTLED):
            context = self.context_of(entry)
            if context is not None:
                settled = verdict == SETTLED or consumer.copies
                self.add(context, entry, node.address, protocol, settled)
        return verdict

    def add(
        self, context: TraceContext, entry: Entry, address: str, protocol: str, settled: bool
    ) -> None:
        """Note that a sampled message was sent; `settled` if no outcome will follow."""
        tracer = self.tracer
        delivery = OpenDelivery(
            context,
            address,
            protocol,
            len(entry.message.payload),
            i64(entry.failures),
            tracer.now(),
        )
        if settled:
            tracer.settled(delivery, "", 0)
            return
        open = self._by_entry
        self.end(entry, "", 0)
        if len(open) >= MOST_OPEN:
            self.end(next(iter(open)), "", 0)
        open[entry] = delivery

    def take(self, entry: Entry) -> OpenDelivery | None:
        """Take out the delivery of an entry whose outcome is processed now; None if it is not
        open."""
        return self._by_entry.pop(entry, None)

    def put_back(self, entry: Entry, delivery: OpenDelivery) -> None:
        """Put a delivery back that has no outcome yet."""
        self._by_entry[entry] = delivery

    def end(self, entry: Entry, outcome: str, begun: i64) -> None:
        """Record the end of a delivery, if it is open."""
        delivery = self._by_entry.pop(entry, None)
        if delivery is not None:
            self.tracer.settled(delivery, outcome, begun)

    def end_all(self, outcome: str) -> None:
        """Record that the link or channel has ended."""
        for entry in list(self._by_entry):
            self.end(entry, outcome, 0)


class TracedConsumerLink(ConsumerLink):
    """A consumer that records the deliveries of sampled messages in `open_deliveries`."""

    __slots__ = ("open_deliveries",)

    def __init__(
        self,
        tracer: MessageTracer,
        link: SenderLink,
        parts: ConnectionParts,
        asked: Node,
        node: Node,
        terms: SourceTerms,
        default_outcome: Outcome | None,
        outcomes: list[str] | None = None,
    ) -> None:
        super().__init__(link, parts, asked, node, terms, default_outcome, outcomes)
        self.open_deliveries: OpenDeliveries = OpenDeliveries(tracer)

    def deliver(self, entry: Entry) -> i64:
        """Send the message, as without tracing."""
        return self._note(entry, super().deliver(entry))

    def deliver_headed(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Send the message, as without tracing."""
        return self._note(entry, super().deliver_headed(entry, head, start))

    def _note(self, entry: Entry, verdict: i64) -> i64:
        return self.open_deliveries.note(self, entry, verdict, self.node, AMQP_1_0)

    def on_unlocked(self, entry: Entry) -> None:
        """See `Consumer.on_unlocked`: no outcome of the link ends the delivery."""
        super().on_unlocked(entry)
        self.open_deliveries.end(entry, "", 0)

    def finish_close(self) -> None:
        """Remove the link from the node, and end its open deliveries."""
        super().finish_close()
        self.open_deliveries.end_all("")


@final
class TracedConsumer:
    """The context of an engine's link whose consumer is `link`."""

    __slots__ = ("link",)

    def __init__(self, link: TracedConsumerLink) -> None:
        self.link: TracedConsumerLink = link

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """Process a disposition, and record the end of a sampled delivery."""
        link = self.link
        open = link.open_deliveries
        entry = _entry_of(delivery.context) if len(open) > 0 else None
        sampled = None if entry is None else open.take(entry)
        if entry is None or sampled is None:
            link.on_outcome(delivery)
            return
        begun = open.tracer.now()
        state = delivery.remote_state
        link.on_outcome(delivery)
        if delivery.remote_settled or is_terminal(state):
            outcome = outcome_name(state) or outcome_name(link.fate(False))
            open.tracer.settled(sampled, outcome, begun)
        else:
            open.put_back(entry, sampled)

    def on_transactional_state(
        self,
        transactions: Transactions,
        delivery: OutgoingDelivery,
        state: TransactionalState,
        settled: bool,
    ) -> None:
        """Process an outcome in a transaction; it is recorded now, not at the commit."""
        link = self.link
        open = link.open_deliveries
        entry = _entry_of(delivery.context)
        begun = open.tracer.now()
        transactions.state(link, delivery, state, settled)
        if entry is not None and (settled or is_terminal(state.outcome)):
            open.end(entry, outcome_name(state.outcome), begun)


@final
class TracedProducer:
    """The context of an engine's link whose messages `link` publishes."""

    __slots__ = ("link", "tracer")

    def __init__(self, link: ProducerLink, tracer: MessageTracer) -> None:
        self.link: ProducerLink = link
        self.tracer: MessageTracer = tracer

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Publish a message, and record it if it is sampled."""
        link = self.link
        context = self._context(delivery)
        if context is None or not context.sampled:
            link.on_delivery(delivery)
            return
        tracer = self.tracer
        shared = link.parts.shared
        payload = delivery.payload
        begun = tracer.now()
        total = shared.agenda.changes.total
        dropped = shared.counters.messages_dropped
        link.on_delivery(delivery)
        outcome = outcome_name(delivery.state)
        if shared.counters.messages_dropped != dropped:
            outcome = "dropped"
        stored = shared.agenda.changes.total != total
        address = link.address or _named(payload)
        tracer.published(context, address, AMQP_1_0, len(payload), begun, outcome, stored)

    def _context(self, delivery: IncomingDelivery) -> TraceContext | None:
        """Return the context of a message. The message of a new trace gets it as an annotation."""
        if (delivery.message_format >> 8) != 0 or delivery.message_format == BATCH_FORMAT:
            return None
        context = trace_of(delivery.payload)
        if context is None:
            context = self.tracer.begin_trace()
            if context is not None:
                try:
                    message = admit(delivery.payload, delivery.message_format, False)
                    annotations: dict[str, object] = {TRACEPARENT: context.traceparent()}
                    delivery.payload = message.annotated(annotations).payload
                except DecodeError:
                    # The link refuses it.
                    return None
        return context


def consumer_context(consumer: ConsumerLink) -> object:
    """Return the context of the engine's link for a consumer."""
    return TracedConsumer(consumer) if isinstance(consumer, TracedConsumerLink) else consumer


def producer_context(producer: ProducerLink, parts: ConnectionParts) -> object:
    """Return the context of the engine's link for a producer. Requests to services are not
    traced."""
    tracer = parts.shared.tracer
    node = producer.node
    if tracer is None or (node is not None and node.kind == "service"):
        return producer
    return TracedProducer(producer, tracer)


def outcome_name(state: DeliveryState | None) -> str:
    """Return the name of an outcome, also of one in a transaction; empty for other states."""
    if isinstance(state, TransactionalState):
        return outcome_name(state.outcome)
    return type(state).__name__.lower() if is_terminal(state) else ""


def _named(payload: bytes) -> str:
    """Return the address in the properties of a message for the anonymous terminus."""
    try:
        return admit(payload, 0, False).to() or ""
    except DecodeError:
        return ""


def _entry_of(context: object) -> Entry | None:
    """Return the entry of a delivery by its context."""
    if isinstance(context, TxnDelivery):
        return context.entry
    return context if isinstance(context, Entry) else None
