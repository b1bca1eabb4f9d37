"""Requests in one line: `connection.request`, against the project's own broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, blocking
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer
from tests.client.cutter import Cutter

POLICY = ReconnectPolicy(initial=0.01, maximum=0.05)


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "nodes": {"auto-create": False},
            "queue": [
                {"name": "prices"},
                {"name": "full", "max-length": 1, "overflow": "reject"},
                *[{"name": f"many.{number}"} for number in range(50)],
            ],
        }
    )
    async with BrokerServer(config) as server:
        yield server


class Service:
    """Answers requests from a queue. `seen` has the bodies of all requests."""

    def __init__(self, connection: ferrymq.Connection, address: str = "prices") -> None:
        self.seen: list[object] = []
        # Requests wait here while it is not set.
        self.open = asyncio.Event()
        self.open.set()
        self.came = asyncio.Event()
        self._connection = connection
        self._address = address

    async def run(self) -> None:
        """Answer until cancelled; the later requests of a bunch first."""
        relay = await self._connection.sender(None)
        receiver = await self._connection.receiver(self._address, credit=500)
        async with asyncio.TaskGroup() as group:
            while True:
                bunch = await receiver.receive_many(100)
                for delivery in bunch:
                    self.seen.append(delivery.message.body)
                    await delivery.accept()
                self.came.set()
                group.create_task(self._answer(relay, [d.message for d in reversed(bunch)]))

    async def _answer(self, relay: ferrymq.Sender, bunch: list[Message]) -> None:
        await self.open.wait()
        for asked in bunch:
            reply = Message(f"re: {asked.body}", to=asked.reply_to, correlation_id=asked.message_id)
            try:
                await relay.send(reply)
            except ferrymq.DeliveryError:
                # Nobody waits any longer.
                pass


@asynccontextmanager
async def serving(broker: BrokerServer, address: str = "prices") -> AsyncIterator[Service]:
    async with ferrymq.connect(broker.url) as connection:
        service = Service(connection, address)
        task = asyncio.create_task(service.run())
        yield service
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_request_in_one_line(broker: BrokerServer) -> None:
    async with serving(broker), ferrymq.connect(broker.url) as connection:
        asked = Message("AAPL", subject="price")
        reply = await connection.request("prices", asked, timeout=20)
        assert reply.body == "re: AAPL"
        # The message itself is as it was.
        assert (asked.message_id, asked.correlation_id, asked.reply_to) == (None, None, None)
        assert (await connection.request("prices", asked)).correlation_id != reply.correlation_id


async def test_a_hundred_at_once_on_one_connection_and_after_a_reconnect(
    broker: BrokerServer,
) -> None:
    async with (
        serving(broker) as service,
        Cutter(int(broker.url.rpartition(":")[2]), []) as cutter,
        ferrymq.connect(cutter.url, reconnect=POLICY) as connection,
    ):
        for turn in range(3):
            replies = await asyncio.gather(
                *[connection.request("prices", Message(f"{turn}.{n}")) for n in range(100)]
            )
            assert [reply.body for reply in replies] == [f"re: {turn}.{n}" for n in range(100)]
            connection.transport.abort()
        assert cutter.connections >= 3
        assert len(service.seen) == 300
        # One link for replies and one for requests, each time.
        (session,) = connection.sessions
        assert len(session.links) == 2


async def test_a_request_whose_reply_was_lost_is_sent_again(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ferrymq")
    async with (
        serving(broker) as service,
        ferrymq.connect(broker.url, reconnect=POLICY) as connection,
    ):
        service.open.clear()
        asking = [
            asyncio.create_task(connection.request("prices", Message(n), timeout=20))
            for n in range(10)
        ]
        async with asyncio.timeout(20):
            while len(service.seen) < 10:
                service.came.clear()
                await service.came.wait()
        connection.transport.abort()
        service.open.set()
        replies = await asyncio.gather(*asking)
        assert [reply.body for reply in replies] == [f"re: {n}" for n in range(10)]
        assert sorted(service.seen, key=str) == sorted([*range(10), *range(10)], key=str)
    [line] = [record.getMessage() for record in caplog.records]
    assert "10 requests had no reply" in line and "may be answered twice" in line


@pytest.mark.parametrize("policy", [False, ReconnectPolicy(initial=0.01, resend=False)])
async def test_without_resend_a_lost_connection_ends_the_request(
    broker: BrokerServer, policy: bool | ReconnectPolicy
) -> None:
    async with (
        serving(broker) as service,
        ferrymq.connect(broker.url, reconnect=policy) as connection,
    ):
        service.open.clear()
        asking = asyncio.create_task(connection.request("prices", Message("once"), timeout=20))
        await service.came.wait()
        connection.transport.abort()
        with pytest.raises(ferrymq.ConnectionClosed):
            await asking
        service.open.set()
        if policy:
            assert (await connection.request("prices", "next")).body == "re: next"
        assert service.seen.count("once") == 1


async def test_no_reply_in_time_names_the_address_and_the_seconds(broker: BrokerServer) -> None:
    async with ferrymq.connect(broker.url) as connection:
        # On a busy machine the shorter times end before the broker has the request.
        for seconds in (0.1, 1, 10):
            with pytest.raises(TimeoutError) as raised:
                await connection.request("prices", Message("x"), timeout=seconds)
            if str(raised.value) == f"no reply came from 'prices' within {seconds:g} s":
                break
        else:
            pytest.fail(str(raised.value))
        with pytest.raises(TimeoutError, match=r"'prices' within 0 s$"):
            await connection.request("prices", Message("x"), timeout=0)
        with pytest.raises(TypeError, match=r"request takes a Message, .* not int$"):
            await connection.request("prices", 5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="is no time"):
            await connection.request("prices", Message("x"), timeout=-1)


async def test_a_refused_request_raises_as_send_does(broker: BrokerServer) -> None:
    async with ferrymq.connect(broker.url) as connection:
        await (await connection.sender("full")).send(Message("first"))
        with pytest.raises(ferrymq.DeliveryRejected, match="resource-limit"):
            await connection.request("full", Message("second"), timeout=20)
        with pytest.raises(ferrymq.LinkDetached, match="not-found"):
            await connection.request("nowhere", Message("x"), timeout=20)
        # The connection and its node for replies go on.
        async with serving(broker):
            assert (await connection.request("prices", Message("x"), timeout=20)).body == "re: x"


async def test_ids_of_the_user_are_kept(broker: BrokerServer) -> None:
    async with ferrymq.connect(broker.url) as connection:
        asked = Message("x", message_id=7, correlation_id="dialogue")
        asking = asyncio.create_task(connection.request("prices", asked, timeout=20))
        receiver = await connection.receiver("prices")
        delivery = await receiver.receive(timeout=20)
        assert (delivery.message.message_id, delivery.message.correlation_id) == (7, "dialogue")
        with pytest.raises(ValueError, match="the message-id 7 waits already"):
            await connection.request("prices", asked, timeout=20)
        # A reply to the dialogue is a reply too.
        relay = await connection.sender(None)
        await relay.send(
            Message("y", to=delivery.message.reply_to, correlation_id="dialogue"), timeout=20
        )
        assert (await asking).body == "y"


async def test_a_malformed_reply_of_one_service_concerns_no_other(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(broker) as service, ferrymq.connect(broker.url) as connection:
        service.open.clear()
        asking = asyncio.create_task(connection.request("prices", Message("x"), timeout=20))
        await service.came.wait()
        replies = connection._requests._replies.address  # type: ignore[union-attr]
        relay = await connection.sender(replies)
        await relay.send_encoded([b"\x00\x53\x77\xff"], timeout=20)
        service.open.set()
        assert (await asking).body == "re: x"
    assert "a reply was rejected" in caplog.text


async def test_links_to_many_addresses_are_closed_again(broker: BrokerServer) -> None:
    async with ferrymq.connect(broker.url) as connection:

        asked = [
            asyncio.ensure_future(connection.request(f"many.{number}", Message(number), timeout=20))
            for number in range(50)
        ]
        nodes = [broker.broker.default.nodes[f"many.{number}"] for number in range(50)]
        queues = [node for node in nodes if isinstance(node, Queue)]
        async with asyncio.timeout(20):
            while not all(queue.message_count() for queue in queues):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        requests = connection._requests
        assert requests is not None and len(requests._links) == 32
        if requests._closing:
            await asyncio.wait(requests._closing)
        (session,) = connection.sessions
        assert len(session.links) == 33


async def test_a_node_for_replies_that_is_gone_is_made_again(broker: BrokerServer) -> None:
    async with serving(broker), ferrymq.connect(broker.url) as connection:
        await connection.request("prices", Message("x"), timeout=20)
        replies = connection._requests._replies  # type: ignore[union-attr]
        assert replies is not None
        await replies.close()
        assert (await connection.request("prices", Message("y"), timeout=20)).body == "re: y"


async def test_the_blocking_client(broker: BrokerServer) -> None:
    def ask() -> object:
        with blocking.connect(broker.url) as connection:
            with pytest.raises(TimeoutError, match=r" came from 'full' within 0\.1 s$"):
                connection.request("full", Message("x"), timeout=0.1)
            return connection.request("prices", Message("x"), timeout=20).body

    async with serving(broker):
        assert await asyncio.to_thread(ask) == "re: x"
