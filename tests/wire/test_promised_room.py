"""What a transaction was told it will be accepted has its room until the discharge (§4.4.4.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import ferrymq
from ferrymq import DeliveryRejected, ManagementClient, Message
from tests.raw.process import Broker

Work = Callable[[ferrymq.Connection, ferrymq.Connection, ManagementClient], Awaitable[None]]


# Last-value queues of one message.
CONFIG = """
    [[queue]]
    pattern = "last-*"
    max-length = 1
    last-value-key = "key"
"""


def run(broker: Broker, work: Work) -> None:
    """Do the work with two connections, and one for management."""

    async def go() -> None:
        async with (
            ferrymq.connect(broker.url) as first,
            ferrymq.connect(broker.url) as second,
            second.management() as management,
        ):
            await work(first, second, management)

    asyncio.run(go())


def value(key: str, body: str) -> Message:
    """Make a message that is the last one of a key until the next comes."""
    return Message(body=body, application_properties={"key": key})


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_message_that_replaces_one_which_is_consumed_meanwhile(
    broker: Broker, address: str, when: str
) -> None:
    """Its predecessor is accepted before the commit, or only after it."""
    queue = f"last-{address}"

    async def work(
        first: ferrymq.Connection, second: ferrymq.Connection, management: ManagementClient
    ) -> None:
        sender = await first.sender(queue)
        await sender.send(value("a", "old"))
        other = await second.sender(queue)
        async with first.transaction() as transaction:
            await sender.send(value("a", "new"), transaction=transaction)
            consumer = await second.receiver(queue, credit=0)
            consumer.add_credit(1)
            held = await consumer.receive(timeout=20)
            if when == "before":
                await held.accept()
                await consumer.close()
            with pytest.raises(DeliveryRejected):
                await other.send(value("b", "too much"))
        shown = await management.read("queue", queue)
        assert shown["excess"] == (0 if when == "before" else 1)
        if when == "after":
            await held.accept()
            await consumer.close()
        shown = await management.read("queue", queue)
        assert (shown["messages"], shown["excess"]) == (1, 0)
        with pytest.raises(DeliveryRejected):
            await other.send(value("b", "too much"))
        async with second.receiver(queue, credit=1) as last:
            assert (await last.receive(timeout=20)).message.body == "new"

    run(broker, work)


def test_a_rollback_gives_the_room_back(broker: Broker, address: str) -> None:
    queue = f"last-{address}"

    async def work(
        first: ferrymq.Connection, second: ferrymq.Connection, management: ManagementClient
    ) -> None:
        sender = await first.sender(queue)
        await sender.send(value("a", "old"))
        async with first.transaction() as transaction:
            await sender.send(value("a", "new"), transaction=transaction)
            async with second.receiver(queue, credit=1) as consumer:
                await (await consumer.receive(timeout=20)).accept()
            await transaction.rollback()
        await sender.send(value("b", "next"))
        assert (await management.read("queue", queue))["messages"] == 1

    run(broker, work)


def test_room_goes_on_to_the_one_that_comes_between(broker: Broker, address: str) -> None:
    queue = f"last-{address}"

    async def work(
        first: ferrymq.Connection, second: ferrymq.Connection, management: ManagementClient
    ) -> None:
        sender = await first.sender(queue)
        await sender.send(value("a", "old"))
        async with first.transaction() as transaction:
            await sender.send(value("a", "new"), transaction=transaction)
            await sender.send(value("a", "newer"), transaction=transaction)
            other = await second.sender(queue)
            await other.send(value("a", "between"))
            async with second.receiver(queue, credit=1) as consumer:
                delivery = await consumer.receive(timeout=20)
                assert delivery.message.body == "between"
                await delivery.accept()
            with pytest.raises(DeliveryRejected):
                await other.send(value("b", "too much"))
        shown = await management.read("queue", queue)
        assert (shown["messages"], shown["excess"]) == (1, 0)
        async with second.receiver(queue, credit=1) as consumer:
            assert (await consumer.receive(timeout=20)).message.body == "newer"

    run(broker, work)
