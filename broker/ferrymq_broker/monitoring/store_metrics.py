"""The metrics of a store for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ferrymq_broker.broker import Broker
from ferrymq_broker.monitoring.store_stats import StoreStats
from ferrymq_broker.nodes.paging.pager import pager_of


class StoreCollector(Collector):
    """A collector of the figures of a broker's store."""

    def __init__(self, broker: Broker, figures: StoreStats) -> None:
        self._broker = broker
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families."""
        broker = self._broker
        changes = broker.agenda.changes
        figures = self._figures
        sizes = GaugeMetricFamily("ferrymq_store_bytes", "Bytes of store files", labels=["kind"])
        for kind, size in figures.bytes_by_kind().items():
            sizes.add_metric([kind], size)
        yield sizes
        yield CounterMetricFamily(
            "ferrymq_store_batches", "Batches on disk", value=figures.batch_bytes.count
        )
        yield CounterMetricFamily(
            "ferrymq_store_changes", "Changes to records", value=float(changes.total)
        )
        for name, text, histogram in (
            ("batch_bytes", "Bytes of batches in the journal", figures.batch_bytes),
            ("sync_seconds", "Seconds to write and sync a batch", figures.sync_seconds),
        ):
            yield HistogramMetricFamily(
                f"ferrymq_store_{name}", text, buckets=histogram.buckets(), sum_value=histogram.sum
            )
        store = broker.store
        for name, text, value in (
            ("last_batch", "Number of the last batch on disk", float(changes.stable)),
            (
                "last_batch_timestamp_seconds",
                "Time of the last batch on disk, in seconds since the epoch",
                figures.last_batch_at,
            ),
            (
                "applied_lag_batches",
                "Batches that are only in the journal",
                0.0 if store is None else float(changes.stable - store.applied),
            ),
            ("disk_alarm", "Whether the disk alarm is on", float("disk" in broker.alarms)),
        ):
            yield GaugeMetricFamily(f"ferrymq_store_{name}", text, value=value)
        pager = pager_of(broker.agenda)
        if pager is not None:
            for name, text, value in (
                ("paged_messages", "Messages that are on disk only", float(pager.messages)),
                ("paged_bytes", "Bytes of messages that are on disk only", float(pager.bytes)),
            ):
                yield GaugeMetricFamily(f"ferrymq_store_{name}", text, value=value)
            for name, text, value in (
                ("paged_out", "Messages moved from memory to disk", float(pager.paged_out)),
                ("paged_in", "Messages read back into memory", float(pager.paged_in)),
            ):
                yield CounterMetricFamily(f"ferrymq_store_{name}", text, value=value)
