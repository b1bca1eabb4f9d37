"""Credit: it bounds the messages that have no outcome, in flight, queued or taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import Modified
from ferrymq_types.transport import SenderSettleMode
from tests.client.peer import Peer

HELD = "all {} credits are held by deliveries without an outcome: settle them, or raise credit"


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [{"name": "work"}],
            "stream": [{"name": "clicks"}],
        }
    )
    async with BrokerServer(config) as broker:
        yield broker


@pytest.fixture
async def client(server: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(server.url) as connected:
        yield connected


async def fill(connection: ferrymq.Connection, address: str, count: int) -> None:
    """Send so many messages."""
    async with connection.sender(address) as sender:
        await sender.send_many([Message(number) for number in range(count)])


class TestTwoWorkers:
    async def test_the_second_gets_what_the_first_does_not_hold(
        self, server: BrokerServer, client: ferrymq.Connection
    ) -> None:
        await fill(client, "work", 300)
        slow = await client.receiver("work", credit=10)
        held: list[ferrymq.Delivery] = []
        with pytest.raises(TimeoutError):
            # The first takes messages as fast as it can and settles none.
            while True:
                held.append(await slow.receive(timeout=0.2))
        assert len(held) == 10
        quick = await client.receiver("work", credit=10)
        for _ in range(290):
            await (await quick.receive(timeout=10)).accept()
        with pytest.raises(TimeoutError, match=r"no message came from 'work' within 0.05 s$"):
            await quick.receive(timeout=0.05)
        for delivery in held:
            await delivery.accept()

    async def test_in_the_blocking_client(self, server: BrokerServer) -> None:
        def work() -> int:
            with blocking.connect(server.url) as first, blocking.connect(server.url) as second:
                first.sender("work").send_many([Message(number) for number in range(300)])
                slow = first.receiver("work", credit=10)
                held: list[blocking.Delivery] = []
                with pytest.raises(TimeoutError, match=HELD.format(10)):
                    while True:
                        held += slow.receive_many(10, timeout=0.2)
                quick = second.receiver("work", credit=10)
                for _ in range(290):
                    quick.receive(timeout=10).accept()
                return len(held)

        assert await asyncio.wait_for(asyncio.to_thread(work), 60) == 10

    @pytest.mark.parametrize("many", [False, True], ids=["receive", "receive_many"])
    @pytest.mark.parametrize("how", ["delivery", "settled", "copy"])
    async def test_what_needs_no_outcome_in_the_blocking_client(
        self, server: BrokerServer, client: ferrymq.Connection, how: str, many: bool
    ) -> None:
        await fill(client, "work", 50)

        def work() -> list[object]:
            options: ferrymq.options.ReceiverArguments = {"credit": 10}
            if how == "delivery":
                options["renew"] = "delivery"
            elif how == "settled":
                options["snd_settle_mode"] = SenderSettleMode.SETTLED
            else:
                options["mode"] = "copy"
            with blocking.connect(server.url) as connection:
                receiver = connection.receiver("work", **options)
                taken: list[blocking.Delivery] = []
                while len(taken) < 50:
                    if many:
                        taken += receiver.receive_many(7, timeout=10)
                    else:
                        taken.append(receiver.receive(timeout=10))
                    assert receiver.queued + receiver.credit <= 10
                return [delivery.message.body for delivery in taken]

        assert await asyncio.wait_for(asyncio.to_thread(work), 60) == list(range(50))

    async def test_messages_that_some_threads_hold_in_the_blocking_client(
        self, server: BrokerServer, client: ferrymq.Connection
    ) -> None:
        await fill(client, "work", 60)

        def work() -> list[object]:
            with blocking.connect(server.url) as connection:
                receiver = connection.receiver("work", credit=10)
                held = [receiver.receive(timeout=10) for _ in range(9)]
                # One credit is left for the other messages.
                for _ in range(51):
                    delivery = receiver.receive(timeout=10)
                    assert len(held) + receiver.queued + receiver.credit < 10
                    delivery.accept()
                return [delivery.message.body for delivery in held]

        assert await asyncio.wait_for(asyncio.to_thread(work), 60) == list(range(9))


class TestRenewal:
    async def test_a_worker_that_holds_nearly_all_gets_one_for_one(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(40))
        receiver = await connection.receiver("orders", credit=10)
        held = [await receiver.receive(timeout=5) for _ in range(9)]
        for number in range(9, 40):
            delivery = await receiver.receive(timeout=5)
            assert delivery.message.body == number
            await delivery.accept()
        assert [delivery.message.body for delivery in held] == list(range(9))

    async def test_all_that_settle_late_get_all_again(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(60))
        receiver = await connection.receiver("orders", credit=10)
        for _ in range(6):
            batch = [await receiver.receive(timeout=5) for _ in range(10)]
            for delivery in batch:
                await delivery.release()

    async def test_a_waiting_receive_goes_on_at_an_outcome(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1, 2)
        receiver = await connection.receiver("orders", credit=1)
        first = await receiver.receive(timeout=5)
        waiting = asyncio.create_task(receiver.receive(timeout=5))
        await connection.session()
        assert not waiting.done()
        await first.modify(undeliverable_here=True)
        assert (await waiting).message.body == 2

    async def test_with_renew_delivery_at_the_taking(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(50))
        receiver = await connection.receiver("orders", credit=10, renew="delivery")
        assert len([await receiver.receive(timeout=5) for _ in range(50)]) == 50

    async def test_settled_messages_need_no_outcome(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(50))
        receiver = await connection.receiver(
            "orders", credit=10, snd_settle_mode=SenderSettleMode.SETTLED
        )
        assert len([await receiver.receive(timeout=5) for _ in range(50)]) == 50

    @pytest.mark.parametrize(("address", "mode"), [("work", "copy"), ("clicks", None)])
    async def test_messages_that_stay_need_no_outcome(
        self, client: ferrymq.Connection, address: str, mode: str | None
    ) -> None:
        await fill(client, address, 50)
        reader = client.receiver(
            address,
            credit=10,
            mode="copy" if mode else None,
            start="first" if address == "clicks" else None,
        )
        async with reader as receiver:
            assert len([await receiver.receive(timeout=5) for _ in range(50)]) == 50

    async def test_a_message_put_back_counts_once(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(12))
        receiver = await connection.receiver("orders", credit=2)
        for number in range(12):
            delivery = await receiver.receive(timeout=5)
            receiver.put_back([delivery])
            assert await receiver.receive(timeout=5) is delivery
            assert delivery.message.body == number
            await delivery.accept()


class TestTransactions:
    async def test_an_outcome_in_a_transaction_renews_at_once(
        self, client: ferrymq.Connection
    ) -> None:
        await fill(client, "work", 20)
        receiver = await client.receiver("work", credit=2)
        async with client.transaction() as transaction:
            for _ in range(20):
                await (await receiver.receive(timeout=5)).accept(transaction=transaction)

    async def test_a_rolled_back_outcome_counts_again(self, client: ferrymq.Connection) -> None:
        await fill(client, "work", 5)
        receiver = await client.receiver("work", credit=2)
        transaction = await client.transaction()
        taken = [await receiver.receive(timeout=5) for _ in range(2)]
        for delivery in taken:
            await delivery.accept(transaction=transaction)
        taken += [await receiver.receive(timeout=5) for _ in range(2)]
        await transaction.rollback()
        with pytest.raises(TimeoutError, match=HELD.format(2)):
            await receiver.receive(timeout=0.05)
        for delivery in taken:
            await delivery.accept()
        assert (await receiver.receive(timeout=5)).message.body == 4


class TestLosses:
    async def test_what_was_held_before_a_loss_holds_no_credit(self, peer: Peer) -> None:
        peer.put("orders", *range(6))
        policy = ferrymq.ReconnectPolicy(initial=0.01)
        async with ferrymq.connect(peer.url, reconnect=policy) as connection:
            receiver = await connection.receiver("orders", credit=3)
            old = [await receiver.receive(timeout=5) for _ in range(3)]
            connection.transport.abort()
            for _ in range(3):
                await (await receiver.receive(timeout=5)).accept()
            for delivery in old:
                await delivery.accept()
            assert receiver._arrivals.in_hand == 0

    async def test_what_the_sender_settles_holds_no_credit(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1)
        receiver = await connection.receiver("orders", credit=1)
        first = await receiver.receive(timeout=5)
        [sent] = peer.connection.links[receiver.name].session.outgoing.unsettled.values()
        sent.settle(Modified())
        peer.connection.process()
        peer.put("orders", 2)
        assert (await receiver.receive(timeout=5)).message.body == 2
        assert first.settled


class TestOptions:
    async def test_manual_is_the_word_for_zero(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(5))
        receiver = await connection.receiver("orders", credit="manual")
        assert receiver.credit == 0
        receiver.add_credit(3)
        assert len([await receiver.receive(timeout=5) for _ in range(3)]) == 3
        text = "^no message came from 'orders' within 0.05 s: the receiver has no credit"
        with pytest.raises(TimeoutError, match=text):
            await receiver.receive(timeout=0.05)

    def test_bad_values_are_named(self) -> None:
        with pytest.raises(ValueError, match="credit -1 is negative"):
            ferrymq.options.ReceiverOptions(credit=-1)
        with pytest.raises(ValueError, match="renew 'soon' is neither"):
            ferrymq.options.ReceiverOptions(renew="soon")  # type: ignore[arg-type]
