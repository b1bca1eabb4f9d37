"""Discharges that are cancelled, or take too long: the broker ends what the client has left.

The broker is a process of its own, which can be stopped: it then answers nothing and loses nothing.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.errors import LocalProtocolError, TransactionInDoubt, TransactionRolledBack
from tests.raw.fixtures import address, broker
from tests.raw.process import Broker

__all__ = ["address", "broker"]

pytestmark = pytest.mark.timeout(120)

# As many as the connection may have open: one that is left behind is missed.
_TRANSACTIONS = 3


@pytest.fixture(scope="module")
def config() -> str:
    return f"[limits]\ntransactions = {_TRANSACTIONS}\n"


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url) as connected:
        yield connected


async def waiting(connection: ferrymq.Connection, address: str) -> list[object]:
    """Return the bodies of the messages in a queue."""
    async with connection.receiver(address, credit=0) as receiver:
        receiver.add_credit(100)
        await receiver.drain(timeout=20)
        return [(await receiver.receive()).message.body for _ in range(receiver.queued)]


async def nothing_is_open(connection: ferrymq.Connection) -> None:
    """All transactions of the connection can be open at once."""
    async with asyncio.timeout(20):
        for txn in [await connection.transaction() for _ in range(_TRANSACTIONS)]:
            await txn.rollback()


async def acquire(
    connection: ferrymq.Connection, address: str
) -> tuple[ferrymq.Transaction, ferrymq.Receiver]:
    """A transaction that has acquired a message, accepted it, and has credit left."""
    await (await connection.sender(address)).send(Message("a"), timeout=20)
    receiver = await connection.receiver(address, credit=0)
    txn = await connection.transaction()
    receiver.add_credit(5, transaction=txn)
    await (await receiver.receive(timeout=20)).accept()
    return txn, receiver


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_discharge_left_while_credit_is_given_back_is_a_rollback(
    broker: Broker, connection: ferrymq.Connection, address: str, end: str, how: str
) -> None:
    txn, receiver = await acquire(connection, address)
    broker.signal(signal.SIGSTOP)
    try:
        if how == "timeout":
            with pytest.raises(TimeoutError):
                await getattr(txn, end)(timeout=0.05)
        else:
            task = asyncio.create_task(getattr(txn, end)())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert "rolled back" not in repr(txn)
    finally:
        broker.signal(signal.SIGCONT)
    await asyncio.wait_for(txn.rollback(), 20)
    assert "rolled back" in repr(txn)
    with pytest.raises(TransactionRolledBack):
        await txn.commit()
    await receiver.close()
    assert await waiting(connection, address) == ["a"]
    await nothing_is_open(connection)


async def test_a_block_that_is_cancelled_twice_is_rolled_back(
    connection: ferrymq.Connection, address: str
) -> None:
    inside = asyncio.Event()
    receivers: list[ferrymq.Receiver] = []

    async def work() -> None:
        txn, receiver = await acquire(connection, address)
        receivers.append(receiver)
        async with txn:
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_is_open(connection)
    await receivers[0].close()
    assert await waiting(connection, address) == ["a"]


async def test_a_commit_that_takes_too_long_is_in_doubt_until_it_is_answered(
    broker: Broker, connection: ferrymq.Connection, address: str
) -> None:
    sender = await connection.sender(address)
    txn = await connection.transaction()
    await sender.send(Message("a"), transaction=txn)
    broker.signal(signal.SIGSTOP)
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await txn.commit(timeout=0.05)
        with pytest.raises(TimeoutError):
            await txn.rollback(timeout=0.05)
        assert "in doubt" in repr(txn)
    finally:
        broker.signal(signal.SIGCONT)
    # The commit was sent first, and wins.
    with pytest.raises(LocalProtocolError, match="committed"):
        await asyncio.wait_for(txn.rollback(), 20)
    await txn.commit()
    assert await waiting(connection, address) == ["a"]
    await nothing_is_open(connection)


async def test_a_commit_without_an_answer_stays_in_doubt_when_the_connection_is_lost(
    broker: Broker, connection: ferrymq.Connection, address: str
) -> None:
    sender = await connection.sender(address)
    txn = await connection.transaction()
    await sender.send(Message("a"), transaction=txn)
    broker.signal(signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            await txn.commit(timeout=0.05)
        connection.transport.abort()
        for call in (txn.rollback, txn.commit):
            with pytest.raises(TransactionInDoubt):
                await asyncio.wait_for(call(), 20)
    finally:
        broker.signal(signal.SIGCONT)


@pytest.mark.parametrize("wait", [0, 0.01])
async def test_transactions_whose_declaration_is_left_are_rolled_back(
    broker: Broker, connection: ferrymq.Connection, wait: float
) -> None:
    await (await connection.transaction()).rollback()
    for _ in range(_TRANSACTIONS + 1):
        broker.signal(signal.SIGSTOP)
        task = asyncio.create_task(connection.transaction().open())
        for _ in range(5):
            await asyncio.sleep(wait)
        broker.signal(signal.SIGCONT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await nothing_is_open(connection)
