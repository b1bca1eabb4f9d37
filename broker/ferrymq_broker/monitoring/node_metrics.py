"""The metrics of each node and subscription for Prometheus, written a few at a time.

The text format requires all samples of a metric together. So the figures are read into arrays
first, and written from there. That takes some 250 bytes for each node, much less than the text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrymq_broker.broker import Broker
from ferrymq_broker.monitoring.metric_columns import MetricColumns
from ferrymq_broker.monitoring.metrics import metric_name
from ferrymq_broker.monitoring.node_totals import (
    AT_ONCE,
    COUNTERS,
    GAUGES,
    NodeRow,
    Pause,
    all_rows,
    pause,
)

# A function that writes a registry in one of the text formats.
Encode = Callable[[CollectorRegistry], bytes]

LABELS: Final = ("virtual_host", "type", "address")
# The end of an OpenMetrics text.
_END: Final = b"# EOF\n"
# The value for a node without the figure.
_NONE: Final = -1


class NodeMetrics:
    """The figures of all nodes and subscriptions of a broker, as `read` found them. `prefix` is
    written before the labels of each."""

    def __init__(self, prefix: str = "") -> None:
        self.columns: MetricColumns = MetricColumns((*COUNTERS, *GAUGES), "q", prefix)
        self._last: tuple[str, ...] = ()

    async def read(self, broker: Broker, pause: Pause = pause) -> None:
        """Read the figures of all nodes and subscriptions."""
        for at, row in enumerate(all_rows(broker)):
            if at % AT_ONCE == AT_ONCE - 1:
                await pause()
            if row.address:
                self._add(row)

    def _add(self, row: NodeRow) -> None:
        key = row[:3]
        figures = row.figures()
        values = self.columns.values
        if key == self._last:
            for name, value in figures.items():
                column = values.get(name)
                if column is not None:
                    column[-1] = value if column[-1] == _NONE else column[-1] + value
            return
        self._last = key
        for name, column in values.items():
            column.append(figures.get(name, _NONE))
        named = zip(LABELS, key, strict=True)
        self.columns.add_labels(",".join(f'{name}="{escaped(value)}"' for name, value in named))

    async def lines(self, encode: Encode, pause: Pause = pause) -> AsyncIterator[bytes]:
        """Yield the text in pieces; `encode` writes the head of each metric."""
        for name, column in self.columns.values.items():
            if max(column, default=_NONE) == _NONE:
                continue
            family = family_of(name)
            yield head_of(family, encode)
            sample = f"{family.name}_total{{" if name in COUNTERS else f"{family.name}{{"
            for first in range(0, len(column), AT_ONCE):
                await pause()
                yield "".join(
                    f"{sample}{labels}}} {value}.0\n"
                    for labels, value in zip(
                        self.columns.labels[first : first + AT_ONCE],
                        column[first : first + AT_ONCE],
                        strict=True,
                    )
                    if value != _NONE
                ).encode()


def family_of(name: str) -> Metric:
    """Return the metric of a figure, without samples."""
    if name in COUNTERS:
        metric = f"ferrymq_messages_{metric_name(name)}"
        return CounterMetricFamily(metric, COUNTERS[name], labels=LABELS)
    return GaugeMetricFamily(f"ferrymq_node_{metric_name(name)}", GAUGES[name], labels=LABELS)


def head_of(family: Metric, encode: Encode) -> bytes:
    """Return the lines above the samples of a metric."""
    registry = CollectorRegistry()
    registry.register(_One(family))
    return encode(registry).removesuffix(_END)


def escaped(value: str) -> str:
    """Return the value of a label, escaped for the text format."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _One(Collector):
    """A collector of one metric."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        """Return the metric."""
        return [self._family]
