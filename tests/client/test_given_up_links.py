"""Attaches that are given up leave no link and no new terminus, and what was there untouched."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.options import ReceiverArguments
from ferrymq_types.messaging import TerminusExpiryPolicy
from tests.raw.fixtures import broker
from tests.raw.process import Broker

__all__ = ["broker"]

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def config() -> str:
    return """
[limits]
termini-per-user = 3
[[topic]]
name = "news"
max-subscriptions = 3
"""


KINDS: list[ReceiverArguments] = [
    {"durable": True},
    {"expiry_policy": TerminusExpiryPolicy.NEVER},
]


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url, container_id="me") as connected:
        yield connected


async def give_up(
    broker: Broker, connection: ferrymq.Connection, name: str, options: ReceiverArguments
) -> None:
    """Attach while the broker does not answer, and cancel it."""
    broker.signal(signal.SIGSTOP)
    task = asyncio.create_task(connection.receiver("news", name=name, **options).open())
    for _ in range(5):
        await asyncio.sleep(0)
    broker.signal(signal.SIGCONT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("options", KINDS, ids=["durable", "never"])
async def test_a_new_subscription_is_taken_back(
    broker: Broker, connection: ferrymq.Connection, options: ReceiverArguments
) -> None:
    await connection.sender("news")
    for number in range(5):
        await give_up(broker, connection, f"name-{number}", options)
    # The same name can be had at once, as often as there is room.
    async with asyncio.timeout(20):
        for number in (4, 3, 2):
            receiver = await connection.receiver("news", name=f"name-{number}", **options)
            await receiver.close()


@pytest.mark.parametrize("options", KINDS, ids=["durable", "never"])
async def test_a_subscription_that_was_there_stays(
    broker: Broker, connection: ferrymq.Connection, options: ReceiverArguments
) -> None:
    receiver = await connection.receiver("news", name="mine", **options)
    await receiver.detach()
    await (await connection.sender("news")).send(Message("while away"), timeout=20)
    await give_up(broker, connection, "mine", options)
    async with asyncio.timeout(20):
        receiver = await connection.receiver("news", name="mine", **options)
        assert (await receiver.receive()).message.body == "while away"
        await receiver.close()
