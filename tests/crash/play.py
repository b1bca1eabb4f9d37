"""The clients of a run, and what they do together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.crash.actors.actor import Actor
from tests.crash.actors.consumers import REJECTING, RETURNING, Consumer, Subscriber
from tests.crash.actors.declaring import Declarer, declare
from tests.crash.actors.fencing import Fencer
from tests.crash.actors.leasing import Leaser
from tests.crash.actors.once import OnceReceiver, OnceSender
from tests.crash.actors.producers import Producer, Repeater, Scheduler
from tests.crash.actors.streams import Reader, Rereader
from tests.crash.actors.transactions import Acquirer, Transactor
from tests.crash.client_side import ClientSide
from tests.crash.layout import DECLARED_SUBSCRIPTION, PARTITIONS, STREAM


def cast(stage: ClientSide) -> list[Actor]:
    """One client or more of every kind."""
    readers = [Reader(stage, f"follow-{number}", number) for number in range(PARTITIONS)]
    return [
        Producer(stage, "orders-1", "orders"),
        Producer(stage, "orders-2", "orders"),
        Consumer(stage, "taker", "orders"),
        Consumer(stage, "hasty", "orders", hasty=True),
        Producer(stage, "works", "work", 10),
        Consumer(stage, "worker-1", "work", REJECTING),
        Consumer(stage, "worker-2", "work", REJECTING),
        Producer(stage, "posts", "inbox", 10),
        Transactor(stage, "transacts-1"),
        Transactor(stage, "transacts-2"),
        Fencer(stage, "fences"),
        Acquirer(stage, "acquires"),
        Producer(stage, "fans", "both", 5),
        Scheduler(stage, "schedules", "later"),
        Consumer(stage, "awaits", "later"),
        Repeater(stage, "repeats", "again"),
        Producer(stage, "waits", "tight", 10),
        Consumer(stage, "makes-room", "tight"),
        Producer(stage, "insists", "full", 10),
        Consumer(stage, "relieves", "full"),
        Producer(stage, "spills", "spill", 3),
        Consumer(stage, "spares", "spill"),
        Producer(stage, "comes", "made.1", 5),
        Consumer(stage, "goes", "made.1"),
        Producer(stage, "publishes", "news", 5),
        Subscriber(stage, "reader", "daily", "news"),
        Consumer(stage, "helps", DECLARED_SUBSCRIPTION),
        Producer(stage, "logs", STREAM, 10),
        *readers,
        Rereader(stage, "looks-back", readers),
        Declarer(stage, "declares"),
        OnceSender(stage, "sends-once", "once"),
        OnceReceiver(stage, "takes-once", "once"),
        Producer(stage, "feeds", "batches"),
        Leaser(stage, "leases-1", "batches"),
        Leaser(stage, "leases-2", "batches"),
        Consumer(stage, "returns", "batches", RETURNING),
    ]


async def prepare(stage: ClientSide) -> None:
    """What must be there before the first message; the broker is up."""
    async with stage.connect("prepare") as connection, connection.management() as management:
        await declare(stage, management, "subscription", DECLARED_SUBSCRIPTION, {})
    await Subscriber(stage, "reader", "daily", "news").subscribe()


@asynccontextmanager
async def playing(actors: list[Actor]) -> AsyncIterator[None]:
    """Let them work in the meantime. An actor that gives up is a fault of the test."""
    tasks = [asyncio.create_task(actor.run(), name=actor.name) for actor in actors]
    try:
        yield
        await asyncio.gather(*(actor.finish() for actor in actors))
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
