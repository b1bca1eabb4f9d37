"""What `send` takes, and the errors of `send_nowait` that nobody looks at."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.aio import unseen
from ferrymq.engine import events
from ferrymq_types.messaging import Rejected
from ferrymq_types.transport import Error
from tests.client.peer import Peer

pytestmark = pytest.mark.usefixtures("few_objects")

BODIES: list[tuple[Any, object]] = [
    (b"one", b"one"),
    (bytearray(b"two"), b"two"),
    (memoryview(b"three"), b"three"),
    ("four", "four"),
    ({"five": 5}, {"five": 5}),
    ([6, "six"], [6, "six"]),
    (Message(7), 7),
]
WRONG: list[Any] = [8, None, 9.5, ("ten",), {11}, object(), Exception("no")]


def text(call: str, value: object) -> str:
    return f"^{call} takes a Message, bytes, str, dict or list, not {type(value).__name__}$"


def received(peer: Peer) -> list[object]:
    return [message.body for message in peer.received["orders"]]


class TestConversions:
    @pytest.mark.parametrize("settled", [False, True])
    async def test_values_become_bodies(
        self, peer: Peer, connection: ferrymq.Connection, settled: bool
    ) -> None:
        sender = await connection.sender("orders")
        for value, _ in BODIES:
            await sender.send(value, settled=settled)
            await sender.ready()
            await sender.send_nowait(value, settled=settled)
        await sender.send_many([value for value, _ in BODIES], settled=settled)
        await connection.session()
        bodies = [body for _, body in BODIES]
        assert received(peer) == [body for body in bodies for _ in range(2)] + bodies

    @pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
    async def test_other_values_are_named(
        self, peer: Peer, connection: ferrymq.Connection, value: Any
    ) -> None:
        sender = await connection.sender("orders")
        await sender.ready()
        for settled in (False, True):
            with pytest.raises(TypeError, match=text("send", value)):
                await sender.send(value, settled=settled)
            with pytest.raises(TypeError, match=text("send_nowait", value)):
                sender.send_nowait(value, settled=settled)
            with pytest.raises(TypeError, match=text("send_many", value)):
                await sender.send_many([value], settled=settled)
        await connection.session()
        assert received(peer) == []

    @pytest.mark.parametrize("value", ["text", b"bytes", {"a": 1}, Message(1)])
    async def test_one_message_is_not_many(
        self, peer: Peer, connection: ferrymq.Connection, value: Any
    ) -> None:
        sender = await connection.sender("orders")
        with pytest.raises(TypeError, match="send_many takes an iterable of messages, not a"):
            await sender.send_many(value)
        await connection.session()
        assert received(peer) == []

    async def test_in_the_blocking_client(self, peer: Peer) -> None:
        def work() -> None:
            with blocking.connect(peer.url) as connection:
                sender = connection.sender("orders")
                for value, _ in BODIES:
                    sender.send(value)
                    sender.ready()
                    sender.send_nowait(value).result(10)
                sender.send_many(value for value, _ in BODIES)
                calls: list[Callable[[Any], object]] = [
                    sender.send,
                    sender.send_nowait,
                    lambda value: sender.send_many([value]),
                ]
                for call in calls:
                    with pytest.raises(TypeError, match="takes a Message, bytes, str, dict or l"):
                        call(8)
                with pytest.raises(TypeError, match="not a single str: use send"):
                    sender.send_many("text")

        await asyncio.to_thread(work)
        bodies = [body for _, body in BODIES]
        assert received(peer) == [body for body in bodies for _ in range(2)] + bodies


@pytest.fixture
def full(peer: Peer) -> Peer:
    """A peer that rejects every message."""
    error = Error(condition="amqp:resource-limit-exceeded", description="full")

    def reject(_: object, event: events.DeliveryReceived) -> None:
        event.delivery.settle(Rejected(error=error))
        event.link.set_credit(100)

    peer.on[events.DeliveryReceived] = reject
    return peer


LINE = "{} to 'orders' not accepted, and nobody looked at the future of send_nowait; the first: "


class TestUnseen:
    async def test_errors_end_in_one_line(
        self, full: Peer, caplog: pytest.LogCaptureFixture
    ) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        with caplog.at_level(logging.WARNING, "ferrymq"):
            async with ferrymq.connect(full.url) as connection:
                sender = await connection.sender("orders")
                for number in range(500):
                    await sender.ready()
                    sender.send_nowait(Message(number))
                await connection.session()
                gc.collect()
                assert len(caplog.messages) == 1
            # The rest is told when the link ends.
            lines = caplog.messages
        assert len(lines) == 2
        assert lines[-1].startswith(LINE.format("500 messages") + "DeliveryRejected: ")
        assert lines[-1].endswith("full")
        assert told == []

    async def test_errors_that_are_looked_at_are_not_told(
        self, full: Peer, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "ferrymq"):
            async with ferrymq.connect(full.url) as connection:
                sender = await connection.sender("orders")
                await sender.ready()
                awaited, asked = sender.send_nowait(b"1"), sender.send_nowait(b"2")
                gathered = sender.send_nowait(b"3")
                with pytest.raises(ferrymq.DeliveryRejected):
                    await awaited
                await asyncio.wait([asked])
                assert isinstance(asked.exception(), ferrymq.DeliveryRejected)
                await asyncio.gather(gathered, return_exceptions=True)
                del awaited, asked, gathered
                gc.collect()
        assert caplog.messages == []

    async def test_a_loss_is_told(self, peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
        peer.on[events.DeliveryReceived] = lambda *_: None
        with caplog.at_level(logging.WARNING, "ferrymq"):
            async with ferrymq.connect(peer.url) as connection:
                sender = await connection.sender("orders")
                await sender.ready()
                sender.send_nowait(b"1")
                sender.send_nowait(b"2")
            await asyncio.sleep(0)
        [line] = caplog.messages
        assert line.startswith(LINE.format("2 messages") + "ConnectionClosed: ")

    async def test_futures_that_outlive_the_connection(
        self, full: Peer, caplog: pytest.LogCaptureFixture
    ) -> None:
        def work() -> list[Future[None]]:
            with blocking.connect(full.url) as connection:
                sender = connection.sender("orders")
                futures = []
                for number in range(50):
                    sender.ready()
                    futures.append(sender.send_nowait(Message(number)))
                with pytest.raises(ferrymq.DeliveryRejected):
                    futures[0].result(10)
                assert isinstance(futures[1].exception(10), ferrymq.DeliveryRejected)
                with pytest.raises(ferrymq.DeliveryRejected):
                    futures[49].result(10)
            return futures

        with caplog.at_level(logging.WARNING, "ferrymq"):
            futures = await asyncio.to_thread(work)
            assert caplog.messages == []
            futures.clear()
        # The loop is closed: the line cannot come again later.
        [line] = caplog.messages
        assert line.startswith(LINE.format("1 message"))

    async def test_in_the_blocking_client(
        self, full: Peer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unseen, "INTERVAL", 0.001)

        def work() -> None:
            with blocking.connect(full.url) as connection:
                sender = connection.sender("orders")
                for number in range(50):
                    sender.ready(timeout=10)
                    sender.send_nowait(Message(number))
                with pytest.raises(ferrymq.DeliveryRejected):
                    sender.send(Message("last"))

        with caplog.at_level(logging.WARNING, "ferrymq"):
            await asyncio.to_thread(work)
        assert caplog.messages[-1].startswith(LINE.format("50 messages"))
