"""The page on monitoring names the metrics that there are, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, Metric

from ferrymq_broker.monitoring.connection_metrics import (
    CONNECTION_COUNTERS,
    CONNECTION_GAUGES,
    connection_family,
)
from ferrymq_broker.monitoring.connection_totals import ConnectionTotals
from ferrymq_broker.monitoring.metrics import BrokerCollector
from ferrymq_broker.monitoring.node_metrics import NodeMetrics, family_of
from ferrymq_broker.monitoring.node_totals import (
    BY_KIND,
    COUNTERS,
    GAUGES,
    NodeTotals,
    RetiredNodes,
)
from ferrymq_broker.monitoring.worker_metrics import UP
from tests.broker.harness import Network

PAGE = Path(__file__).parents[3] / "docs/broker/monitoring.md"
# These have pages of their own.
ELSEWHERE = ("ferrymq_capture_", "ferrymq_replication_", "ferrymq_store_")


def name_of(family: Metric) -> str:
    """The name of the samples."""
    return f"{family.name}_total" if isinstance(family, CounterMetricFamily) else family.name


async def test_all_metrics_are_on_the_page() -> None:
    net = Network()
    net.declare("q")
    sums = NodeTotals()
    await sums.count(net.broker, RetiredNodes())
    collector = BrokerCollector(net.broker, sums, ConnectionTotals())
    there = {name_of(family) for family in collector.collect()}
    figures = NodeMetrics()
    await figures.read(net.broker)
    there |= {name_of(family_of(name)) for name in (*COUNTERS, *GAUGES)}
    of_connections = (*CONNECTION_GAUGES, *CONNECTION_COUNTERS)
    there |= {name_of(connection_family(name)) for name in of_connections}
    there.add(UP)
    named = set(re.findall(r"ferrymq_[a-z_]+", PAGE.read_text()))
    assert {name for name in named if not name.startswith(ELSEWHERE)} == there


def test_the_page_names_all_kinds() -> None:
    text = PAGE.read_text()
    for kind in BY_KIND:
        assert f"`{kind}`" in text
