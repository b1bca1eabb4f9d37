"""The thread that exports spans by OTLP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from ferrymq_broker.telemetry.span_buffer import SpanBuffer, SpanRecord

# The spans of one export: the thread takes turns with the event loop while it encodes them.
BATCH: Final = 256
# Seconds between two exports while spans come slowly, and for each of the two steps of the end.
PERIOD: Final = 2.0
_PATIENCE: Final = 2.0
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class SpanExport:
    """The export of the spans in `buffer` with `exporter`, by a thread from `start` to `close`.

    `on_change` is called, in the thread, when a batch is not taken after one that was (False), and
    when one is taken again (True).
    """

    def __init__(
        self,
        buffer: SpanBuffer,
        exporter: SpanExporter,
        resource: Resource,
        scope: InstrumentationScope,
        on_change: Callable[[bool], object],
        period: float = PERIOD,
    ) -> None:
        self._buffer = buffer
        self._exporter = exporter
        self._resource = resource
        self._scope = scope
        self._on_change = on_change
        self._period = period
        self._works = True
        self._wanted = threading.Event()
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, name="ferrymq-opentelemetry-spans", daemon=True
        )

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def close(self) -> None:
        """Export what is there, as far as that takes a few seconds, and end the thread."""
        self._closing = True
        self._wanted.set()
        self._thread.join(_PATIENCE)
        # Ends the waits of an exporter that tries again.
        self._exporter.shutdown()
        self._thread.join(_PATIENCE)
        self._buffer.count(len(self._buffer.take(len(self._buffer))), False)

    def _run(self) -> None:
        while True:
            closing = self._closing
            while spans := self._buffer.take(BATCH):
                self._export(spans)
            if closing:
                return
            self._wanted.wait(self._period)

    def _export(self, records: Sequence[SpanRecord]) -> None:
        try:
            result = self._exporter.export([self._span(record) for record in records])
            works = result is SpanExportResult.SUCCESS
        except Exception:
            works = False
        self._buffer.count(len(records), works)
        if works != self._works:
            self._works = works
            self._on_change(works)

    def _span(self, record: SpanRecord) -> ReadableSpan:
        """Return the span as the SDK's exporters take it."""
        trace_id = int(record.trace_id, 16)
        state = TraceState.from_header([record.state]) if record.state else TraceState()
        return ReadableSpan(
            name=record.name,
            context=SpanContext(trace_id, int(record.span_id, 16), False, _SAMPLED, state),
            parent=SpanContext(
                trace_id, int(record.parent_id, 16), record.parent_is_remote, _SAMPLED, state
            ),
            resource=self._resource,
            attributes=record.attributes,
            kind=SpanKind[record.kind],
            status=Status(StatusCode.ERROR, record.error) if record.error else Status(),
            start_time=record.begun,
            end_time=max(record.begun, record.ended),
            instrumentation_scope=self._scope,
        )
