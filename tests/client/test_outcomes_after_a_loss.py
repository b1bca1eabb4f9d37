"""Outcomes of deliveries from before a loss: a plain loop goes on, and no message is lost."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, blocking
from ferrymq.engine import events
from ferrymq_broker.config import Config, Listener, Store
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer
from ferrymq_types.transport import ReceiverSettleMode
from tests.client.cutter import Cutter
from tests.client.peer import Peer

POLICY = ReconnectPolicy(initial=0.01, maximum=0.05)
COUNT = 60


class Broken(Exception):
    """What a handler raises."""


class Restarted:
    """A broker with a store behind a proxy, so that it has one address through its restarts."""

    def __init__(self, path: Path, cutter: Cutter) -> None:
        self._path = path
        self._cutter = cutter
        self._server: BrokerServer | None = None

    @property
    def url(self) -> str:
        return self._cutter.url

    async def start(self) -> None:
        config = Config.model_validate(
            {
                "listener": [Listener(url="amqp://127.0.0.1:0")],
                "store": Store(path=self._path, segment_bytes=65536),
                # The clients of these tests settle nothing while the broker stops.
                "shutdown": {"drain-timeout": 0.05},
            }
        )
        self._server = await BrokerServer(config).__aenter__()
        self._cutter.port = int(self._server.url.rpartition(":")[2])

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.__aexit__(None, None, None)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def emptied(self) -> None:
        """Wait until the queue has no messages."""
        assert self._server is not None
        queue = self._server.broker.default.nodes["orders"]
        assert isinstance(queue, Queue)
        async with asyncio.timeout(10):
            while queue.message_count():  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Restarted]:
    async with Cutter(0, []) as cutter:
        restarted = Restarted(tmp_path, cutter)
        await restarted.start()
        async with ferrymq.connect(restarted.url) as connection:
            sender = await connection.sender("orders")
            await sender.send_many([Message(number, durable=True) for number in range(COUNT)])
        yield restarted
        await restarted.stop()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about outcomes that were dropped."""
    return [r.getMessage() for r in caplog.records if "dropped: the connection" in r.getMessage()]


