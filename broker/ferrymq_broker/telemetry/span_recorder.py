"""The recorder of spans: it makes the spans of messages that links and channels report."""

from __future__ import annotations

import random
import time
from typing import Final

from ferrymq_broker.connections.message_tracer import MessageTracer, OpenDelivery
from ferrymq_broker.nodes.node import Agenda
from ferrymq_broker.nodes.trace_context import TraceContext
from ferrymq_broker.store.changes import StableCall
from ferrymq_broker.telemetry.span_buffer import SpanBuffer, SpanRecord

# The longest address in a span, in characters.
_MOST_ADDRESS: Final = 255
# The most messages of one batch of the store whose spans wait for it.
_MOST_STORING: Final = 4096
_SYSTEM: Final = "ferrymq"
_GOOD: Final = ("", "accepted")


class _Storing:
    """A message of a batch that is not on disk yet: its `publish` span and its attributes."""

    __slots__ = ("attributes", "begun", "context", "name", "span_id")

    def __init__(
        self,
        context: TraceContext,
        span_id: str,
        name: str,
        begun: int,
        attributes: dict[str, str | int],
    ) -> None:
        self.context = context
        self.span_id = span_id
        self.name = name
        self.begun = begun
        self.attributes = attributes


class SpanRecorder(MessageTracer):
    """A recorder that puts spans into `buffer`. `ratio` is the share of messages without a context
    for which the broker begins a trace."""

    def __init__(self, agenda: Agenda, buffer: SpanBuffer, ratio: float) -> None:
        self.buffer: SpanBuffer = buffer
        self._agenda = agenda
        self._ratio = ratio
        self._random = random.Random(random.SystemRandom().getrandbits(128))
        # The messages of the batch of this number, which is being filled.
        self._storing: list[_Storing] = []
        self._batch = 0

    def now(self) -> int:
        """Return the time."""
        return time.time_ns()

    def begin_trace(self) -> TraceContext | None:
        """See `MessageTracer.begin_trace`."""
        if self._ratio <= 0.0 or self._random.random() >= self._ratio:
            return None
        return TraceContext(f"{self._random.getrandbits(128) | 1:032x}", self._span_id(), True)

    def published(
        self,
        context: TraceContext,
        address: str,
        protocol: str,
        size: int,
        begun: int,
        outcome: str,
        stored: bool,
    ) -> None:
        """See `MessageTracer.published`."""
        name = address[:_MOST_ADDRESS]
        span_id = self._span_id()
        attributes = _attributes(name, protocol, size)
        self._add(context, span_id, "", "publish", "send", name, begun, attributes, outcome)
        if stored and outcome in _GOOD:
            if self._batch != self._agenda.changes.number:
                self._watch()
            if len(self._storing) < _MOST_STORING:
                self._storing.append(_Storing(context, span_id, name, begun, attributes))
            else:
                self.buffer.lose(1)

    def settled(self, delivery: OpenDelivery, outcome: str, begun: int) -> None:
        """See `MessageTracer.settled`."""
        context = delivery.context
        name = delivery.address[:_MOST_ADDRESS]
        span_id = self._span_id()
        attributes = _attributes(name, delivery.protocol, int(delivery.size))
        if delivery.failures:
            attributes["ferrymq.failed_deliveries"] = int(delivery.failures)
        if begun:
            self._add(
                context, self._span_id(), span_id, "settle", "settle", name, begun,
                attributes, outcome,
            )  # fmt: skip
        self._add(
            context, span_id, "", "deliver", "receive", name, int(delivery.begun),
            attributes, outcome,
        )  # fmt: skip

    def _watch(self) -> None:
        """Ask to be called when the present batch is on disk."""
        changes = self._agenda.changes
        storing: list[_Storing] = []
        self._storing = storing
        self._batch = int(changes.number)
        changes.watch(StableCall(lambda: self._on_stable(storing)))

    def _on_stable(self, storing: list[_Storing]) -> None:
        for one in storing:
            self._add(
                one.context, self._span_id(), one.span_id, "store", "", one.name, one.begun,
                one.attributes, "",
            )  # fmt: skip

    def _add(
        self,
        context: TraceContext,
        span_id: str,
        parent_id: str,
        operation: str,
        kind: str,
        name: str,
        begun: int,
        attributes: dict[str, str | int],
        outcome: str,
    ) -> None:
        """Add a span that ends now. Without `parent_id` its parent is the sender's span."""
        buffer = self.buffer
        if not buffer.has_room():
            return
        found: dict[str, str | int] = {**attributes, "messaging.operation.name": operation}
        if kind:
            found["messaging.operation.type"] = kind
        if outcome:
            found["ferrymq.outcome"] = outcome
        failed = operation == "publish" and outcome not in _GOOD
        if failed:
            found["error.type"] = outcome
        buffer.add(
            SpanRecord(
                context.trace_id,
                span_id,
                parent_id or context.span_id,
                not parent_id,
                context.state,
                f"{operation} {name}".rstrip(),
                "SERVER" if kind else "INTERNAL",
                begun,
                time.time_ns(),
                found,
                f"the message was {outcome}" if failed else "",
            )
        )

    def _span_id(self) -> str:
        return f"{self._random.getrandbits(64) | 1:016x}"


def _attributes(address: str, protocol: str, size: int) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": _SYSTEM,
        "messaging.message.envelope.size": size,
        "network.protocol.name": "amqp",
        "network.protocol.version": protocol,
    }
    if address:
        attributes["messaging.destination.name"] = address
    return attributes
