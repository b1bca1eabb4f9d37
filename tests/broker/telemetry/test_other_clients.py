"""Spans of messages whose clients nobody here wrote: the context was put into them by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrymq_broker.config.model import Config
from ferrymq_broker.server.server import BrokerServer
from tests.support.otlp import Collector, collector

pytestmark = [pytest.mark.page("broker/opentelemetry"), pytest.mark.interop]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def sink() -> Iterator[Collector]:
    with collector() as made:
        yield made


def _config(
    sink: Collector, store: Path, scheme: str, *, personality: str = "", **more: Any
) -> Config:
    return Config.model_validate(
        {
            "listener": [{"url": f"{scheme}://127.0.0.1:0"}],
            "store": {"path": str(store)},
            "queue": [{"name": "orders"}],
            "personality": {"name": personality},
            "opentelemetry": {"traces": True, "endpoint": sink.url} | more,
        }
    )


async def test_proton(sink: Collector, tmp_path: Path) -> None:
    proton = pytest.importorskip("proton")
    utils = pytest.importorskip("proton.utils")

    def talk(url: str) -> None:
        connection = utils.BlockingConnection(url, timeout=20)
        sender = connection.create_sender("orders")
        message = proton.Message("x", durable=True, properties={"traceparent": TRACEPARENT})
        sender.send(message)
        receiver = connection.create_receiver("orders")
        assert receiver.receive(timeout=20).properties["traceparent"] == TRACEPARENT
        receiver.accept()
        connection.close()

    async with BrokerServer(_config(sink, tmp_path / "store", "amqp")) as server:
        await asyncio.to_thread(talk, server.url)
    assert sink.names() == ["deliver orders", "publish orders", "settle orders", "store orders"]
    assert {span.trace_id for span in sink.spans} == {TRACE}


@pytest.mark.parametrize("get", [False, True])
async def test_pika(sink: Collector, tmp_path: Path, get: bool) -> None:
    pika = pytest.importorskip("pika")

    def talk(port: int) -> None:
        credentials = pika.PlainCredentials("guest", "guest")
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, credentials=credentials)
        )
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            delivery_mode=2, headers={"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
        )
        channel.basic_publish("", "orders", b"x", properties)
        if get:
            method, received, _ = channel.basic_get("orders")
        else:
            method, received, _ = next(iter(channel.consume("orders", inactivity_timeout=20)))
        assert received.headers["traceparent"] == TRACEPARENT
        channel.basic_ack(method.delivery_tag)
        connection.close()

    config = _config(sink, tmp_path / "store", "any", personality="rabbitmq")
    async with BrokerServer(config) as server:
        await asyncio.to_thread(talk, server.port)
    assert sink.names() == ["deliver orders", "publish orders", "settle orders", "store orders"]
    assert {span.trace_id for span in sink.spans} == {TRACE}
    assert {span.state for span in sink.spans} == {"vendor=1"}
    assert sink.named("publish orders").attributes["network.protocol.version"] == "0-9-1"
    assert sink.named("publish orders").attributes["ferrymq.outcome"] == "accepted"
    assert sink.named("settle orders").parent_id == sink.named("deliver orders").span_id
    assert sink.named("settle orders").attributes["ferrymq.outcome"] == "accepted"


async def test_a_channel_that_ends_with_a_message(sink: Collector, tmp_path: Path) -> None:
    pika = pytest.importorskip("pika")

    def talk(port: int) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        channel = connection.channel()
        properties = pika.BasicProperties(headers={"traceparent": TRACEPARENT})
        channel.basic_publish("", "orders", b"x", properties)
        channel.basic_get("orders")
        channel.close()
        method, _, _ = connection.channel().basic_get("orders", auto_ack=True)
        assert method.redelivered
        connection.close()

    config = _config(sink, tmp_path / "store", "any", personality="rabbitmq")
    async with BrokerServer(config) as server:
        await asyncio.to_thread(talk, server.port)
    assert sink.names() == ["deliver orders", "deliver orders", "publish orders"]
    assert not any("ferrymq.outcome" in span.attributes for span in sink.spans)


async def test_pika_without_a_context(sink: Collector, tmp_path: Path) -> None:
    pika = pytest.importorskip("pika")

    def talk(port: int) -> str:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        channel = connection.channel()
        channel.basic_publish("", "orders", b"x")
        channel.basic_publish("amq.topic", "nowhere", b"x")
        _, properties, _ = channel.basic_get("orders", auto_ack=True)
        connection.close()
        return str(properties.headers["traceparent"])

    config = _config(
        sink, tmp_path / "store", "any", personality="rabbitmq", **{"sampling-ratio": 1.0}
    )
    async with BrokerServer(config) as server:
        context = await asyncio.to_thread(talk, server.port)
    assert sink.names() == ["deliver orders", "publish amq.topic", "publish orders"]
    assert sink.named("deliver orders").trace_id == context.split("-")[1]
