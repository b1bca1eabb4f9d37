"""Encoded messages in bulk: outcomes by their numbers, and settled ones in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import DeliveryRejected, Message, TransactionRolledBack
from ferrymq.batches import BATCHES
from ferrymq_broker.config import Config
from ferrymq_broker.connections.shown_links import UnsettledCounts
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.server import BrokerServer


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [{"name": "small", "max-length": 5}],
            "stream": [{"name": "s", "partitions": 2}],
            "limits": {"transaction-work": 3000, "credit": 10},
        }
    )
    async with BrokerServer(config) as server:
        yield server


@pytest.fixture
async def connection(broker: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url) as connected:
        yield connected


def encoded(count: int) -> list[bytes]:
    return [Message(f"{number}".encode()).encode() for number in range(count)]


def bodies(broker: BrokerServer, name: str) -> int:
    queue = broker.broker.default.nodes[name]
    assert isinstance(queue, Queue)
    return queue.message_count()


@pytest.mark.parametrize("settled", [False, True])
async def test_all_arrive_in_order(connection: ferrymq.Connection, settled: bool) -> None:
    sender = await connection.sender("q")
    assert await sender.send_encoded(encoded(500), settled=settled, timeout=20) == {}
    assert await sender.send_encoded([], settled=settled) == {}
    receiver = await connection.receiver("q", credit=500)
    for number in range(500):
        delivery = await receiver.receive(timeout=20)
        assert delivery.message.body == f"{number}".encode()
        await delivery.accept()


async def test_what_is_not_accepted_is_returned_by_its_number(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("small")
    errors = await sender.send_encoded(encoded(8), timeout=20)
    assert list(errors) == [5, 6, 7]
    assert all(isinstance(error, DeliveryRejected) for error in errors.values())
    assert bodies(broker, "small") == 5


@pytest.mark.parametrize("settled", [False, True])
async def test_in_a_transaction_all_or_nothing(
    broker: BrokerServer, connection: ferrymq.Connection, settled: bool
) -> None:
    sender = await connection.sender("q")
    async with connection.transaction() as txn:
        assert await sender.send_encoded(encoded(300), settled=settled, transaction=txn) == {}
        assert bodies(broker, "q") == 0
    assert bodies(broker, "q") == 300
    txn = await connection.transaction()
    assert await sender.send_encoded(encoded(300), settled=settled, transaction=txn) == {}
    await txn.rollback()
    assert bodies(broker, "q") == 300


async def test_the_broker_says_which_settled_message_it_refused(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    first = await connection.sender("q")
    small = await connection.sender("small")
    txn = await connection.transaction()
    assert await first.send_encoded(encoded(20), settled=True, transaction=txn) == {}
    errors = await small.send_encoded(encoded(9), settled=True, transaction=txn, timeout=20)
    (error,) = errors.values()
    assert list(errors) == [8]
    assert isinstance(error, DeliveryRejected) and error.error is not None
    assert error.error.info is not None
    # The sixth for the queue, counted from 0 among all of the transaction.
    assert error.error.info["message"] == 25
    assert error.error.info["condition"] == "amqp:resource-limit-exceeded"
    with pytest.raises(TransactionRolledBack):
        await txn.commit()
    assert bodies(broker, "q") == bodies(broker, "small") == 0


async def test_messages_to_a_stream_go_in_batches(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("s::0", properties={BATCHES: True})
    # A message that fills no batch, between those that do.
    payloads = [*encoded(1500), Message(bytes(100_000)).encode(), *encoded(1000)]
    async with connection.transaction() as txn:
        assert await sender.send_encoded(payloads, settled=True, transaction=txn) == {}
    deliveries = [
        link.describe(UnsettledCounts())["delivery-count"]
        for handler in broker.broker.handlers
        for link in handler.shown_links()
        if not link.receives
    ]
    stream = broker.broker.default.nodes["s"]
    assert isinstance(stream, Stream)
    assert stream.partitions[0].log.find(0).payloads == payloads
    # Two batches, a message, one batch, and the last message, which has an outcome. Declare and
    # discharge are on a link of their own.
    assert set(deliveries) == {2, 5}


async def test_a_message_of_a_batch_is_named_by_its_number(
    connection: ferrymq.Connection,
) -> None:
    sender = await connection.sender("s", properties={BATCHES: True})
    txn = await connection.transaction()
    wrong = Message("x", message_annotations={"x-opt-partition": 7}).encode()
    assert await sender.send_encoded(encoded(50), settled=True, transaction=txn) == {}
    payloads = [*encoded(1100), wrong, *encoded(500)]
    errors = await sender.send_encoded(payloads, settled=True, transaction=txn, timeout=20)
    (error,) = errors.values()
    assert list(errors) == [1600]
    assert isinstance(error, DeliveryRejected) and error.error is not None
    assert error.error.info is not None and error.error.info["message"] == 1150
    await txn.rollback()


async def test_a_transaction_that_is_too_large_is_over_at_the_next_outcome(
    connection: ferrymq.Connection,
) -> None:
    sender = await connection.sender("q")
    txn = await connection.transaction()
    errors = await sender.send_encoded(encoded(3001), settled=True, transaction=txn, timeout=20)
    (error,) = errors.values()
    assert isinstance(error, DeliveryRejected) and error.error is not None
    assert error.error.info is not None and "3000 messages" in str(error.error.info["limit"])
    await txn.rollback()


async def test_a_peer_that_stops_giving_credit_is_waited_for(
    connection: ferrymq.Connection,
) -> None:
    """Only the window is under way; the call is cancelled without harm to the link."""
    sender = await connection.sender("small")
    await sender.send_encoded(encoded(5), timeout=20)
    task = asyncio.create_task(sender.send_encoded(encoded(5000)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(await sender.send_encoded(encoded(2), timeout=20)) == [0, 1]
