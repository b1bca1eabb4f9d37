"""TRACE: the frames of a connection, while they pass."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import ferrymq
from ferrymq import ManagementClient, Message
from ferrymq.errors import ManagementError
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.management.operation import Call
from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.management.traces import (
    MOST_HELD,
    MOST_TRACES,
    PATIENCE,
    RECEIVED,
    ConnectionTraces,
    FrameTap,
)
from ferrymq_broker.server import BrokerServer


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    async with BrokerServer(Config(listener=[Listener(url="amqp://127.0.0.1:0")])) as server:
        yield server


async def traced(manager: ManagementClient, connection: str, **more: object) -> dict[str, Any]:
    return (await manager.request("TRACE", "connection", connection, dict(more))).map()


async def test_the_frames_of_a_connection_that_is_open_already(server: BrokerServer) -> None:
    async with (
        ferrymq.connect(server.url) as watched,
        ferrymq.connect(server.url) as watcher,
        watcher.management() as manager,
    ):
        begun = await traced(manager, "1")
        assert begun["lines"] == [] and begun["dropped"] == 0
        async with watched.sender("orders", name="in") as sender:
            await sender.send(Message(body=b"secret", subject="new"))
        text = "\n".join((await traced(manager, "1", trace=begun["trace"]))["lines"])
        assert "-> [0] attach(name='in'" in text
        assert "-> [0] transfer(" in text and "properties(subject='new')" in text
        assert "<- [0] disposition(" in text
        # Of a body only the size.
        assert "data(bytes=6)" in text and "secret" not in text
        assert (await traced(manager, "1", trace=begun["trace"]))["lines"] == []


async def test_tokens_are_not_shown(server: BrokerServer) -> None:
    async with (
        ferrymq.connect(server.url) as watched,
        ferrymq.connect(server.url) as watcher,
        watcher.management() as manager,
        watched.sender("orders") as sender,
    ):
        begun = await traced(manager, "1")
        token = {"operation": "put-token", "type": "jwt", "password": "hunter2"}
        await sender.send(Message(body="eyJhbGciOi.TOKEN", application_properties=token))
        text = "\n".join((await traced(manager, "1", trace=begun["trace"]))["lines"])
        assert "transfer(" in text and "TOKEN" not in text and "hunter2" not in text


async def test_what_cannot_be_traced(server: BrokerServer) -> None:
    async with ferrymq.connect(server.url) as watcher, watcher.management() as manager:
        for connection, arguments, status in (
            ("99", {}, 404),
            ("1", {"trace": "none"}, 404),
            ("1", {"full": True}, 400),
        ):
            with pytest.raises(ManagementError) as refused:
                await traced(manager, connection, **arguments)
            assert refused.value.status == status
        for _ in range(MOST_TRACES):
            await traced(manager, "1")
        with pytest.raises(ManagementError, match="4 traces already"):
            await traced(manager, "1")


class Connections:
    """Connections that note their taps."""

    def __init__(self) -> None:
        self.taps: list[FrameTap] = []

    def tap(self, connection: int, tap: FrameTap) -> bool:
        self.taps.append(tap)
        return connection != 9

    def untap(self, connection: int, tap: FrameTap) -> None:
        self.taps.remove(tap)


def asking(party: Any, **arguments: object) -> Call:
    return Call(party, "1", dict(arguments))


def test_a_trace_is_bounded_in_bytes_and_time() -> None:
    now = [1000.0]
    connections = Connections()
    traces = ConnectionTraces(connections, lambda: now[0])
    begun = finish(traces.trace(asking(None), 1)).body
    assert isinstance(begun, dict)
    (tap,) = connections.taps
    tap.add(RECEIVED, b"\0" * MOST_HELD)
    tap.add(RECEIVED, b"\0" * 100)
    again = finish(traces.trace(asking(None, trace=begun["trace"]), 1)).body
    assert isinstance(again, dict) and again["dropped"] == 100
    # The trace of one connection does not show another one.
    with pytest.raises(ManagementError):
        finish(traces.trace(asking(None, trace=begun["trace"]), 2))
    with pytest.raises(ManagementError, match=r"AMQP 1\.0"):
        finish(traces.trace(asking(None), 9))
    del connections.taps[1:]
    now[0] += PATIENCE + 1
    tap.add(RECEIVED, b"\0" * 100)
    assert tap.dropped == 100
    with pytest.raises(ManagementError, match="has ended"):
        finish(traces.trace(asking(None, trace=begun["trace"]), 1))
    finish(traces.trace(asking(None), 1))
    assert tap not in connections.taps
