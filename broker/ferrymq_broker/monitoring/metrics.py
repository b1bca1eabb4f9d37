"""The broker's metrics for Prometheus, read from the broker for each request.

Nothing is counted twice: nodes and connections have their own counters, and a scrape reads them, a
few nodes in each pass of the event loop. There are two sets of metrics: sums for each virtual host
and kind of node, whose size does not depend on the number of nodes, and metrics for each node
(`node_metrics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrymq_broker.broker import Broker
from ferrymq_broker.monitoring.connection_totals import ConnectionTotals
from ferrymq_broker.monitoring.node_totals import COUNTERS, GAUGES, NodeTotals


class BrokerCollector(Collector):
    """A collector of the figures of `broker`, and of the sums of its nodes and connections, which
    are counted before."""

    def __init__(self, broker: Broker, sums: NodeTotals, clients: ConnectionTotals) -> None:
        self._broker = broker
        self._sums = sums
        self._clients = clients

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families, those of nodes first."""
        yield from self._nodes()
        yield from self._broker_wide()

    def _nodes(self) -> Iterator[Metric]:
        labels = ["virtual_host", "type"]
        sums = self._sums.figures
        yield _gauge("ferrymq_nodes", "Nodes", labels, self._sums.nodes)
        for name, text in COUNTERS.items():
            if name in sums:
                metric = f"ferrymq_messages_{metric_name(name)}"
                family = CounterMetricFamily(metric, text, labels=labels)
                for key, value in sums[name].items():
                    family.add_metric(list(key), value)
                yield family
        for name, text in GAUGES.items():
            if name in sums:
                yield _gauge(f"ferrymq_node_{metric_name(name)}", text, labels, sums[name])

    def _broker_wide(self) -> Iterator[Metric]:
        broker = self._broker
        counters = broker.counters
        yield _single("ferrymq_connections", "Open connections", len(broker.handlers))
        yield _single("ferrymq_links", "Attached links", len(broker.shared.names))
        yield _single(
            "ferrymq_unsettled_deliveries",
            "Deliveries that are not settled",
            float(self._clients.unsettled),
        )
        throttled = GaugeMetricFamily(
            "ferrymq_throttled_connections",
            "Connections that have to wait because of a rate limit",
            labels=["user"],
        )
        for user, count in sorted(self._clients.throttled.items()):
            throttled.add_metric([user], count)
        yield throttled
        yield _single(
            "ferrymq_held_bytes",
            "Bytes of messages held, each counted once",
            float(broker.agenda.held),
        )
        yield _single(
            "ferrymq_unfinished_bytes",
            "Bytes of incomplete messages",
            float(broker.unfinished.held),
        )
        alarms = GaugeMetricFamily("ferrymq_alarm", "Alarms that are on", labels=["alarm"])
        for alarm in sorted(broker.alarms):
            alarms.add_metric([alarm], 1)
        yield alarms
        over = CounterMetricFamily(
            "ferrymq_connections_refused",
            "Connections refused because there were too many",
            labels=["limit"],
        )
        over.add_metric(["connections"], float(counters.connections_refused_total))
        over.add_metric(["connections-per-address"], float(counters.connections_refused_address))
        over.add_metric(["connections-per-user"], float(counters.connections_refused_user))
        yield over
        for name, text in (
            ("connections_opened", "Connections that were made"),
            ("logins_refused", "Logins refused"),
            ("logins_put_off", "Logins refused without checking, to be tried again later"),
            ("links_refused", "Attaches refused"),
            ("links_over_limit", "Links refused or ended because of a limit of their connection"),
            ("throttles", "How often a client has had to wait because of a rate limit"),
            ("bytes_received", "Bytes read from clients"),
            ("bytes_sent", "Bytes written to clients"),
        ):
            yield CounterMetricFamily(f"ferrymq_{name}", text, value=getattr(counters, name))
        yield CounterMetricFamily(
            "ferrymq_settled_messages_dropped",
            "Messages sent settled that no node accepted",
            value=float(counters.messages_dropped),
        )


def metric_name(name: str) -> str:
    """Return the name of a figure in metrics."""
    return name.replace("-", "_")


def _gauge(name: str, text: str, labels: list[str], values: dict[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def _single(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
