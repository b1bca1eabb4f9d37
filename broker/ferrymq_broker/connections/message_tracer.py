"""The port of what records the way of messages: spans of OpenTelemetry.

A broker without one has links and channels that know nothing of it. With one, `TracedProducer`,
`TracedConsumer` and the traced channels of AMQP 0-9-1 call it, for sampled messages only.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

from ferrymq_broker.nodes.trace_context import TraceContext


@final
class OpenDelivery:
    """A delivery of a sampled message without an outcome: its context, the address of the node, the
    name and version of the protocol, the size in bytes, the failed deliveries before it, and when
    it began."""

    __slots__ = ("context", "address", "protocol", "size", "failures", "begun")

    def __init__(
        self,
        context: TraceContext,
        address: str,
        protocol: str,
        size: i64,
        failures: i64,
        begun: i64,
    ) -> None:
        self.context: TraceContext = context
        self.address: str = address
        self.protocol: str = protocol
        self.size: i64 = size
        self.failures: i64 = failures
        self.begun: i64 = begun


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageTracer:
    """A recorder of spans. Times are nanoseconds since the Unix epoch. `protocol` is the version of
    AMQP: ``1.0`` or ``0-9-1``. `outcome` is the name of an outcome; empty for none."""

    def now(self) -> int:
        """Return the time."""
        raise NotImplementedError

    def begin_trace(self) -> TraceContext | None:
        """Return the context of a new trace for a message that came without one; None if the
        message is not sampled."""
        return None

    def published(
        self,
        context: TraceContext,
        address: str,
        protocol: str,
        size: i64,
        begun: i64,
        outcome: str,
        stored: bool,
    ) -> None:
        """Record that a message has been published or refused. `stored` is whether the present
        batch of the store has something of it."""

    def settled(self, delivery: OpenDelivery, outcome: str, begun: i64) -> None:
        """Record the end of a delivery. The client has settled it with this outcome, which was
        processed from `begun` on; 0 if the client has not settled it."""
