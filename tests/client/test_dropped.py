"""Receivers and connections that are dropped and not closed: they warn, and keep nothing."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import ConnectionClosed, LinkDetached, Message, blocking
from ferrymq.engine import events
from ferrymq.options import ReceiverArguments
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.client.peer import Peer

pytestmark = pytest.mark.usefixtures("few_objects")

RECEIVER = "receiver .* was dropped and not closed"
CONNECTION = "connection to .* was dropped and not closed"


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [{"name": "work"}],
            "topic": [{"name": "news"}],
            "stream": [{"name": "clicks"}],
        }
    )
    async with BrokerServer(config) as server:
        yield server


@pytest.fixture
async def other(broker: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url, container_id="me") as connection:
        yield connection


async def bodies(connection: ferrymq.Connection, address: str, count: int) -> set[object]:
    """Take so many messages, waiting for them."""
    async with asyncio.timeout(20), connection.receiver(address, credit=count) as receiver:
        taken = [await receiver.receive() for _ in range(count)]
        for delivery in taken:
            await delivery.accept()
        return {delivery.message.body for delivery in taken}


async def fill(receiver: ferrymq.Receiver, count: int) -> None:
    """Wait until so many messages wait in the receiver."""
    async with asyncio.timeout(20):
        while receiver.queued < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "in"},
        {"name": "in", "durable": True},
        {"name": "in", "exactly_once": True},
    ],
    ids=["plain", "durable", "once"],
)
async def test_a_receiver_gives_back_what_it_had(
    other: ferrymq.Connection, options: ReceiverArguments
) -> None:
    await (await other.sender("work")).send_many([Message(number) for number in range(5)])

    async def take_and_forget() -> None:
        receiver = await other.receiver("work", **options)
        await fill(receiver, 5)
        if "durable" not in options and "exactly_once" not in options:
            await receiver.receive()

    with pytest.warns(ResourceWarning, match=RECEIVER):
        await take_and_forget()
        # The loop first gives back the dropped delivery.
        await asyncio.sleep(0)
        gc.collect()
    assert await bodies(other, "work", 5) == {0, 1, 2, 3, 4}
    # The name is free as well.
    async with asyncio.timeout(20), other.receiver("work", **options):
        pass


async def test_a_subscription_outlives_its_receiver(other: ferrymq.Connection) -> None:
    sender = await other.sender("news")

    async def subscribe() -> None:
        receiver = await other.receiver("news", name="mine", durable=True)
        await sender.send_many([Message("one"), Message("two")])
        await fill(receiver, 2)

    with pytest.warns(ResourceWarning, match=RECEIVER):
        await subscribe()
        gc.collect()
    await sender.send(Message("three"))
    async with asyncio.timeout(20):
        receiver = await other.receiver("news", name="mine", durable=True)
        got = [(await receiver.receive()).message.body for _ in range(3)]
    assert got == ["one", "two", "three"]


async def test_whoever_has_a_delivery_has_its_receiver(other: ferrymq.Connection) -> None:
    await (await other.sender("work")).send_many([Message(1), Message(2)])

    async def first() -> ferrymq.Delivery:
        receiver = await other.receiver("work", credit=1)
        return await receiver.receive(timeout=20)

    gc.collect()
    delivery = await first()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gc.collect()
        await delivery.accept()
    with pytest.warns(ResourceWarning, match=RECEIVER):
        del delivery
        gc.collect()
    assert await bodies(other, "work", 1) == {2}


async def test_a_waiting_call_has_its_receiver(other: ferrymq.Connection) -> None:
    async def wait() -> object:
        return (await (await other.receiver("work")).receive()).message.body

    waiting = asyncio.create_task(wait())
    await (await other.session()).close()
    gc.collect()
    await (await other.sender("work")).send(Message("found"), timeout=20)
    assert await asyncio.wait_for(waiting, 20) == "found"


async def test_a_reader_of_chunks_is_closed(
    broker: BrokerServer, other: ferrymq.Connection
) -> None:
    await (await other.sender("clicks")).send(Message(1))

    async def read() -> None:
        await (await other.chunk_reader("clicks::0", name="reader")).receive(timeout=20)

    with pytest.warns(ResourceWarning, match=RECEIVER):
        await read()
        gc.collect()
    async with asyncio.timeout(20), other.chunk_reader("clicks::0", name="reader") as reader:
        assert await reader.receive() is not None


@pytest.mark.parametrize("reconnect", [False, True])
async def test_a_connection_is_closed_with_all_that_it_had(
    broker: BrokerServer, other: ferrymq.Connection, reconnect: bool
) -> None:
    await (await other.sender("work")).send_many([Message(number) for number in range(5)])

    async def take_and_forget() -> None:
        connection = await ferrymq.connect(broker.url, idle_time_out=30, reconnect=reconnect)
        await fill(await connection.receiver("work"), 5)
        txn = await connection.transaction()
        await (await connection.sender("work")).send(Message("never"), transaction=txn)

    with pytest.warns(ResourceWarning, match=CONNECTION):
        await take_and_forget()
        gc.collect()
    assert await bodies(other, "work", 5) == {0, 1, 2, 3, 4}
    async with asyncio.timeout(20):
        while len(broker.broker.handlers) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_connection_of_the_blocking_client(broker: BrokerServer) -> None:
    def work() -> None:
        blocking.connect(broker.url)

    with pytest.warns(ResourceWarning, match=CONNECTION):
        await asyncio.wait_for(asyncio.to_thread(work), 30)
        gc.collect()
    async with asyncio.timeout(20):
        while broker.broker.handlers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_who_waits_for_an_outcome_is_told() -> None:
    async with Peer() as peer:
        peer.on[events.DeliveryReceived] = lambda *_: None

        async def send() -> asyncio.Future[None]:
            sender = await (await ferrymq.connect(peer.url)).sender("q")
            await sender.ready()
            return sender.send_nowait(Message(b""))

        with pytest.warns(ResourceWarning, match=CONNECTION):
            outcome = await send()
            await peer.seen(events.DeliveryReceived)
            gc.collect()
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(outcome, 20)
        await peer.seen(events.CloseReceived)


async def test_a_link_or_session_has_its_connection(broker: BrokerServer) -> None:
    async def open() -> ferrymq.Sender:
        return await (await ferrymq.connect(broker.url)).sender("work")

    sender = await open()
    gc.collect()
    await sender.send(Message(1), timeout=20)
    await sender.session.connection.close()


async def test_what_was_closed_or_lost_does_not_warn(broker: BrokerServer) -> None:
    async def come_and_go() -> None:
        connection = await ferrymq.connect(broker.url)
        receiver = await connection.receiver("work")
        await receiver.close()
        receiver = await connection.receiver("work")
        await connection.close()
        lost = await ferrymq.connect(broker.url)
        kept = await lost.receiver("work")
        lost.transport.abort()
        with pytest.raises(ConnectionClosed):
            await lost.wait_closed(timeout=20)
        with pytest.raises((ConnectionClosed, LinkDetached)):
            await kept.receive(timeout=20)

    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        await come_and_go()
        gc.collect()


async def test_receivers_of_the_blocking_client(
    broker: BrokerServer, other: ferrymq.Connection
) -> None:
    await (await other.sender("work")).send_many([Message(number) for number in range(5)])

    def work() -> set[tuple[object, int]]:
        def take_and_forget(connection: blocking.Connection) -> None:
            connection.receiver("work").receive_many(3, timeout=20)

        with blocking.connect(broker.url) as connection:
            take_and_forget(connection)
            # The loop first gives back the dropped deliveries.
            connection.session().close()
            gc.collect()
            with connection.receiver("work") as receiver:
                taken = [receiver.receive(timeout=20).message for _ in range(5)]
                return {(message.body, message.delivery_count) for message in taken}

    with pytest.warns(ResourceWarning, match=RECEIVER):
        taken = await asyncio.wait_for(asyncio.to_thread(work), 30)
    # What was taken has failed; what had arrived was released.
    assert {body for body, _ in taken} == {0, 1, 2, 3, 4}
    assert {count for body, count in taken if body in (3, 4)} == {0}


async def test_a_connection_that_could_not_be_opened_does_not_warn(
    broker: BrokerServer, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(ferrymq.AmqpError, match="nonsense"):
        await ferrymq.connect(broker.url, required_capabilities=["nonsense"])
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()
    assert [one for one in recwarn if issubclass(one.category, ResourceWarning)] == []
