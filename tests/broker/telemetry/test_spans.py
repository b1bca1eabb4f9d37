"""Spans of messages, as a collector gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq_broker.config.model import Config
from ferrymq_broker.server.server import BrokerServer
from tests.support.otlp import Collector, collector

pytestmark = pytest.mark.page("broker/opentelemetry")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


@pytest.fixture
def sink() -> Iterator[Collector]:
    with collector() as made:
        yield made


def _config(
    sink: Collector, *, store: Path | None = None, queue: dict[str, Any] | None = None, **more: Any
) -> Config:
    settings: dict[str, Any] = {
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "opentelemetry": {"traces": True, "endpoint": sink.url} | more,
        "queue": [
            {"name": "orders", "dead-letter": "dead"} | (queue or {}),
            {"name": "dead"},
        ],
    }
    if store is not None:
        settings["store"] = {"path": str(store)}
    return Config.model_validate(settings)


def _message(sampled: bool = True, **more: Any) -> Message:
    properties = {
        "traceparent": f"00-{TRACE}-{PARENT}-{'01' if sampled else '00'}",
        "tracestate": "vendor=1",
    }
    return Message(b"x", application_properties=properties, **more)


async def test_the_way_of_a_stored_message(sink: Collector, tmp_path: Path) -> None:
    async with (
        BrokerServer(_config(sink, store=tmp_path / "store")) as server,
        ferrymq.connect(server.url) as connection,
    ):
        await (await connection.sender("orders")).send(_message(durable=True))
        delivery = await (await connection.receiver("orders")).receive()
        await delivery.accept()
    names = ["deliver orders", "publish orders", "settle orders", "store orders"]
    assert sink.names() == names
    publish, store, deliver, settle = (
        sink.named(f"{what} orders") for what in ("publish", "store", "deliver", "settle")
    )
    assert {span.trace_id for span in sink.spans} == {TRACE}
    assert {span.state for span in sink.spans} == {"vendor=1"}
    assert {span.service for span in sink.spans} == {"ferrymq"}
    assert (publish.parent_id, deliver.parent_id) == (PARENT, PARENT)
    assert (store.parent_id, settle.parent_id) == (publish.span_id, deliver.span_id)
    assert publish.begun <= publish.ended <= deliver.begun <= settle.begun <= deliver.ended
    assert publish.begun == store.begun <= store.ended <= deliver.begun
    assert [publish.kind, store.kind, deliver.kind] == ["SERVER", "INTERNAL", "SERVER"]
    assert settle.attributes["ferrymq.outcome"] == "accepted"
    assert publish.attributes["messaging.system"] == "ferrymq"
    assert publish.attributes["messaging.destination.name"] == "orders"
    assert publish.attributes["messaging.operation.name"] == "publish"
    assert publish.attributes["messaging.operation.type"] == "send"
    assert publish.attributes["network.protocol.version"] == "1.0"


async def test_messages_that_are_not_sampled(sink: Collector) -> None:
    async with (
        BrokerServer(_config(sink)) as server,
        ferrymq.connect(server.url) as connection,
    ):
        sender = await connection.sender("orders")
        await sender.send(_message(sampled=False))
        await sender.send(Message(b"without a context"))
        await sender.send(Message(b"x", application_properties={"traceparent": "nonsense"}))
        receiver = await connection.receiver("orders")
        for _ in range(3):
            await (await receiver.receive()).accept()
    assert sink.names() == []


async def test_a_context_of_an_intermediary_counts_first(sink: Collector) -> None:
    other = "a" * 32
    async with (
        BrokerServer(_config(sink)) as server,
        ferrymq.connect(server.url) as connection,
    ):
        annotations = {"traceparent": f"00-{other}-{PARENT}-01"}
        await (await connection.sender("orders")).send(
            _message(sampled=False, message_annotations=annotations)
        )
    assert sink.named("publish orders").trace_id == other


async def test_the_broker_begins_a_trace(sink: Collector) -> None:
    async with (
        BrokerServer(_config(sink, **{"sampling-ratio": 1.0})) as server,
        ferrymq.connect(server.url) as connection,
    ):
        await (await connection.sender("orders")).send(Message("x", subject="kept"))
        delivery = await (await connection.receiver("orders")).receive()
        await delivery.accept()
        message = delivery.message
    assert message.subject == "kept"
    publish = sink.named("publish orders")
    assert message.message_annotations["traceparent"].split("-")[1] == publish.trace_id
    assert {span.trace_id for span in sink.spans} == {publish.trace_id}


async def test_deliveries_that_fail(sink: Collector) -> None:
    async with (
        BrokerServer(_config(sink)) as server,
        ferrymq.connect(server.url) as connection,
    ):
        await (await connection.sender("orders")).send(_message())
        receiver = await connection.receiver("orders")
        await (await receiver.receive(timeout=10)).modify(delivery_failed=True)
        await (await receiver.receive(timeout=10)).reject("app:bad-order")
        dead = await (await connection.receiver("dead")).receive(timeout=10)
        await dead.accept()
    delivers = [span for span in sink.spans if span.name == "deliver orders"]
    failed = [span.attributes.get("ferrymq.failed_deliveries", 0) for span in delivers]
    assert sorted(failed) == [0, 1]
    outcomes = [span.attributes["ferrymq.outcome"] for span in delivers]
    assert sorted(outcomes) == ["modified", "rejected"]
    assert sink.named("deliver dead").trace_id == TRACE


async def test_a_locked_message(sink: Collector) -> None:
    config = _config(sink, queue={"lock-duration": 60})
    async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
        await (await connection.sender("orders")).send(_message())
        await (await (await connection.receiver("orders")).receive()).accept()
    assert sink.names() == ["deliver orders", "publish orders", "settle orders"]
    assert sink.named("settle orders").attributes["ferrymq.outcome"] == "accepted"


async def test_a_link_that_ends_with_messages(sink: Collector) -> None:
    async with BrokerServer(_config(sink)) as server, ferrymq.connect(server.url) as connection:
        await (await connection.sender("orders")).send(_message())
        await (await connection.receiver("orders")).receive()
    deliver = sink.named("deliver orders")
    assert "ferrymq.outcome" not in deliver.attributes
    assert "settle orders" not in sink.names()


async def test_management_shows_such_links_like_others(sink: Collector) -> None:
    async with BrokerServer(_config(sink)) as server, ferrymq.connect(server.url) as connection:
        await (await connection.sender("orders")).send(_message())
        delivery = await (await connection.receiver("orders")).receive()
        async with connection.management() as management:
            answer = await management.request("LIST-LINKS", "queue", "orders", {})
        await delivery.accept()
    found = {link["role"]: (link["unsettled"], link["messages"]) for link in answer.map()["links"]}
    assert found == {"receiver": (1, 1), "sender": (0, 1)}


async def test_a_refused_message(sink: Collector) -> None:
    config = _config(sink, queue={"max-length": 1})
    async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender(None)
        await sender.send(Message(b"fills it", to="orders"))
        with pytest.raises(ferrymq.DeliveryError):
            await sender.send(_message(to="orders"))
    publish = sink.named("publish orders")
    assert publish.failed
    assert publish.attributes["error.type"] == "rejected"


async def test_a_transaction(sink: Collector) -> None:
    async with (
        BrokerServer(_config(sink)) as server,
        ferrymq.connect(server.url) as connection,
        connection.session() as session,
    ):
        sender = await session.sender("orders")
        receiver = await session.receiver("orders")
        async with session.transaction() as transaction:
            await sender.send(_message(), transaction=transaction)
        delivery = await receiver.receive()
        async with session.transaction() as transaction:
            await delivery.accept(transaction=transaction)
    assert sink.names() == ["deliver orders", "publish orders", "settle orders"]


async def test_a_context_outlives_the_broker(sink: Collector, tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with (
        BrokerServer(_config(sink, store=store)) as server,
        ferrymq.connect(server.url) as connection,
    ):
        await (await connection.sender("orders")).send(_message(durable=True))
    async with (
        BrokerServer(_config(sink, store=store)) as server,
        ferrymq.connect(server.url) as connection,
    ):
        await (await (await connection.receiver("orders")).receive()).accept()
    assert sink.named("deliver orders").trace_id == TRACE


async def test_without_a_collector_spans_are_lost_and_messages_are_not(sink: Collector) -> None:
    sink.status = 503
    config = _config(sink, **{"max-spans": 2})
    async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("orders")
        receiver = await connection.receiver("orders")
        for _ in range(20):
            await sender.send(_message())
            await (await receiver.receive()).accept()
        buffer = server.broker.shared.tracer.buffer  # type: ignore[union-attr]
        assert len(buffer) <= 2
        assert buffer.lost > 0
    assert buffer.lost == 60
    assert sink.names() == []


async def test_nothing_is_recorded_by_default() -> None:
    async with BrokerServer(
        Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
    ) as server:
        assert server.broker.shared.tracer is None
        await asyncio.sleep(0)
