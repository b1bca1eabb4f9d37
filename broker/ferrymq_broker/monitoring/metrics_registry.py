"""The registry of the metrics that ``/metrics`` shows and that are exported by OTLP."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.registry import Collector

from ferrymq_broker.broker import Broker
from ferrymq_broker.capture.service import CaptureService
from ferrymq_broker.monitoring.capture_metrics import CaptureCollector
from ferrymq_broker.monitoring.connection_totals import ConnectionTotals
from ferrymq_broker.monitoring.metrics import BrokerCollector
from ferrymq_broker.monitoring.node_totals import NodeTotals, RetiredNodes
from ferrymq_broker.monitoring.store_metrics import StoreCollector
from ferrymq_broker.monitoring.store_stats import StoreStats


class MetricsRegistry:
    """The metrics of a broker, except those of each node. There are none before `watch`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = CollectorRegistry()
        self._counted = NodeTotals()
        self._retired = RetiredNodes()
        self._clients = ConnectionTotals()

    def watch(self, store: StoreStats | None = None, capture: CaptureService | None = None) -> None:
        """Collect metrics from now on, with those of `store` and `capture`. The broker must have
        all its virtual hosts."""
        broker = self._broker
        registry = self._registry
        for space in broker.spaces.values():
            space.on_change.append(self._retired.on_change)
        registry.register(BrokerCollector(broker, self._counted, self._clients))
        if store is not None:
            registry.register(StoreCollector(broker, store))
        if capture is not None:
            registry.register(CaptureCollector(capture.figures, by_stream=False))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

    def add(self, collector: Collector) -> None:
        """Collect further metrics."""
        self._registry.register(collector)

    async def read(self) -> CollectorRegistry:
        """Count what the collectors show, a few nodes in each pass, and return them."""
        await self._counted.count(self._broker, self._retired)
        await self._clients.count(self._broker)
        return self._registry


def by_node(capture: CaptureService | None) -> CollectorRegistry:
    """Return the metrics by address, except those of nodes."""
    registry = CollectorRegistry()
    if capture is not None:
        registry.register(CaptureCollector(capture.figures, by_stream=True))
    return registry
