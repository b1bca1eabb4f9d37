"""Monitoring of a broker with several workers: one page has the figures of all."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

import ferrymq
from ferrymq_broker.monitoring.metric_columns import MetricColumns
from ferrymq_broker.monitoring.worker_metrics import NODES, AllWorkers
from ferrymq_broker.server.workers.peers import WorkerError
from tests.broker.workers.pages import TENANT, WORKERS, fetch, read, worker_pids
from tests.broker.workers.several import wait_until
from tests.raw.process import Broker
from tests.support.otlp import collector

CONFIG = f"""{WORKERS}
[[listener]]
url = "amqp://127.0.0.1:0"
[[queue]]
name = "orders"
{TENANT}
[[virtual-host.queue]]
name = "invoices"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker of two workers."""
    with Broker(CONFIG) as process:
        yield process


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """The labels and values of a metric; each metric is there once."""
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    return [
        (each.labels, each.value)
        for family in families
        for each in family.samples
        if each.name == name
    ]


async def test_sums_have_the_label_of_their_worker(broker: Broker) -> None:
    async with ferrymq.connect(broker.url, hostname="vhost:tenant") as connection:
        sender = await connection.sender("invoices")
        await sender.send("one")
        status, text = fetch(f"{broker.monitoring}/metrics")
    assert status == 200
    connections = {
        labels["worker"]: value for labels, value in samples(text, "ferrymq_connections")
    }
    assert connections == {"0": 0.0, "1": 1.0}
    published = [
        (labels["virtual_host"], labels["worker"], value)
        for labels, value in samples(text, "ferrymq_messages_published_total")
        if labels["type"] == "queue"
    ]
    assert published == [("default", "0", 0.0), ("tenant", "1", 1.0)]
    assert [value for _, value in samples(text, "ferrymq_worker_up")] == [1.0, 1.0]
    assert {labels["worker"] for labels, _ in samples(text, "process_cpu_seconds_total")} == {
        "0",
        "1",
    }


async def test_nodes_and_connections_have_it_too(broker: Broker) -> None:
    async with ferrymq.connect(broker.url, hostname="vhost:tenant"):
        nodes = fetch(f"{broker.monitoring}/metrics/nodes")[1]
        connections = fetch(f"{broker.monitoring}/metrics/connections")[1]
    found = {
        (labels["address"], labels["worker"])
        for labels, _ in samples(nodes, "ferrymq_node_available")
    }
    assert found == {("orders", "0"), ("invoices", "1")}
    ((labels, _),) = samples(connections, "ferrymq_connection_unsettled")
    assert (labels["worker"], labels["virtual_host"]) == ("1", "tenant")


@pytest.mark.parametrize("page", ["metrics", "metrics/nodes", "metrics/connections"])
def test_open_metrics_have_it_too(broker: Broker, page: str) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    text = fetch(f"{broker.monitoring}/{page}", headers=accept)[1]
    families = {family.name: family for family in open_metrics_families(text)}
    up = families["ferrymq_worker_up"].samples
    assert [(each.labels["worker"], each.value) for each in up] == [("0", 1.0), ("1", 1.0)]


async def test_a_worker_that_does_not_answer_is_down_and_the_others_are_shown() -> None:
    async def ask_all(
        question: str, content: bytes, timeout: float
    ) -> Mapping[int, bytes | Exception]:
        return {1: WorkerError("away")}

    workers = AllWorkers(0, ask_all)
    columns = MetricColumns(["a"], "q", workers.prefix)
    registry = await workers.merged(CollectorRegistry(), workers.ask(NODES), columns)
    text = generate_latest(registry).decode()
    assert samples(text, "ferrymq_worker_up") == [({"worker": "0"}, 1.0), ({"worker": "1"}, 0.0)]


def test_the_broker_is_ready_when_all_workers_are(broker: Broker) -> None:
    url = f"{broker.monitoring}/readyz"
    assert read(url) == {"ready": True, "reason": "", "alarms": []}
    pid = worker_pids(broker.pid)[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        status, text = fetch(url)
        assert status == 503 and "worker 1 does not answer" in text
        assert fetch(f"{broker.monitoring}/livez")[0] == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: fetch(url)[0] == 200, "the broker is not ready again")


def test_each_worker_is_an_instance_of_the_service() -> None:
    with collector() as received:
        settings = f"""
[opentelemetry]
metrics = true
metrics-interval = "1s"
endpoint = "{received.url}"
"""
        with Broker(CONFIG + settings):
            received.wait(lambda all: len({str(each) for each in all.resources}) == 2)
    instances = {each["service.instance.id"] for each in received.resources}
    assert len(instances) == 2
