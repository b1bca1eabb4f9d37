"""Exactly once while the broker moves from one URL to another and back (AMQP 1.0 §2.6.13).

Two broker processes have one store. The one that runs is killed, and the other takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy
from tests.interop.broker_process import BrokerProcess
from tests.interop.brokers.process import free_ports

POLICY = ReconnectPolicy(initial=0.01, maximum=0.05)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    config = f'[store]\npath = "{tmp_path / "store"}"\n'
    brokers = [BrokerProcess(config), BrokerProcess(config)]
    for broker, port in zip(brokers, free_ports(2), strict=True):
        broker.port = port
    brokers[0].start()
    yield brokers
    for broker in brokers:
        broker.__exit__()


@pytest.mark.spec("2.6.13", "3.5.5", "3.5.6")
async def test_nothing_is_lost_and_nothing_comes_twice(pair: list[BrokerProcess]) -> None:
    count = 200
    got: list[object] = []
    progress = asyncio.Event()
    urls = [broker.url for broker in pair]
    async with (
        asyncio.timeout(100),
        ferrymq.connect(urls, container_id="me", reconnect=POLICY) as connection,
    ):
        sender = await connection.sender("q", name="out", exactly_once=True)
        receiver = await connection.receiver("q", name="in", exactly_once=True, credit=20)

        async def send() -> None:
            slots = asyncio.Semaphore(30)

            async def one(number: int) -> None:
                async with slots:
                    await sender.send(Message(number, durable=True))

            await asyncio.gather(*(one(number) for number in range(count)))

        async def receive() -> None:
            accepting = []
            while len(got) < count:
                delivery = await receiver.receive()
                got.append(delivery.message.body)
                accepting.append(asyncio.create_task(delivery.accept()))
                progress.set()
            await asyncio.gather(*accepting)

        work = asyncio.gather(send(), receive())
        running, other = pair
        for move in (20, 80, 150):
            while len(got) < move and not work.done():
                progress.clear()
                await progress.wait()
            running.kill()
            await asyncio.to_thread(other.start)
            running, other = other, running
        await work
        assert str(connection.url) == running.url
        async with connection.management() as management:
            assert (await management.read("queue", "q"))["messages"] == 0
    assert sorted(map(int, map(str, got))) == list(range(count))
