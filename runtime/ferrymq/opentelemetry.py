"""Spans of OpenTelemetry for the clients: links of a connection that was opened with a `tracer`.

Needs the extra ``ferrymq[opentelemetry]``. The names are those of OpenTelemetry's conventions for
messaging. The context of a message is in its application-properties (W3C Trace Context: AMQP
protocol), in the form of the global propagator: ``traceparent``, ``tracestate`` and ``baggage``.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from ferrymq.aio.delivery import Delivery
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.sender import Sender
from ferrymq.durations import Duration
from ferrymq.message import Message
from ferrymq.sendable import Sendable, check_messages, to_message
from ferrymq_codec.errors import DecodeError
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.transaction import Transaction
    from ferrymq_types.unions import Outcome

__all__ = ["processing"]

_SYSTEM: Final = "amqp"
_OPERATIONS: Final = {
    "Accepted": "accept",
    "Rejected": "reject",
    "Released": "release",
    "Modified": "modify",
}


class BlockingFace(Protocol):
    """A delivery of the blocking client."""

    _delivery: Delivery


@contextmanager
def processing(delivery: Delivery | BlockingFace) -> Iterator[Span]:
    """Record the work on a message as a span ``process ADDRESS``, which is the current span in the
    block.

        async for delivery in receiver:
            with processing(delivery):
                ...

    It belongs to the trace of the message, and links to the span that sent it. Handlers of a
    worker run in such a span already. Without a tracer of the connection the span records nothing.
    """
    received = delivery if isinstance(delivery, Delivery) else delivery._delivery
    if not isinstance(received, TracedDelivery):
        yield trace.INVALID_SPAN
        return
    context = _context_of(received)
    tracer = _tracer(received.receiver._connection)
    with tracer.start_as_current_span(
        _named("process", received.receiver.address),
        # The trace of the message goes on, whatever the program does besides.
        context=context,
        kind=SpanKind.CONSUMER,
        attributes=_attributes("process", "process", received.receiver),
        links=_links(context),
    ) as span:
        yield span


class TracedSender(Sender):
    """Sender whose messages have spans, and carry their contexts."""

    traces = True

    async def send(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
        delivery_tag: bytes | None = None,
        hold: bool = False,
    ) -> None:
        """See `Sender.send`."""
        span, traced = self._begin("send", to_message(message, "send"))
        with _ending(span):
            await super().send(
                traced,
                settled=settled,
                timeout=timeout,
                transaction=transaction,
                delivery_tag=delivery_tag,
                hold=hold,
            )

    def send_nowait(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        transaction: Transaction | None = None,
        delivery_tag: bytes | None = None,
        hold: bool = False,
    ) -> asyncio.Future[None]:
        """See `Sender.send_nowait`."""
        span, traced = self._begin("send", to_message(message, "send_nowait"))
        try:
            future = super().send_nowait(
                traced,
                settled=settled,
                transaction=transaction,
                delivery_tag=delivery_tag,
                hold=hold,
            )
        except BaseException as error:
            _end(span, error)
            raise
        future.add_done_callback(lambda sent: _end(span, _error_of(sent)))
        return future

    async def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """See `Sender.send_many`. Each message has a span ``create``, the call has a span
        ``send``."""
        check_messages(messages, "send_many")
        span = _tracer(self._connection).start_span(
            _named("send", self.address),
            kind=SpanKind.CLIENT,
            attributes=_attributes("send", "send", self),
        )
        count = 0

        def created() -> Iterator[Message]:
            nonlocal count
            for message in messages:
                one, traced = self._begin("create", to_message(message, "send_many"))
                one.end()
                count += 1
                yield traced

        with _ending(span), trace.use_span(span):
            await super().send_many(
                created(), settled=settled, timeout=timeout, transaction=transaction
            )
            span.set_attribute("messaging.batch.message_count", count)

    def _begin(self, operation: str, message: Message) -> tuple[Span, Message]:
        """Return a new span for a message, and the message with its context. A message that has a
        context keeps it; the span links to that."""
        given = _extracted(message)
        span = _tracer(self._connection).start_span(
            _named(operation, self.address),
            kind=SpanKind.PRODUCER,
            attributes=_attributes(operation, operation, self) | _about(message),
            links=_links(given),
        )
        carrier: dict[str, str] = {}
        if given is None:
            propagate.inject(carrier, trace.set_span_in_context(span))
        if not carrier:
            return span, message
        traced = copy.copy(message)
        traced.application_properties = {**message.application_properties, **carrier}
        return span, traced


class TracedDelivery(Delivery):
    """Received message whose outcome has a span."""

    __slots__ = ()

    def _begin(
        self, outcome: Outcome, transaction: Transaction | None
    ) -> asyncio.Future[None] | None:
        operation = _OPERATIONS.get(type(outcome).__name__, "settle")
        context = _context_of(self)
        span = _tracer(self.receiver._connection).start_span(
            _named(operation, self.receiver.address),
            context=_parent(context),
            kind=SpanKind.CLIENT,
            attributes=_attributes(operation, "settle", self.receiver),
            links=_links(context),
        )
        with _ending(span):
            return super()._begin(outcome, transaction)


class TracedReceiver(Receiver):
    """Receiver whose messages have a span ``receive ADDRESS`` when they are taken."""

    delivery_type: ClassVar[type[Delivery]] = TracedDelivery
    # Spans belong to the context of a call, so each message and outcome is a call in the loop.
    shares_queue = False

    def _take(self) -> Delivery:
        delivery = super()._take()
        context = _context_of(delivery)
        _tracer(self._connection).start_span(
            _named("receive", self.address),
            context=_parent(context),
            kind=SpanKind.CONSUMER,
            attributes=_attributes("receive", "receive", self)
            | {"messaging.message.envelope.size": len(delivery.payload)},
            links=_links(context),
        ).end()
        return delivery


def _tracer(connection: Connection) -> Tracer:
    tracer = connection.options.tracer
    assert tracer is not None, "links of connections without a tracer are not traced"
    return tracer


def _named(operation: str, address: str | None) -> str:
    return f"{operation} {address}" if address else operation


def _attributes(operation: str, kind: str, link: Sender | Receiver) -> dict[str, str | int]:
    url = link._connection.url
    found: dict[str, str | int] = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.client.id": str(link._connection.options.container_id),
        "network.protocol.name": "amqp",
        "network.protocol.version": "1.0",
        "server.address": url.host,
        "server.port": url.port,
    }
    if link.address:
        found["messaging.destination.name"] = link.address
    return found


def _about(message: Message) -> dict[str, str | int]:
    """Return the attributes of a single message."""
    found: dict[str, str | int] = {}
    properties = message.properties
    if properties is not None:
        if properties.message_id is not None:
            found["messaging.message.id"] = str(properties.message_id)
        if properties.correlation_id is not None:
            found["messaging.message.conversation_id"] = str(properties.correlation_id)
    return found


def _context_of(delivery: Delivery) -> Context | None:
    """Return the context that a received message came with; None without one."""
    if delivery.message_format:
        return None
    try:
        return _extracted(delivery.message)
    except DecodeError:
        return None


def _extracted(message: Message) -> Context | None:
    """Return the context in a message. The annotations of intermediaries count first."""
    for values in (message.message_annotations, message.application_properties):
        carrier = _texts(values)
        if carrier:
            context = propagate.extract(carrier, Context())
            if trace.get_current_span(context).get_span_context().is_valid:
                return context
    return None


def _texts(values: Mapping[str, object] | Mapping[str | int, object]) -> dict[str, str]:
    fields = propagate.get_global_textmap().fields
    found = {name: values.get(name) for name in fields}
    return {name: str(value) for name, value in found.items() if isinstance(value, str)}


def _links(context: Context | None) -> list[Link]:
    """Return a link to the span that made the message."""
    if context is None:
        return []
    return [Link(trace.get_current_span(context).get_span_context())]


def _parent(context: Context | None) -> Context | None:
    """Return the context of the parent: the current span if there is one, else that of the
    message."""
    return None if trace.get_current_span().get_span_context().is_valid else context


def _error_of(future: asyncio.Future[None]) -> BaseException | None:
    return asyncio.CancelledError() if future.cancelled() else future.exception()


@contextmanager
def _ending(span: Span) -> Iterator[None]:
    """End the span after the block, with the exception that leaves it."""
    try:
        yield
    except BaseException as error:
        _end(span, error)
        raise
    _end(span, None)


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", _condition(error) or type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


def _condition(error: BaseException) -> str:
    """Return the condition that the peer gave; empty for none."""
    given = getattr(error, "error", None)
    return str(given.condition) if isinstance(given, Error) else ""
