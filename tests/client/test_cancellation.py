"""Cancelling at any moment loses no message and leaves nothing behind."""

from __future__ import annotations

import asyncio
import random

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from tests.client.peer import Peer


@pytest.mark.parametrize("seed", range(10))
async def test_receivers_that_are_cancelled_lose_nothing(
    peer: Peer, connection: ferrymq.Connection, seed: int
) -> None:
    chance = random.Random(seed)
    peer.put("work", *range(300))
    receiver = await connection.receiver("work", credit=chance.choice([1, 2, 7, 100]))
    taken: list[int] = []

    async def take() -> None:
        delivery = await receiver.receive()
        taken.append(delivery.message.body)
        await delivery.accept()

    while len(taken) < 300:
        tasks = [asyncio.create_task(take()) for _ in range(chance.randint(1, 8))]
        for _ in range(chance.randint(0, 6)):
            await asyncio.sleep(0)
        for task in tasks:
            if chance.random() < 0.5 or len(taken) + len(tasks) > 300:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert taken == list(range(300))
    await peer.seen(events.OutcomeReceived, 300)


@pytest.mark.parametrize("seed", range(10))
async def test_senders_that_are_cancelled_do_not_block_the_others(
    peer: Peer, connection: ferrymq.Connection, seed: int
) -> None:
    chance = random.Random(seed)
    peer.credit = chance.choice([1, 2, 5])
    sender = await connection.sender("orders")
    done: list[int] = []

    async def send(number: int) -> None:
        await sender.send(Message(number))
        done.append(number)

    tasks = [asyncio.create_task(send(number)) for number in range(200)]
    for task in tasks:
        if chance.random() < 0.3:
            for _ in range(chance.randint(0, 3)):
                await asyncio.sleep(0)
            task.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, return_exceptions=True)
        # Whatever was sent and given up on is settled all the same.
        await sender.send(Message("last"))
    received = [message.body for message in peer.received["orders"]]
    assert received[-1] == "last"
    assert set(done) <= set(received)
    assert len(received) == len(set(received))
    assert sorted(received[:-1]) == received[:-1]
    assert sender.unsettled == 0


@pytest.mark.parametrize("seed", range(10))
async def test_links_that_are_given_up_leave_the_session_usable(
    peer: Peer, connection: ferrymq.Connection, seed: int
) -> None:
    chance = random.Random(seed)

    async def use(number: int) -> None:
        async with connection.sender(f"node-{number % 3}") as sender:
            await sender.send(Message(number))
        async with connection.receiver(f"node-{number % 3}") as receiver:
            await receiver.receive()

    tasks = [asyncio.create_task(use(number)) for number in range(40)]
    while not all(task.done() for task in tasks):
        chance.choice(tasks).cancel()
        await asyncio.sleep(0)
    await (await connection.sender("last")).send(Message(b"x"), timeout=10)
    # A round trip, then both sides have forgotten every link but the last.
    await (await connection.session()).close()
    (shared,) = connection.sessions
    assert len(shared.links) == 1
    assert len(shared.engine.links) == 1
