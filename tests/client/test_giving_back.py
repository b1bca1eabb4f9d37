"""Messages whose work fails: blocks of deliveries and links, loops that are left, dropped ones."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.aio import unseen
from ferrymq.engine import events
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from ferrymq_types.transport import ReceiverSettleMode
from tests.client.peer import Peer

FAILED = Modified(delivery_failed=True)


class Broken(Exception):
    """What a handler raises."""


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [
                {"name": "jobs", "delivery-limit": 2, "dead-letter": "jobs.dead"},
                {"name": "jobs.dead"},
            ],
        }
    )
    async with BrokerServer(config) as broker:
        yield broker


@pytest.fixture
async def client(server: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(server.url) as connected:
        yield connected


def outcomes(peer: Peer) -> list[object]:
    return [e.delivery.remote_state for e in peer.events if isinstance(e, events.OutcomeReceived)]


async def settled(peer: Peer, count: int = 1) -> list[object]:
    """Wait for so many outcomes and return them."""
    async with asyncio.timeout(10):
        await peer.seen(events.OutcomeReceived, count)
    return outcomes(peer)


STOPS = [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit]


class TestBlockOfADelivery:
    async def test_accepts_at_the_end(self, peer: Peer, connection: ferrymq.Connection) -> None:
        peer.put("orders", 1)
        receiver = await connection.receiver("orders")
        async with await receiver.receive() as delivery:
            assert delivery.message.body == 1
        assert await settled(peer) == [Accepted()]

    @pytest.mark.parametrize(
        ("error", "outcome"), [(Broken, FAILED), *[(stop, Released()) for stop in STOPS]]
    )
    async def test_gives_back_when_an_exception_leaves_it(
        self,
        peer: Peer,
        connection: ferrymq.Connection,
        error: type[BaseException],
        outcome: object,
    ) -> None:
        peer.put("orders", 1)
        receiver = await connection.receiver("orders")
        try:
            async with await receiver.receive():
                raise error
        except BaseException as raised:
            assert type(raised) is error
        assert await settled(peer) == [outcome]

    async def test_leaves_an_outcome_of_the_body(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1, 2)
        receiver = await connection.receiver("orders")
        async with await receiver.receive() as delivery:
            await delivery.reject()
        with pytest.raises(Broken):
            async with await receiver.receive() as delivery:
                await delivery.release()
                raise Broken
        assert await settled(peer, 2) == [Rejected(), Released()]

    async def test_an_error_of_the_outcome_hides_nothing(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1, 2)
        receiver = await connection.receiver("orders")
        lost = await receiver.receive()
        with pytest.raises(ferrymq.LinkDetached):
            async with await receiver.receive():
                await receiver.close()
        with pytest.raises(Broken):
            async with lost:
                raise Broken

    async def test_gives_what_the_source_grants(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1, 2)
        receiver = await connection.receiver("orders")
        for granted, outcome in (
            (["amqp:accepted:list", "amqp:released:list"], Released()),
            (["amqp:accepted:list"], None),
        ):
            receiver.granted = granted
            with pytest.raises(Broken):
                async with await receiver.receive():
                    raise Broken
            assert (await settled(peer, 1 if outcome else 2))[-1] == outcome

    async def test_does_not_wait_for_the_sender_when_it_fails(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.OutcomeReceived] = lambda _, event: None
        peer.put("orders", 1)
        receiver = await connection.receiver("orders", rcv_settle_mode=ReceiverSettleMode.SECOND)
        with pytest.raises(Broken):
            async with asyncio.timeout(5), await receiver.receive() as delivery:
                raise Broken
        event = await peer.seen(events.OutcomeReceived)
        assert event.delivery.remote_state == FAILED
        event.delivery.settle()
        peer.connection.process()
        await delivery.confirmed()

    async def test_in_the_blocking_client(self, peer: Peer) -> None:
        peer.put("orders", *range(4))

        def work() -> None:
            with blocking.connect(peer.url) as connection:
                receiver = connection.receiver("orders")
                with receiver.receive() as delivery:
                    assert delivery.message.body == 0
                with pytest.raises(Broken), receiver.receive():
                    raise Broken
                with pytest.raises(KeyboardInterrupt), receiver.receive():
                    raise KeyboardInterrupt
                with pytest.raises(Broken), receiver.receive() as delivery:
                    delivery.reject()
                    raise Broken
                last = receiver
            with pytest.raises(ferrymq.ConnectionClosed):
                last.receive()

        await asyncio.to_thread(work)
        assert outcomes(peer) == [Accepted(), FAILED, Released(), Rejected()]


class TestBlocksAround:
    @pytest.mark.parametrize("kind", ["receiver", "session", "connection"])
    @pytest.mark.parametrize(
        ("error", "outcome"), [(Broken, FAILED), (asyncio.CancelledError, Released())]
    )
    async def test_give_back_what_was_taken(
        self, peer: Peer, kind: str, error: type[BaseException], outcome: object
    ) -> None:
        peer.put("orders", *range(4))
        kept: list[ferrymq.Delivery] = []
        with pytest.raises(error):
            async with ferrymq.connect(peer.url) as connection:
                opener: ferrymq.Session | ferrymq.Connection = connection
                if kind == "session":
                    opener = await connection.session()
                opening = opener.receiver("orders")
                if kind == "receiver":
                    async with opening as receiver:
                        kept += [await receiver.receive() for _ in range(3)]
                        await kept[0].accept()
                        raise error
                receiver = await opening
                kept += [await receiver.receive() for _ in range(3)]
                await kept[0].accept()
                if kind == "session":
                    async with connection.session():
                        raise error
                raise error
        # The message that was queued is released.
        assert await settled(peer, 4) == [Accepted(), outcome, outcome, Released()]
        with pytest.raises(ferrymq.PeerError):
            await kept[1].accept()

    async def test_give_back_in_the_blocking_client(self, peer: Peer) -> None:
        peer.put("orders", *range(3))

        def work() -> None:
            with blocking.connect(peer.url) as connection:
                with pytest.raises(Broken), connection.receiver("orders") as receiver:
                    kept = receiver.receive()
                    raise Broken
                with pytest.raises(ferrymq.PeerError):
                    kept.accept()

        await asyncio.to_thread(work)
        assert outcomes(peer)[0] == FAILED

    async def test_end_without_an_exception_as_before(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1)
        async with connection.receiver("orders") as receiver:
            kept = await receiver.receive()
        assert not kept.settled
        assert outcomes(peer) == []

    async def test_the_users_default_outcome_stays(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1)
        with pytest.raises(Broken):
            async with connection.receiver("orders", default_outcome=Accepted()) as receiver:
                kept = await receiver.receive()
                raise Broken
        assert await settled(peer) == [None]
        assert kept.settled


class TestPoison:
    """A message that every handler fails on ends at the dead-letter address."""

    async def test_in_a_loop_with_blocks(self, client: ferrymq.Connection) -> None:
        await (await client.sender("jobs")).send_many([Message("poison"), Message("good")])
        counts: list[int] = []
        async with asyncio.timeout(30):
            async for delivery in client.receiver("jobs", credit=1):
                try:
                    async with delivery:
                        if delivery.message.body == "poison":
                            counts.append(delivery.message.delivery_count)
                            raise Broken
                except Broken:
                    continue
                break
        assert counts == [0, 1, 2]
        await self.expect_dead(client)

    async def test_in_a_loop_that_begins_again(self, client: ferrymq.Connection) -> None:
        await (await client.sender("jobs")).send_many([Message("poison"), Message("good")])

        async def work(receiver: ferrymq.Receiver) -> None:
            async for delivery in receiver:
                if delivery.message.body == "poison":
                    raise Broken
                await delivery.accept()
                return

        failures = 0
        async with asyncio.timeout(30), client.receiver("jobs", credit=1) as receiver:
            while True:
                try:
                    await work(receiver)
                    break
                except Broken:
                    failures += 1
        assert failures == 3
        await self.expect_dead(client)

    async def test_in_a_program_that_connects_again(
        self, server: BrokerServer, client: ferrymq.Connection
    ) -> None:
        await (await client.sender("jobs")).send_many([Message("poison"), Message("good")])
        failures = 0
        for _ in range(4):
            try:
                async with asyncio.timeout(30), ferrymq.connect(server.url) as connection:
                    async for delivery in connection.receiver("jobs", credit=1):
                        if delivery.message.body == "poison":
                            raise Broken
                        await delivery.accept()
                        break
            except Broken:
                failures += 1
        assert failures == 3
        await self.expect_dead(client)

    async def test_in_the_blocking_client(
        self, server: BrokerServer, client: ferrymq.Connection
    ) -> None:
        await (await client.sender("jobs")).send_many([Message("poison"), Message("good")])

        def work() -> int:
            failures = 0
            with blocking.connect(server.url) as connection:
                receiver = connection.receiver("jobs", credit=1)
                while True:
                    try:
                        with receiver.receive(timeout=10) as delivery:
                            if delivery.message.body == "poison":
                                raise Broken
                    except Broken:
                        failures += 1
                    else:
                        return failures

        assert await asyncio.to_thread(work) == 3
        await self.expect_dead(client)

    async def test_in_a_loop_of_the_blocking_client(
        self, server: BrokerServer, client: ferrymq.Connection
    ) -> None:
        await (await client.sender("jobs")).send_many([Message("poison"), Message("good")])

        def work() -> int:
            def handle(receiver: blocking.Receiver) -> None:
                for delivery in receiver:
                    if delivery.message.body == "poison":
                        raise Broken
                    delivery.accept()
                    return

            failures = 0
            with blocking.connect(server.url) as connection:
                receiver = connection.receiver("jobs", credit=1)
                while True:
                    try:
                        handle(receiver)
                    except Broken:
                        failures += 1
                    else:
                        return failures

        assert await asyncio.wait_for(asyncio.to_thread(work), 30) == 3
        await self.expect_dead(client)

    async def expect_dead(self, client: ferrymq.Connection) -> None:
        async with client.receiver("jobs.dead") as dead, await dead.receive(timeout=10) as letter:
            assert letter.message.body == "poison"


class TestDropped:
    async def test_one_line_tells_how_many(
        self,
        peer: Peer,
        connection: ferrymq.Connection,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        peer.put("orders", *range(20))
        receiver = await connection.receiver("orders", credit=4)
        with caplog.at_level(logging.WARNING, "ferrymq"):
            for number in range(20):
                assert (await receiver.receive(timeout=5)).message.body == number
            await settled(peer, 20)
            assert outcomes(peer) == [FAILED] * 20
            [line] = caplog.messages
            # It counts what was dropped since the loop ran last.
            assert line.startswith(
                "4 deliveries from 'orders' dropped without an outcome, given back as failed"
            )
            # The rest is told when the link ends.
            await receiver.close()
            line = caplog.messages[-1]
            assert line.startswith(
                "20 deliveries from 'orders' dropped without an outcome, given back as failed"
            )
            assert len(caplog.messages) == 2
            assert "use 'async with delivery'" in line

    async def test_the_line_comes_again(
        self,
        peer: Peer,
        connection: ferrymq.Connection,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(unseen, "INTERVAL", 0.01)
        peer.put("orders", 1, 2)
        receiver = await connection.receiver("orders", credit=1)
        with caplog.at_level(logging.WARNING, "ferrymq"):
            for _ in range(2):
                await receiver.receive(timeout=5)
            async with asyncio.timeout(10):
                while len(caplog.messages) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        assert [line.split()[0] for line in caplog.messages] == ["1", "2"]

    async def test_in_another_thread(self, peer: Peer, connection: ferrymq.Connection) -> None:
        peer.put("orders", 1)
        receiver = await connection.receiver("orders", credit=1)
        kept = [await receiver.receive(timeout=5)]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        assert await settled(peer) == [FAILED]
        thread.join()
        await connection.session()
        assert receiver.credit == 1

    async def test_just_before_the_link_is_closed(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1)
        async with connection.receiver("orders") as receiver:
            await receiver.receive(timeout=5)
        assert await settled(peer) == [FAILED]

    async def test_queued_messages_of_a_dropped_receiver_are_released(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1, 2)

        async def leave() -> None:
            receiver = await connection.receiver("orders")
            await connection.session()
            assert receiver.queued == 2

        with pytest.warns(ResourceWarning, match="dropped and not closed"):
            await leave()
            gc.collect()
        assert await settled(peer, 2) == [Released(), Released()]

    @pytest.mark.parametrize("end", ["loop", "process"])
    def test_after_the_loop_nothing_is_said(self, end: str) -> None:
        finished = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, end],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (finished.returncode, finished.stdout, finished.stderr) == (0, "done\n", "")


PROGRAM = """
import asyncio, sys, ferrymq
from tests.client.peer import Peer

