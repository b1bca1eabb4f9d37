"""The metrics of all workers of a broker together, each sample with the label ``worker``.

One worker has the listener for monitoring. It asks the others for their figures, and writes each
metric once, with the samples of all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrymq_broker.monitoring.connection_metrics import ConnectionMetrics
from ferrymq_broker.monitoring.metric_columns import MetricColumns
from ferrymq_broker.monitoring.node_metrics import NodeMetrics

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.monitoring.metrics_registry import MetricsRegistry

METRICS: Final = "metrics"
"""The name of the question to another worker; its content is the name of the figures."""
UP: Final = "ferrymq_worker_up"
"""The metric that says which workers answer."""
# The names of the figures: the sums, those of each node, those of each connection.
SUMS: Final = "sums"
NODES: Final = "nodes"
CONNECTIONS: Final = "connections"
# Seconds for another worker to answer.
PATIENCE: Final = 5.0
_LABEL: Final = "worker"

# Asks all other workers a question, with a time-out in seconds: returns an answer by the number of
# the worker, or the error for a worker that does not answer.
AskAll = Callable[[str, bytes, float], Awaitable[Mapping[int, bytes | Exception]]]


class WorkerFigures:
    """The figures of this process, as an answer to the worker that has the listener."""

    def __init__(
        self, broker: Broker, registry: MetricsRegistry, by_node: CollectorRegistry
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._by_node = by_node

    async def answer(self, content: bytes) -> bytes:
        """Answer the question `METRICS`."""
        figures: NodeMetrics | ConnectionMetrics
        if content.decode() == NODES:
            figures, registry = NodeMetrics(), self._by_node
        elif content.decode() == CONNECTIONS:
            figures, registry = ConnectionMetrics(), CollectorRegistry()
        else:
            return _encode(await self._registry.read(), b"")
        await figures.read(self._broker)
        return _encode(registry, await figures.columns.encode())


class AllWorkers:
    """The figures of all workers. `number` is that of this worker, and `ask_all` asks the
    others."""

    def __init__(self, number: int, ask_all: AskAll) -> None:
        self._number = number
        self._ask_all = ask_all

    @property
    def prefix(self) -> str:
        """The text before the labels of this worker's rows."""
        return _prefix(self._number)

    def ask(self, name: str) -> asyncio.Future[Mapping[int, bytes | Exception]]:
        """Ask for figures of the others, which they read while this worker reads its own."""
        return asyncio.ensure_future(self._ask_all(METRICS, name.encode(), PATIENCE))

    async def merged(
        self,
        own: CollectorRegistry,
        asked: asyncio.Future[Mapping[int, bytes | Exception]],
        columns: MetricColumns | None = None,
    ) -> CollectorRegistry:
        """Return the metrics of `own` with those of the others, and whether each worker answers.
        Their rows become those of `columns`."""
        families = _Families()
        families.add(self._number, own.collect())
        up = {self._number: True}
        for number, answer in (await asked).items():
            up[number] = isinstance(answer, bytes)
            if isinstance(answer, bytes):
                start = answer.index(b"\n") + 1
                families.add(number, _decoded(json.loads(answer[:start])))
                if columns is not None:
                    await columns.extend(answer, start, _prefix(number))
        families.add_up(up)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(families)
        return registry


class _Families(Collector):
    """A collector of metrics, each with the samples of several workers."""

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}

    def add(self, number: int, metrics: Iterable[Metric]) -> None:
        for metric in metrics:
            found = self._found.get(metric.name)
            if found is None:
                found = Metric(metric.name, metric.documentation, metric.type, metric.unit)
                self._found[metric.name] = found
            for sample in metric.samples:
                found.add_sample(sample.name, {_LABEL: str(number), **sample.labels}, sample.value)

    def add_up(self, up: Mapping[int, bool]) -> None:
        family = GaugeMetricFamily(UP, "Whether the worker answers", labels=[_LABEL])
        for number, answers in sorted(up.items()):
            family.add_metric([str(number)], float(answers))
        self._found[family.name] = family

    def collect(self) -> list[Metric]:
        """Return the metrics."""
        return list(self._found.values())


def _encode(registry: CollectorRegistry, rows: bytes) -> bytes:
    families = [
        [
            metric.name,
            metric.documentation,
            metric.type,
            metric.unit,
            [[sample.name, sample.labels, sample.value] for sample in metric.samples],
        ]
        for metric in registry.collect()
    ]
    return json.dumps(families).encode() + b"\n" + rows


def _decoded(families: list[list[Any]]) -> Iterable[Metric]:
    for name, text, type, unit, samples in families:
        metric = Metric(name, text, type, unit)
        for sample, labels, value in samples:
            metric.add_sample(sample, labels, value)
        yield metric


def _prefix(number: int) -> str:
    return f'{_LABEL}="{number}",'
