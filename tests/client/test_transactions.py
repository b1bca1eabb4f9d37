"""Transactions of the clients, against the project's own broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.errors import (
    ConnectionClosed,
    DeliveryRejected,
    LinkDetached,
    LocalProtocolError,
    TransactionError,
    TransactionRolledBack,
)
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.transport import ReceiverSettleMode
from tests.client.peer import Peer


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {"listener": [{"url": "amqp://127.0.0.1:0"}], "limits": {"transactions": 5}}
    )
    async with BrokerServer(config) as server:
        yield server


@pytest.fixture
async def connection(broker: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url) as connected:
        yield connected


def queue(broker: BrokerServer, name: str = "q") -> Queue:
    found = broker.broker.default.nodes[name]
    assert isinstance(found, Queue)
    return found


async def settled(condition: Callable[[], bool]) -> None:
    """Let the broker read what has been written."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_block_commits_at_its_end(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    async with connection.transaction() as txn:
        await sender.send(Message("a"), transaction=txn)
        await txn.send(sender, Message("b"), settled=True)
        await sender.send_many([Message("c"), Message("d")], transaction=txn)
        assert txn.active
        assert queue(broker).available == 0
    assert not txn.active
    assert queue(broker).available == 4
    assert sender.unsettled == 0


async def test_an_exception_rolls_back(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    with pytest.raises(ZeroDivisionError):
        async with connection.transaction() as txn:
            await sender.send(Message("a"), transaction=txn)
            raise ZeroDivisionError
    assert queue(broker).message_count() == 0
    # The link is none the worse.
    await sender.send(Message("b"))
    assert queue(broker).available == 1


async def test_outcomes_are_applied_on_commit(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    await sender.send_many([Message(str(i)) for i in range(4)])
    receiver = await connection.receiver("q")
    async with connection.transaction() as txn:
        one, two, three, four = [await receiver.receive(timeout=20) for _ in range(4)]
        await one.accept(transaction=txn)
        await two.reject("example:bad", transaction=txn)
        await three.release(transaction=txn)
        await four.modify(undeliverable_here=True, transaction=txn)
        with pytest.raises(LocalProtocolError, match="already"):
            await one.accept()
    assert all(delivery.settled for delivery in (one, two, three, four))
    again = await receiver.receive(timeout=20)
    assert again.message.body == "2"
    assert queue(broker).message_count() == 2


async def test_a_rollback_gives_deliveries_back_to_the_receiver(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    await (await connection.sender("q")).send(Message("a"))
    receiver = await connection.receiver("q")
    delivery = await receiver.receive(timeout=20)
    txn = await connection.transaction()
    await delivery.accept(transaction=txn)
    await txn.rollback()
    assert not delivery.settled
    assert queue(broker).acquired == 1
    await delivery.accept()
    await settled(lambda: queue(broker).acquired == 0)


async def test_messages_are_acquired_and_retired_in_one(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    await (await connection.sender("q")).send_many([Message("a"), Message("b"), Message("c")])
    receiver = await connection.receiver("q", credit=0)
    txn = await connection.transaction()
    receiver.add_credit(2, transaction=txn)
    first = await receiver.receive(timeout=20)
    # Without saying so, for it was acquired in it.
    await first.accept()
    await txn.rollback()
    assert receiver.queued == 0 and first.settled
    assert queue(broker).available == 3
    async with connection.transaction() as txn:
        receiver.add_credit(5, transaction=txn)
        for body in "abc":
            delivery = await receiver.receive(timeout=20)
            assert delivery.message.body == body
            await delivery.accept()
    assert queue(broker).message_count() == 0
    # What is not used of the credit is given back before the discharge.
    assert receiver.credit == 0


async def test_credit_can_be_drained_in_a_transaction(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    await (await connection.sender("q")).send(Message("a"))
    receiver = await connection.receiver("q", credit=0)
    async with connection.transaction() as txn:
        receiver.add_credit(10, transaction=txn)
        await receiver.drain(timeout=20)
        assert receiver.queued == 1
        await (await receiver.receive()).accept()
    assert queue(broker).message_count() == 0


async def test_many_at_a_time_over_several_sessions(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    here = await connection.sender("q")
    session = await connection.session()
    there = await session.sender("r")
    one, two = await connection.transaction(), await session.transaction()
    for sender in (here, there):
        await sender.send(Message("1"), transaction=one)
        await sender.send(Message("2"), transaction=two)
    await two.rollback()
    await one.commit()
    assert (queue(broker).available, queue(broker, "r").available) == (1, 1)


async def test_a_refused_message_is_told_at_once_and_again(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    broker.broker.default.create("full", QueuePolicy(max_length=1, overflow="reject"))
    sender = await connection.sender("full")
    txn = await connection.transaction()
    await sender.send(Message("a"), transaction=txn)
    with pytest.raises(DeliveryRejected, match="no room"):
        await sender.send(Message("b"), transaction=txn)
    with pytest.raises(TransactionRolledBack, match="no room") as caught:
        await txn.commit()
    assert caught.value.condition == "amqp:transaction:rollback"
    assert queue(broker, "full").message_count() == 0
    with pytest.raises(LocalProtocolError, match="rolled back"):
        await txn.commit()
    # To roll back what is rolled back is no mistake.
    await txn.rollback()


async def test_a_transaction_that_took_too_long(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    broker.broker.transaction_limits.timeout = 20
    sender = await connection.sender("q")
    txn = await connection.transaction()
    await sender.send(Message("a"), transaction=txn)
    await asyncio.sleep(0.1)
    with pytest.raises(TransactionRolledBack) as caught:
        await txn.commit()
    assert caught.value.condition == "amqp:transaction:timeout"


async def test_one_too_many(broker: BrokerServer, connection: ferrymq.Connection) -> None:
    open = [await connection.transaction() for _ in range(5)]
    with pytest.raises(TransactionError, match="has 5 open transactions") as caught:
        await connection.transaction()
    assert caught.value.condition == "amqp:transaction:rollback"
    await open[0].rollback()
    await connection.transaction()


async def test_a_rule_that_is_broken_rolls_back_all_of_the_control_link(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    await sender.send(Message("a"))
    receiver = await connection.receiver("q")
    delivery = await receiver.receive(timeout=20)
    one, two = await connection.transaction(), await connection.transaction()
    await delivery.accept(transaction=one)
    # A round trip: the broker has seen it.
    three = await connection.transaction()
    delivery._given = False
    await delivery.accept(transaction=two)
    await settled(lambda: not one.active and not two.active)
    with pytest.raises(TransactionRolledBack) as caught:
        await one.commit()
    assert caught.value.condition == "amqp:transaction:rollback"
    with pytest.raises(TransactionRolledBack):
        await sender.send(Message("b"), transaction=two)
    # The next one has a control link of its own.
    assert not three.active
    async with connection.transaction() as four:
        await sender.send(Message("c"), transaction=four)


async def test_a_transaction_belongs_to_its_connection(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    async with ferrymq.connect(broker.url) as other, connection.transaction() as txn:
        stranger = await other.sender("q")
        with pytest.raises(LocalProtocolError, match="of another connection"):
            await stranger.send(Message("a"), transaction=txn)


async def test_an_ended_transaction_takes_no_work(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    receiver = await connection.receiver("q", credit=0)
    async with connection.transaction() as txn:
        pass
    with pytest.raises(LocalProtocolError, match="committed"):
        await sender.send(Message("a"), transaction=txn)
    with pytest.raises(LocalProtocolError, match="committed"):
        receiver.add_credit(1, transaction=txn)
    assert queue(broker).message_count() == 0


async def test_a_lost_connection_rolls_back(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    txn = await connection.transaction()
    await sender.send(Message("a"), transaction=txn)
    connection.transport.abort()
    await settled(lambda: connection.closed)
    with pytest.raises(TransactionRolledBack) as caught:
        await txn.commit()
    assert isinstance(caught.value.__cause__, ConnectionClosed)
    await settled(lambda: not broker.broker.handlers)
    assert (queue(broker).message_count(), broker.broker.agenda.held) == (0, 0)


async def test_a_restored_connection_has_no_transactions(broker: BrokerServer) -> None:
    policy = ferrymq.ReconnectPolicy()
    async with ferrymq.connect(broker.url, reconnect=policy) as connection:
        sender = await connection.sender("q")
        txn = await connection.transaction()
        await sender.send(Message("a"), transaction=txn)
        connection.transport.abort()
        await settled(lambda: not txn.active)
        with pytest.raises(TransactionRolledBack):
            await txn.commit()
        async with connection.transaction() as txn:
            await sender.send(Message("b"), transaction=txn)
        assert queue(broker).available == 1


async def test_a_peer_that_accepts_a_declare_has_declared_nothing(peer: Peer) -> None:
    async with ferrymq.connect(peer.url) as connection:
        with pytest.raises((LinkDetached, TransactionError)):
            await asyncio.wait_for(connection.transaction().open(), 20)


async def test_the_blocking_client(broker: BrokerServer) -> None:
    def work() -> None:
        with blocking.connect(broker.url) as connection:
            sender = connection.sender("q")
            with connection.transaction() as txn:
                sender.send(Message("a"), transaction=txn)
                sender.send_many([Message("b"), Message("c")], transaction=txn)
            receiver = connection.receiver("q", credit=0)
            with connection.session() as session, session.transaction() as txn:
                receiver.add_credit(3, transaction=txn)
                for delivery in receiver.receive_many(3):
                    delivery.accept(transaction=txn)
                assert txn.active and len(txn.id) > 0
            with pytest.raises(ZeroDivisionError), connection.transaction() as txn:
                sender.send(Message("d"), transaction=txn)
                raise ZeroDivisionError
            txn = connection.transaction()
            sender.send(Message("e"), transaction=txn)
            txn.rollback()
            txn = connection.transaction()
            sender.send(Message("f"), transaction=txn)
            txn.commit()
            assert not txn.active

    await asyncio.to_thread(work)
    assert queue(broker).message_count() == 1


async def test_what_the_peer_leaves_unsettled_is_settled_after_the_discharge(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    """In receiver-settle-mode second the broker does not settle messages itself."""
    sender = await connection.sender("q", rcv_settle_mode=ReceiverSettleMode.SECOND)
    (handler,) = broker.broker.handlers

    def unsettled() -> int:
        sessions = handler.connection.channels.by_remote.values()
        return sum(len(session.incoming.unsettled) for session in sessions)

    for end in ("commit", "rollback"):
        txn = await connection.transaction()
        await sender.send(Message("a"), transaction=txn)
        assert unsettled() == 1
        await getattr(txn, end)()
        await settled(lambda: unsettled() == 0)
    assert queue(broker).available == 1