kept = []

async def main():
    async with Peer() as peer:
        peer.put("orders", 1)
        connection = await ferrymq.connect(peer.url)
        kept.append(await (await connection.receiver("orders")).receive())
        if sys.argv[1] == "process":
            return
        await connection.close()

asyncio.run(main())
if sys.argv[1] == "loop":
    kept.clear()
print("done")
"""


class TestTransactions:
    async def test_a_rolled_back_delivery_is_given_back(self, client: ferrymq.Connection) -> None:
        await (await client.sender("jobs")).send(Message(1))
        receiver = await client.receiver("jobs", credit=1)

        async def work() -> None:
            async with client.transaction() as transaction:
                delivery = await receiver.receive(timeout=10)
                await delivery.accept(transaction=transaction)
                raise Broken

        with pytest.raises(Broken):
            await work()
        async with await receiver.receive(timeout=10) as again:
            assert again.message.delivery_count == 1

    async def test_an_acquired_message_belongs_to_its_transaction(
        self, client: ferrymq.Connection
    ) -> None:
        await (await client.sender("jobs")).send(Message(1))
        receiver = await client.receiver("jobs", credit="manual")
        transaction = await client.transaction()
        receiver.add_credit(1, transaction=transaction)
        await receiver.receive(timeout=10)
        await asyncio.sleep(0)
        await transaction.rollback()
        receiver.add_credit(1)
        async with await receiver.receive(timeout=10) as again:
            assert again.message.delivery_count == 0
