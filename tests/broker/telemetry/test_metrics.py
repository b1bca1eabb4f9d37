"""Metrics by OTLP: the same as those of /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

import ferrymq
from ferrymq_broker.config.model import Config
from ferrymq_broker.server.server import BrokerServer
from tests.support.otlp import Collector, collector

pytestmark = pytest.mark.page("broker/opentelemetry")

# Figures that change from one reading to the next.
_MOVES = ("process_", "python_gc_", "ferrymq_bytes_")


@pytest.fixture
def sink() -> Iterator[Collector]:
    with collector() as made:
        yield made


def _config(sink: Collector, http: bool, **more: Any) -> Config:
    settings: dict[str, Any] = {
        "container-id": "broker-1",
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "opentelemetry": {"metrics": True, "endpoint": sink.url, "metrics-interval": 0.1} | more,
        "queue": [{"name": "orders"}],
    }
    if http:
        settings["http"] = {"url": "http://127.0.0.1:0"}
    return Config.model_validate(settings)


def _published(sink: Collector) -> list[tuple[dict[str, str], float, str]]:
    return sink.metrics.get("ferrymq_messages_published", [])


async def test_they_are_those_of_the_scrape(sink: Collector) -> None:
    async with BrokerServer(_config(sink, http=True)) as server:
        async with ferrymq.connect(server.url) as connection:
            await (await connection.sender("orders")).send("x")
        await asyncio.to_thread(sink.wait, lambda made: any(one[1] for one in _published(made)))
        assert server.monitoring is not None
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{server.monitoring.url}/metrics") as response,
        ):
            text = await response.text()
    scraped = {
        (family.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    exported = {
        (name, tuple(sorted(labels.items()))): value
        for name, points in sink.metrics.items()
        for labels, value, _ in points
    }
    assert exported.keys() == scraped.keys()
    assert [key for key, value in exported.items() if value != scraped[key]] == [
        key
        for key, value in exported.items()
        if value != scraped[key] and key[0].startswith(_MOVES)
    ]
    published = {labels["type"]: (value, kind) for labels, value, kind in _published(sink)}
    assert published["queue"] == (1, "sum")
    assert sink.metrics["ferrymq_connections"][0][2] == "gauge"
    assert sink.resources[0]["service.name"] == "ferrymq"
    assert sink.resources[0]["service.instance.id"] == "broker-1"


async def test_without_a_listener_for_monitoring(
    sink: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-broker")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
    async with BrokerServer(_config(sink, http=False, endpoint=None, traces=True)):
        await asyncio.to_thread(sink.wait, lambda made: "ferrymq_spans" in made.metrics)
    assert {labels["result"] for labels, _, _ in sink.metrics["ferrymq_spans"]} == {
        "exported",
        "lost",
    }
    assert sink.resources[0]["service.name"] == "shop-broker"


async def test_disabled_by_the_environment(
    sink: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with BrokerServer(_config(sink, http=False, traces=True)) as server:
        assert server.broker.shared.tracer is None
