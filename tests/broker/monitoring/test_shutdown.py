"""The end of a broker: ready no more, outcomes waited for, connections closed."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

import ferrymq
from ferrymq import ConnectionClosed, Message
from ferrymq_broker.config.model import Config, Http, Listener, Shutdown
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer

LOCAL = Listener(url="amqp://127.0.0.1:0")


def broker(drain: float, http: str | None = None) -> BrokerServer:
    """A broker that waits so many seconds for outcomes."""
    return BrokerServer(
        Config(listener=[LOCAL], shutdown=Shutdown(drain_timeout=drain), http=Http(url=http))
    )


async def test_a_message_in_hand_can_be_settled() -> None:
    async with broker(60) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        receiver = await connection.receiver("q", credit=1)
        await sender.send(Message(body="one"))
        await sender.send(Message(body="two"))
        delivery = await receiver.receive(timeout=10)
        closing = asyncio.create_task(server.close())
        # The broker closes once this has its outcome: nothing else would end the wait.
        await delivery.accept()
        queue = server.broker.default.find("q")
        assert isinstance(queue, Queue)
        with pytest.raises(ConnectionClosed, match="amqp:connection:forced"):
            await connection.wait_closed(timeout=10)
        await closing
        assert queue.describe()["accepted"] == 1


async def test_nothing_more_is_sent_while_outcomes_are_waited_for() -> None:
    async with broker(60) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        receiver = await connection.receiver("q", credit=1)
        await sender.send(Message(body="one"))
        delivery = await receiver.receive(timeout=10)
        closing = asyncio.create_task(server.close())
        await sender.send(Message(body="two"))
        receiver.add_credit(10)
        await delivery.accept()
        with pytest.raises(ConnectionClosed):
            await receiver.receive(timeout=10)
        await closing


async def test_a_client_that_keeps_its_messages_is_waited_for_no_longer_than_that() -> None:
    async with broker(0.01) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        receiver = await connection.receiver("q", credit=1)
        await sender.send(Message(body="one"))
        await receiver.receive(timeout=10)
        await server.close()
        with pytest.raises(ConnectionClosed, match="amqp:connection:forced"):
            await connection.wait_closed(timeout=10)


async def test_told_twice_it_waits_no_more() -> None:
    async with broker(3600) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        receiver = await connection.receiver("q", credit=1)
        await sender.send(Message(body="one"))
        await receiver.receive(timeout=10)
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0)
        server.hurry()
        await closing


async def test_it_is_ready_when_it_listens_and_not_when_it_ends() -> None:
    async with broker(3600, "http://127.0.0.1:0") as server:
        assert server.monitoring is not None
        url = server.monitoring.url + "/readyz"
        async with (
            aiohttp.ClientSession() as session,
            ferrymq.connect(server.url) as connection,
        ):
            async with session.get(url) as response:
                assert response.status == 200
            sender = await connection.sender("q")
            receiver = await connection.receiver("q", credit=1)
            await sender.send(Message(body="one"))
            delivery = await receiver.receive(timeout=10)
            closing = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            async with session.get(url) as response:
                assert response.status == 503
                assert "shutting down" in await response.text()
            await delivery.accept()
        await closing


async def test_bytes_are_counted() -> None:
    async with broker(1) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        await sender.send(Message(body=b"x" * 10_000))
        counters = server.broker.counters
        assert counters.bytes_received > 10_000
        assert 100 < counters.bytes_sent < 10_000
        assert counters.connections_opened == 1
