"""The metrics of capture for Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrymq_broker.capture.state import CaptureFigures

# By the name of the counter: the field of the figures, and the help text.
_COUNTERS: Final = {
    "files": ("files", "Files that capture has closed"),
    "records": ("records", "Records in files that capture has closed"),
    "bytes": ("bytes", "Bytes of files that capture has closed"),
    "failures": ("failures", "Files and folders that capture could not write"),
    "records_lost": ("lost", "Records that capture could not read"),
}


class CaptureCollector(Collector):
    """A collector of capture's figures: sums by virtual host, or with `by_stream` for each
    stream."""

    def __init__(self, figures: Callable[[], CaptureFigures], by_stream: bool) -> None:
        self._figures = figures
        self._by_stream = by_stream

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families."""
        figures = self._figures()
        labels = ["virtual_host", "address"] if self._by_stream else ["virtual_host"]
        lag = GaugeMetricFamily(
            "ferrymq_capture_lag_records", "Records not in a capture file yet", labels=labels
        )
        self._add(lag, figures, "lag")
        yield lag
        for name, (field, text) in _COUNTERS.items():
            family = CounterMetricFamily(f"ferrymq_capture_{name}", text, labels=labels)
            self._add(family, figures, field)
            yield family
        if not self._by_stream:
            yield GaugeMetricFamily(
                "ferrymq_capture_running",
                "Whether the process that writes files is running",
                value=float(figures.running),
            )
            yield CounterMetricFamily(
                "ferrymq_capture_starts",
                "How often the process that writes files was started",
                value=float(figures.starts),
            )

    def _add(
        self,
        family: GaugeMetricFamily | CounterMetricFamily,
        figures: CaptureFigures,
        field: str,
    ) -> None:
        sums: dict[tuple[str, ...], int] = defaultdict(int)
        streams = figures.streams if self._by_stream else figures.streams + figures.past
        for stream in streams:
            key = [stream.space, stream.address] if self._by_stream else [stream.space]
            sums[tuple(key)] += getattr(stream, field)
        for labels, value in sums.items():
            family.add_metric(list(labels), float(value))