class TestLoopsSurviveARestart:
    @pytest.mark.parametrize("block", [False, True], ids=["accept", "async with"])
    @pytest.mark.parametrize("credit", [1, 20])
    async def test_with_asyncio(
        self, broker: Restarted, caplog: pytest.LogCaptureFixture, credit: int, block: bool
    ) -> None:
        seen: Counter[object] = Counter()
        async with (
            asyncio.timeout(60),
            ferrymq.connect(broker.url, reconnect=POLICY) as connection,
        ):
            async for delivery in connection.receiver("orders", credit=credit):
                body = delivery.message.body
                seen[body] += 1
                if body in (10, 30) and seen[body] == 1:
                    await broker.restart()
                if block:
                    async with delivery:
                        pass
                else:
                    await delivery.accept()
                if len(seen) == COUNT:
                    break
        assert set(seen) == set(range(COUNT))
        assert seen[10] == seen[30] == 2
        await broker.emptied()
        assert lines(caplog)[0].startswith("1 outcome of deliveries from 'orders' dropped")

    async def test_in_the_blocking_client(
        self, broker: Restarted, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: Counter[object] = Counter()
        loop = asyncio.get_running_loop()

        def work() -> None:
            with blocking.connect(broker.url, reconnect=POLICY) as connection:
                for delivery in connection.receiver("orders", credit=20):
                    body = delivery.message.body
                    seen[body] += 1
                    if body in (10, 30) and seen[body] == 1:
                        asyncio.run_coroutine_threadsafe(broker.restart(), loop).result(30)
                        # The loss may be noticed after the outcome was written.
                        while not delivery.gone:
                            pass
                    if isinstance(body, int) and body % 2:
                        delivery.accept()
                    else:
                        with delivery:
                            pass
                    if len(seen) == COUNT:
                        break

        async with asyncio.timeout(60):
            await asyncio.to_thread(work)
        assert set(seen) == set(range(COUNT))
        assert seen[10] == seen[30] == 2
        await broker.emptied()
        assert len(lines(caplog)) >= 1

    async def test_with_tasks_that_accept_later(self, broker: Restarted) -> None:
        seen: Counter[object] = Counter()
        done = asyncio.Event()

        async def handle(delivery: ferrymq.Delivery) -> None:
            async with delivery:
                await asyncio.sleep(0.002)
                seen[delivery.message.body] += 1
            if len(seen) == COUNT:
                done.set()

        async def take(receiver: ferrymq.Receiver) -> None:
            async with asyncio.TaskGroup() as tasks:
                async for delivery in receiver:
                    tasks.create_task(handle(delivery))

        async with (
            asyncio.timeout(60),
            ferrymq.connect(broker.url, reconnect=POLICY) as connection,
            connection.receiver("orders", credit=10) as receiver,
        ):
            taking = asyncio.create_task(take(receiver))
            for least in (10, 30):
                while len(seen) < least:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                await broker.restart()
            await done.wait()
            await receiver.close()
            await taking
        assert set(seen) == set(range(COUNT))
        await broker.emptied()


class TestOneDelivery:
    @pytest.fixture
    async def restored(self, peer: Peer) -> AsyncIterator[ferrymq.Connection]:
        async with ferrymq.connect(peer.url, reconnect=POLICY) as connection:
            yield connection

    async def lose(self, peer: Peer, connection: ferrymq.Connection) -> None:
        """Lose the connection and wait until it is restored."""
        connection.transport.abort()
        async with asyncio.timeout(10):
            await peer.seen(events.AttachReceived, peer.count(events.AttachReceived) + 1)
            await connection.session()

    async def test_one_line_counts_the_outcomes(
        self, peer: Peer, restored: ferrymq.Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        peer.put("orders", 1, 2, 3, 4)
        receiver = await restored.receiver("orders")
        first, second, third, fourth = [await receiver.receive() for _ in range(4)]
        assert not first.gone
        # The outcome is on its way when the connection is lost.
        await fourth.accept()
        await self.lose(peer, restored)
        assert first.gone and second.gone and third.gone
        # Its outcome was given before the loss, and may have arrived.
        assert not fourth.gone
        await first.accept()
        await second.reject("app:bad-order")
        with pytest.raises(Broken):
            async with third:
                raise Broken
        assert first.gone and third.gone
        with pytest.raises(ferrymq.LocalProtocolError, match="has only one"):
            await first.accept()
        await asyncio.sleep(0)
        assert len(lines(caplog)) == 1
        await receiver.close()
        assert lines(caplog)[-1].startswith("3 outcomes of deliveries from 'orders' dropped")
        assert peer.count(events.OutcomeReceived) == 0

    async def test_an_outcome_that_is_not_confirmed_is_dropped_too(
        self, peer: Peer, restored: ferrymq.Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        peer.on[events.OutcomeReceived] = lambda _, event: None
        peer.put("orders", 1)
        receiver = await restored.receiver("orders", rcv_settle_mode=ReceiverSettleMode.SECOND)
        delivery = await receiver.receive()
        accepting = asyncio.create_task(delivery.accept())
        await peer.seen(events.OutcomeReceived)
        await self.lose(peer, restored)
        await accepting
        assert delivery.gone
        await asyncio.sleep(0)
        assert len(lines(caplog)) == 1

    async def test_a_transaction_does_not_go_on_without_it(
        self, broker: Restarted, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with (
            asyncio.timeout(60),
            ferrymq.connect(broker.url, reconnect=POLICY) as connection,
            connection.receiver("orders", credit=1) as receiver,
        ):
            sender = await connection.sender("done")
            delivery = await receiver.receive()
            await broker.restart()
            with pytest.raises(ferrymq.ConnectionClosed):
                async with connection.transaction() as transaction:
                    await sender.send(Message("done"), transaction=transaction)
                    await delivery.accept(transaction=transaction)
            assert delivery.gone and not lines(caplog)
            again = await receiver.receive()
            assert again.message.body == delivery.message.body
            async with connection.transaction() as transaction:
                await sender.send(Message("done"), transaction=transaction)
                await again.accept(transaction=transaction)
            async with connection.receiver("done", credit="manual") as done:
                done.add_credit(10)
                await done.drain()
                assert done.queued == 1

    @pytest.mark.parametrize("reconnect", [False, ReconnectPolicy(initial=0.01, resend=False)])
    async def test_without_resending_the_call_raises(
        self, peer: Peer, reconnect: bool | ReconnectPolicy
    ) -> None:
        peer.put("orders", 1, 2)
        async with ferrymq.connect(peer.url, reconnect=reconnect) as connection:
            receiver = await connection.receiver("orders")
            first, second = await receiver.receive_many(2)
            connection.transport.abort()
            while not first.gone:  # noqa: ASYNC110
                await asyncio.sleep(0)
            with pytest.raises(ferrymq.ConnectionClosed):
                await first.accept()
            with pytest.raises(ferrymq.ConnectionClosed):
                async with second:
                    pass

    async def test_a_link_that_does_not_come_back_raises(
        self, peer: Peer, restored: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1)
        receiver = await restored.receiver("orders")
        delivery = await receiver.receive()
        await receiver.close()
        assert delivery.gone
        with pytest.raises(ferrymq.LinkDetached):
            await delivery.accept()

    async def test_copies_need_no_line(
        self, peer: Peer, restored: ferrymq.Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "ferrymq")
        peer.put("orders", 1)
        receiver = await restored.receiver("orders", mode="copy")
        delivery = await receiver.receive()
        await self.lose(peer, restored)
        await delivery.accept()
        await asyncio.sleep(0)
        assert not lines(caplog)
