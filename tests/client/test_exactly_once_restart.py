"""Exactly once through restarts of a broker that has a store (AMQP 1.0 §2.6.13, §3.5.5)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, Unsettled
from ferrymq_broker.config import Config, Listener, Store
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import Accepted, TerminusDurability
from tests.client.cutter import Cutter

POLICY = ReconnectPolicy(initial=0.01, maximum=0.05)


def config(path: Path) -> Config:
    return Config.model_validate(
        {
            "listener": [Listener(url="amqp://127.0.0.1:0")],
            "store": Store(path=path, segment_bytes=65536),
        }
    )


def port(server: BrokerServer) -> int:
    return int(server.url.rsplit(":", 1)[1])


def left(server: BrokerServer) -> int:
    queue = server.broker.default.nodes["q"]
    assert isinstance(queue, Queue)
    return queue.message_count()


@pytest.mark.spec("2.6.13", "3.5.5", "3.5.6")
async def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    count = 300
    accepting: list[asyncio.Task[None]] = []
    got: list[int] = []
    async with Cutter(0, []) as cutter, asyncio.timeout(50):
        server = await BrokerServer(config(tmp_path)).__aenter__()
        cutter.port = port(server)
        connection = await ferrymq.connect(cutter.url, container_id="me", reconnect=POLICY)
        try:
            sender = await connection.sender("q", name="out", exactly_once=True)
            receiver = await connection.receiver("q", name="in", exactly_once=True, credit=20)
            assert sender.target is not None and receiver.source is not None
            assert sender.target.durable is TerminusDurability.UNSETTLED_STATE
            assert receiver.source.durable is TerminusDurability.UNSETTLED_STATE
            progress = asyncio.Event()

            async def send() -> None:
                slots = asyncio.Semaphore(30)

                async def one(number: int) -> None:
                    async with slots:
                        await sender.send(Message(number, durable=True))

                await asyncio.gather(*(one(number) for number in range(count)))

            async def receive() -> None:
                while len(got) < count:
                    delivery = await receiver.receive()
                    number = delivery.message.body
                    assert isinstance(number, int)
                    got.append(number)
                    accepting.append(asyncio.create_task(delivery.accept()))
                    progress.set()
                await asyncio.gather(*accepting)

            work = asyncio.gather(send(), receive())
            for stop in (20, 120, 220):
                while len(got) < stop and not work.done():
                    progress.clear()
                    await progress.wait()
                await server.__aexit__(None, None, None)
                server = await BrokerServer(config(tmp_path)).__aenter__()
                cutter.port = port(server)
            await work
            assert sorted(got) == list(range(count))
            while left(server):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert cutter.connections >= 4
        finally:
            await connection.close()
            await server.__aexit__(None, None, None)


@pytest.mark.spec("2.6.13", "3.5.5")
async def test_both_die_and_what_was_written_down_is_still_good(tmp_path: Path) -> None:
    notes = [Unsettled(b"order-%d" % n, Message(n, durable=True).encode()) for n in range(6)]
    async with (
        BrokerServer(config(tmp_path)) as server,
        ferrymq.connect(server.url, container_id="me") as connection,
    ):
        sender = await connection.sender("q", name="out", exactly_once=True)
        for note in notes[:4]:
            await sender.send(Message.decode(note.payload), delivery_tag=note.tag, hold=True)
        receiver = await connection.receiver("q", name="in", exactly_once=True)
        taken = [await receiver.receive(timeout=20) for _ in range(4)]
        connection.transport.abort()
    decided = [Unsettled(taken[0].tag, state=Accepted())]
    for attempt in range(2):
        async with (
            BrokerServer(config(tmp_path)) as server,
            ferrymq.connect(server.url, container_id="me") as connection,
        ):
            sender = await connection.sender("q", name="out", exactly_once=True, unsettled=notes)
            assert await sender.resumed(timeout=20) == {note.tag: None for note in notes}
            receiver = await connection.receiver(
                "q", name="in", exactly_once=True, unsettled=decided
            )
            assert await receiver.resumed(timeout=20) == {taken[0].tag: None}
            found = [await receiver.receive(timeout=20) for _ in range(5)]
            assert sorted(d.message.body for d in found) == [1, 2, 3, 4, 5]
            assert receiver.queued == 0
            if attempt:
                for note in notes:
                    sender.settle(note.tag)
                await asyncio.gather(*(d.accept(timeout=20) for d in found))
                assert left(server) == 0
            connection.transport.abort()
