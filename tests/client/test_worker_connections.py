"""Connections of workers: a broker that is not up yet, one that refuses, and what is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, Reject, Worker, blocking
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.client.cutter import Cutter
from tests.client.keeper import Cut
from tests.client.test_workers import FACES, broker, put, queue, running, until

__all__ = ["broker"]


@pytest.mark.parametrize("face", FACES)
async def test_a_broker_that_starts_later_is_waited_for(
    broker: BrokerServer, face: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a worker that is started beside its broker, or while that is away. The link is asked
    for again too."""
    bodies: list[object] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        bodies.append(delivery.message.body)

    def handle_in_thread(delivery: blocking.Delivery) -> None:
        bodies.append(delivery.message.body)

    await put(broker, Message("x"))
    # The first connections end during the login, the open, the begin and the attach.
    cuts = [Cut(outgoing=number) for number in (0, 20, 200, 380, 420)]
    async with Cutter(1, cuts) as cutter:
        worker = face(cutter.url, "jobs", handle if face is Worker else handle_in_thread)
        async with running(worker):
            await until(lambda: cutter.connections > 1)
            cutter.port = int(broker.url.rpartition(":")[2])
            await until(lambda: bodies == ["x"])
    await until(lambda: queue(broker).message_count() == 0)
    [first, *_] = [r for r in caplog.records if "no connection yet" in r.getMessage()]
    assert first.levelno == logging.WARNING and cutter.url in first.getMessage()


@pytest.mark.parametrize("face", FACES)
async def test_a_stop_ends_the_wait_for_a_broker(face: Any) -> None:
    async with Cutter(1, []) as cutter:
        worker = face(cutter.url, "jobs", handle_nothing if face is Worker else print)
        async with running(worker):
            await until(lambda: cutter.connections > 1)


@pytest.mark.parametrize("face", FACES)
async def test_what_no_attempt_can_change_ends_the_worker_at_once(face: Any) -> None:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "security": {"anonymous": False, "users": {"ann": "right"}},
            "rule": [{"who": "user:ann", "may": "send", "where": "jobs"}],
        }
    )
    handler = handle_nothing if face is Worker else print
    async with BrokerServer(config) as server:
        place = server.url.removeprefix("amqp://")
        refusals = {
            f"amqp://ann:wrong@{place}": ferrymq.AuthenticationError,
            f"amqp://{place}": ferrymq.AuthenticationError,
            f"amqp://ann:right@{place}?hostname=vhost:none": ferrymq.ConnectionClosed,
            f"amqps://ann:right@{place}": ferrymq.TransportError,
            f"amqp://ann:right@{place}": ferrymq.LinkDetached,
        }
        for url, error in refusals.items():
            with pytest.raises(error):
                await asyncio.wait_for(run(face(url, "jobs", handler)), 10)


async def handle_nothing(delivery: ferrymq.Delivery) -> None:
    pass


async def run(worker: Any) -> None:
    if isinstance(worker, Worker):
        await worker.run()
    else:
        await asyncio.to_thread(worker.run)


async def test_a_failure_of_a_message_that_is_lost_waits_for_nothing(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue delivers it again, so the worker has nothing to put off or reject."""
    attempts: list[int] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        attempts.append(Worker.attempt(delivery))
        if len(attempts) == 1:
            delivery.receiver.session.connection.transport.abort()
            await until(lambda: delivery.gone)
            raise Reject("no order")

    await put(broker, Message("x"))
    async with running(Worker(broker.url, "jobs", handle, retry_delay=60)):
        await until(lambda: len(attempts) == 2 and queue(broker).message_count() == 0)
    assert attempts == [1, 2]
    assert queue(broker, "jobs.dead").message_count() == 0
    assert "whose connection was lost" in caplog.text


async def test_a_queue_that_is_another_after_a_reconnect_is_asked_again() -> None:
    """A copy would now be a duplicate, and the message would be lost with it."""
    attempts: list[tuple[object, int]] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        attempts.append((delivery.message.body, Worker.attempt(delivery)))
        if Worker.attempt(delivery) == 1:
            raise ValueError("again")

    def config(**settings: object) -> Config:
        return Config.model_validate(
            {
                "listener": [{"url": "amqp://127.0.0.1:0"}],
                "queue": [{"name": "jobs", **settings}],
                "shutdown": {"drain-timeout": 0.05},
            }
        )

    async with Cutter(1, []) as cutter:
        worker = Worker(cutter.url, "jobs", handle, retry_delay=0.05)
        async with BrokerServer(config()) as before:
            cutter.port = int(before.url.rpartition(":")[2])
            task = asyncio.create_task(worker.run())
            await put(before, Message("before", message_id=1))
            await until(lambda: queue(before).message_count() == 0 and len(attempts) == 2)
        async with BrokerServer(config(**{"duplicate-window": "1h"})) as after:
            await put(after, Message("after", message_id=2))
            cutter.port = int(after.url.rpartition(":")[2])
            await until(lambda: queue(after).message_count() == 0)
            worker.stop()
            await asyncio.wait_for(task, 20)
    assert attempts == [("before", 1), ("before", 2), ("after", 1), ("after", 2)]
