"""Spans of the clients, and one trace from a client through a broker to another client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import ferrymq
import ferrymq.blocking
from ferrymq import Message
from ferrymq.opentelemetry import processing
from ferrymq_broker.config.model import Config
from ferrymq_broker.server.server import BrokerServer
from tests.support.otlp import Collector, collector

pytestmark = pytest.mark.page("client/opentelemetry", "broker/opentelemetry")


@pytest.fixture
def sink() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture
def tracer(sink: Collector) -> Iterator[trace.Tracer]:
    """A tracer of an application that exports to the same collector as the broker."""
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    exporter = OTLPSpanExporter(endpoint=f"{sink.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("tests")
    provider.shutdown()


def _server(sink: Collector, store: Path) -> BrokerServer:
    return BrokerServer(
        Config.model_validate(
            {
                "listener": [{"url": "amqp://127.0.0.1:0"}],
                "store": {"path": str(store)},
                "queue": [{"name": "orders", "max-length": 10}],
                "opentelemetry": {"traces": True, "endpoint": sink.url},
            }
        )
    )


async def test_one_trace(sink: Collector, tracer: trace.Tracer, tmp_path: Path) -> None:
    async with (
        _server(sink, tmp_path / "store") as server,
        ferrymq.connect(server.url, tracer=tracer) as connection,
    ):
        with tracer.start_as_current_span("order"):
            message = Message("x", durable=True, message_id="m-1")
            await (await connection.sender("orders")).send(message)
        assert not message.application_properties
        delivery = await (await connection.receiver("orders")).receive()
        with processing(delivery):
            await delivery.accept()
    order = sink.named("order")
    assert {span.trace_id for span in sink.spans} == {order.trace_id}
    by_name = {span.name: span for span in sink.spans}
    assert sorted(by_name) == [
        "accept orders",
        "deliver orders",
        "order",
        "process orders",
        "publish orders",
        "receive orders",
        "send orders",
        "settle orders",
        "store orders",
    ]
    send = by_name["send orders"]
    assert (send.parent_id, send.kind) == (order.span_id, "PRODUCER")
    for name in ("publish orders", "deliver orders", "receive orders", "process orders"):
        assert by_name[name].parent_id == send.span_id, name
    process = by_name["process orders"]
    for name in ("receive orders", "process orders"):
        assert by_name[name].links == [(send.trace_id, send.span_id)]
        assert by_name[name].kind == "CONSUMER"
    assert by_name["accept orders"].parent_id == process.span_id
    assert {span.service for span in sink.spans} == {"shop", "ferrymq"}
    about = send.attributes
    assert about["messaging.operation.type"] == "send"
    assert about["messaging.destination.name"] == "orders"
    assert about["messaging.message.id"] == "m-1"
    assert about["server.port"] == server.port


def test_the_blocking_client(sink: Collector, tracer: trace.Tracer, tmp_path: Path) -> None:
    def talk(url: str) -> None:
        with ferrymq.blocking.connect(url, tracer=tracer) as connection:
            with tracer.start_as_current_span("order"):
                connection.sender("orders").send("x")
            delivery = connection.receiver("orders").receive(timeout=20)
            with processing(delivery):
                delivery.accept()

    async def run() -> None:
        async with _server(sink, tmp_path / "store") as server:
            await asyncio.to_thread(talk, server.url)

    asyncio.run(run())
    assert sink.named("send orders").parent_id == sink.named("order").span_id
    assert sink.named("accept orders").parent_id == sink.named("process orders").span_id
    assert {span.trace_id for span in sink.spans} == {sink.named("order").trace_id}


async def test_many_messages(sink: Collector, tracer: trace.Tracer, tmp_path: Path) -> None:
    async with (
        _server(sink, tmp_path / "store") as server,
        ferrymq.connect(server.url, tracer=tracer) as connection,
    ):
        sender = await connection.sender("orders")
        await sender.send_many(["a", "b"])
        await sender.ready()
        await sender.send_nowait("c")
        receiver = await connection.receiver("orders")
        for _ in range(3):
            async with await receiver.receive():
                pass
    creates = [span for span in sink.spans if span.name == "create orders"]
    many = sink.spans[[span.name for span in sink.spans].index("create orders") + 2 :]
    batch = next(span for span in many if span.name == "send orders" and span.kind == "CLIENT")
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert [span.parent_id for span in creates] == [batch.span_id] * 2
    delivers = [span for span in sink.spans if span.name == "deliver orders"]
    assert {span.parent_id for span in delivers} > {span.span_id for span in creates}


async def test_a_worker(sink: Collector, tracer: trace.Tracer, tmp_path: Path) -> None:
    async def handle(delivery: ferrymq.Delivery) -> None:
        with tracer.start_as_current_span("work"):
            worker.stop()

    async with (
        _server(sink, tmp_path / "store") as server,
        ferrymq.connect(server.url, tracer=tracer) as connection,
    ):
        await (await connection.sender("orders")).send("x")
        worker = ferrymq.Worker(connection, "orders", handle)
        await worker.run()
    send = sink.named("send orders")
    assert sink.named("process orders").links == [(send.trace_id, send.span_id)]
    assert sink.named("work").parent_id == sink.named("process orders").span_id
    assert {span.trace_id for span in sink.spans} == {send.trace_id}


async def test_a_failed_send(sink: Collector, tracer: trace.Tracer, tmp_path: Path) -> None:
    async with (
        _server(sink, tmp_path / "store") as server,
        ferrymq.connect(server.url, tracer=tracer) as connection,
    ):
        sender = await connection.sender(None)
        for _ in range(10):
            await sender.send(Message("x", to="orders"))
        with pytest.raises(ferrymq.DeliveryRejected):
            await sender.send(Message("x", to="orders"))
    (failed,) = [span for span in sink.spans if span.name == "send" and span.failed]
    assert failed.attributes["error.type"] == "amqp:resource-limit-exceeded"


async def test_a_context_of_the_application_stays(
    sink: Collector, tracer: trace.Tracer, tmp_path: Path
) -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with (
        _server(sink, tmp_path / "store") as server,
        ferrymq.connect(server.url, tracer=tracer) as connection,
    ):
        message = Message("x", application_properties={"traceparent": given})
        await (await connection.sender("orders")).send(message)
        delivery = await (await connection.receiver("orders")).receive()
        await delivery.accept()
    assert delivery.message.application_properties["traceparent"] == given
    linked = [(given.split("-")[1], given.split("-")[2])]
    assert sink.named("send orders").links == linked
    assert sink.named("receive orders").links == linked


async def test_sampling_off(sink: Collector, tmp_path: Path) -> None:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    seen: list[Any] = []
    async with (
        _server(sink, tmp_path / "store") as server,
        ferrymq.connect(server.url, tracer=provider.get_tracer("tests")) as connection,
    ):
        await (await connection.sender("orders")).send("x")
        delivery = await (await connection.receiver("orders")).receive()
        await delivery.accept()
        seen.append(delivery.message.application_properties["traceparent"])
    # The other flags are the sender's.
    assert int(seen[0][-2:], 16) & 1 == 0
    assert sink.names() == []
