"""The metrics of the export of spans."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrymq_broker.telemetry.span_buffer import SpanBuffer


class SpanCollector(Collector):
    """A collector of the figures of a buffer."""

    def __init__(self, buffer: SpanBuffer) -> None:
        self._buffer = buffer

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families."""
        buffer = self._buffer
        spans = CounterMetricFamily(
            "ferrymq_spans", "Spans that were exported by OTLP, or lost", labels=["result"]
        )
        spans.add_metric(["exported"], float(buffer.exported))
        spans.add_metric(["lost"], float(buffer.lost))
        yield spans
        yield GaugeMetricFamily(
            "ferrymq_spans_waiting", "Spans that wait for their export", value=float(len(buffer))
        )
