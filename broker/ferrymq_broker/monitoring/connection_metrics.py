"""The metrics of each connection for Prometheus, written a few at a time.

Nothing is counted for them: connections and links have these figures in any case.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.monitoring.metric_columns import MetricColumns
from ferrymq_broker.monitoring.node_metrics import Encode, escaped, head_of
from ferrymq_broker.monitoring.node_totals import AT_ONCE, Pause, pause

_LABELS: Final = ("virtual_host", "connection", "user", "peer", "container_id", "protocol")
# The figures of a connection, with their help texts.
CONNECTION_GAUGES: Final = {
    "unsettled": "Deliveries that are not settled",
    "throttled": "Whether the client has to wait because of a rate limit",
}
CONNECTION_COUNTERS: Final = {
    "messages_received": "Messages from the client",
    "messages_sent": "Messages to the client",
    "throttled_seconds": "Seconds for which the client has had to wait because of a rate limit",
}


class ConnectionMetrics:
    """The figures of each connection, as `read` found them. `prefix` is written before the labels
    of each."""

    def __init__(self, prefix: str = "") -> None:
        self.columns: MetricColumns = MetricColumns(
            (*CONNECTION_GAUGES, *CONNECTION_COUNTERS), "d", prefix
        )

    async def read(self, broker: Broker, pause: Pause = pause) -> None:
        """Read the figures of all open connections."""
        for at, handler in enumerate(list(broker.handlers)):
            if at % AT_ONCE == AT_ONCE - 1:
                await pause()
            if handler.is_opened():
                self._add(handler)

    def _add(self, handler: ClientHandler) -> None:
        client = handler.client
        throttle = client.throttle
        traffic = handler.traffic()
        values: dict[str, float] = {
            "unsettled": int(handler.unsettled()),
            "throttled": throttle is not None and throttle.is_throttled(),
            "messages_received": int(traffic.received),
            "messages_sent": int(traffic.sent),
            "throttled_seconds": 0 if throttle is None else int(throttle.throttled_time()) / 1000,
        }
        for name, value in values.items():
            self.columns.values[name].append(float(value))
        told = (
            client.space.name,
            str(client.id),
            client.user or "",
            client.peer,
            client.container_id,
            str(handler.describe().get("protocol", "")),
        )
        named = zip(_LABELS, told, strict=True)
        self.columns.add_labels(",".join(f'{name}="{escaped(value)}"' for name, value in named))

    async def lines(self, encode: Encode, pause: Pause = pause) -> AsyncIterator[bytes]:
        """Yield the text in pieces; `encode` writes the head of each metric."""
        for name, column in self.columns.values.items():
            family = connection_family(name)
            yield head_of(family, encode)
            sample = f"{family.name}_total{{" if name in CONNECTION_COUNTERS else f"{family.name}{{"
            for first in range(0, len(column), AT_ONCE):
                await pause()
                yield "".join(
                    f"{sample}{labels}}} {value}\n"
                    for labels, value in zip(
                        self.columns.labels[first : first + AT_ONCE],
                        column[first : first + AT_ONCE],
                        strict=True,
                    )
                ).encode()


def connection_family(name: str) -> Metric:
    """Return the metric of a figure, without samples."""
    metric = f"ferrymq_connection_{name}"
    if name in CONNECTION_COUNTERS:
        return CounterMetricFamily(metric, CONNECTION_COUNTERS[name], labels=_LABELS)
    return GaugeMetricFamily(metric, CONNECTION_GAUGES[name], labels=_LABELS)
