"""Workers, in both faces, against the project's own broker."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, Reject, Retry, Worker, blocking
from ferrymq.retries import RETRIES, backoff, failures_of
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer
from tests.client.cutter import Cutter
from tests.client.keeper import Cut
from tests.support.lanes import amount

# Queues on which a retry waits in the broker, and those on which it has to wait in the client.
SCHEDULED = "jobs"
HELD = ["once", "last", "grouped", "bounded"]


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    dead = {"dead-letter": "jobs.dead"}
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [
                {"name": "jobs", **dead},
                {"name": "jobs.dead"},
                {"name": "done"},
                {"name": "once", "duplicate-window": "1h", **dead},
                {"name": "last", "last-value-key": "key", **dead},
                {"name": "grouped", "groups": True, **dead},
                {"name": "bounded", "max-length": 10, "overflow": "drop-head", **dead},
                {"name": "full", "max-length": 1, "overflow": "reject", **dead},
            ],
            "topic": [{"name": "news"}],
        }
    )
    async with BrokerServer(config) as server:
        yield server


def queue(broker: BrokerServer, name: str = "jobs") -> Queue:
    found = broker.broker.default.nodes[name]
    assert isinstance(found, Queue)
    return found


async def put(broker: BrokerServer, *messages: Message, to: str = "jobs") -> None:
    async with ferrymq.connect(broker.url) as connection, connection.sender(to) as sender:
        await sender.send_many(list(messages))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(worker: Any, stop: bool = True) -> AsyncIterator[None]:
    """Run a worker of either face in the block, and stop it at the end, if that is not done."""
    if isinstance(worker, Worker):
        task = asyncio.create_task(worker.run())
    else:
        task = asyncio.create_task(asyncio.to_thread(worker.run))
    try:
        yield
    finally:
        if stop:
            worker.stop()
        await asyncio.wait_for(task, 30)


FACES = [Worker, blocking.Worker]


def handler(face: Any, function: Callable[[Any], Any]) -> Any:
    """The function as the handler of a face."""
    if face is blocking.Worker:
        return function

    async def handle(delivery: ferrymq.Delivery) -> None:
        function(delivery)

    return handle


@pytest.mark.parametrize("face", FACES)
async def test_each_message_is_handled_and_accepted(broker: BrokerServer, face: Any) -> None:
    seen: list[object] = []
    worker = face(broker.url, "jobs", handler(face, lambda d: seen.append(d.message.body)))
    await put(broker, *[Message(number) for number in range(200)])
    async with running(worker):
        await until(lambda: queue(broker).message_count() == 0)
    assert sorted(seen, key=str) == sorted(range(200), key=str)
    assert not broker.broker.handlers


@pytest.mark.parametrize("face", FACES)
async def test_so_many_at_a_time_and_no_more(broker: BrokerServer, face: Any) -> None:
    lock = threading.Lock()
    busy: set[int] = set()
    most = [0]

    def enter(number: int) -> None:
        with lock:
            busy.add(number)
            most[0] = max(most[0], len(busy))

    async def handle(delivery: ferrymq.Delivery) -> None:
        enter(delivery.message.body)
        await asyncio.sleep(0.01)
        busy.discard(delivery.message.body)

    def handle_in_thread(delivery: blocking.Delivery) -> None:
        enter(delivery.message.body)
        time.sleep(0.01)
        with lock:
            busy.discard(delivery.message.body)

    worker: Any
    if face is Worker:
        worker = Worker(broker.url, "jobs", handle, concurrency=4)
    else:
        worker = blocking.Worker(broker.url, "jobs", handle_in_thread, concurrency=4)
    await put(broker, *[Message(number) for number in range(60)])
    async with running(worker):
        await until(lambda: len(busy) == 4)
        # What it has not begun is there for other workers.
        assert queue(broker).acquired <= 4
        await until(lambda: queue(broker).message_count() == 0)
    assert most == [4]


@pytest.mark.parametrize("address", [SCHEDULED, *HELD])
@pytest.mark.parametrize("face", FACES)
async def test_a_handler_that_fails_is_retried_with_a_delay_and_then_a_dead_letter(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture, face: Any, address: str
) -> None:
    caplog.set_level(logging.INFO, "ferrymq.worker")
    times: list[float] = []
    attempts: list[int] = []
    delays: list[int] = []

    def fail(delivery: Any) -> None:
        times.append(time.monotonic())
        attempts.append(face.attempt(delivery))
        raise ValueError(f"not {delivery.message.body}")

    def delay(failures: int) -> timedelta:
        delays.append(failures)
        return timedelta(milliseconds=50 * failures)

    worker = face(broker.url, address, handler(face, fail), retries=3, retry_delay=delay)
    message = Message(
        "good", message_id="id-1", application_properties={"key": "k"}, durable=True, ttl=60
    )
    await put(broker, message, to=address)
    async with running(worker):
        await until(lambda: queue(broker, "jobs.dead").message_count() == 1)
    assert attempts == [1, 2, 3, 4] and delays == [1, 2, 3]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(pause >= 0.048 * n for n, pause in enumerate(pauses, 1)), pauses
    assert queue(broker, address).message_count() == 0
    async with ferrymq.connect(broker.url) as connection:
        dead = (await (await connection.receiver("jobs.dead")).receive(timeout=20)).message
    # The bare message is the one that was sent.
    assert (dead.body, dead.message_id) == ("good", "id-1")
    assert dead.application_properties == {"key": "k"} and dead.durable
    annotations = dead.message_annotations
    assert annotations["x-opt-deadletter-source"] == address
    assert annotations["x-opt-deadletter-reason"] == "rejected"
    assert annotations["x-opt-deadletter-condition"] == "ferrymq:retries-exhausted"
    reason = "the handler failed 4 times, at last with ValueError: not good"
    assert annotations["x-opt-deadletter-description"] == reason
    waits = "retries wait in this process" in caplog.text
    assert waits == (address != SCHEDULED)
    assert "attempt 1 of 4 to handle message 'id-1' failed" in caplog.text


async def test_a_retry_waits_in_the_broker_and_other_messages_go_on(broker: BrokerServer) -> None:
    """A worker that dies meanwhile takes no retry with it."""
    seen: list[object] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        seen.append(delivery.message.body)
        if delivery.message.body == "bad":
            raise Retry("later", delay=3600)

    await put(broker, Message("bad"), *[Message(number) for number in range(5)])
    async with running(Worker(broker.url, "jobs", handle, concurrency=1)):
        await until(lambda: len(seen) == 6)
        await until(lambda: queue(broker).acquired == 0)
        async with ferrymq.connect(broker.url) as connection, connection.management() as node:
            found: Any = (await node.request("PEEK-SCHEDULED", "queue", "jobs", {})).map()
            [shown] = found["messages"]
            message = Message.decode(shown["message"])
            noted = {"count": 1, "deliveries": 0, "deaths": 0}
            assert message.message_annotations[RETRIES] == noted


@pytest.mark.parametrize("address", [SCHEDULED, "once"])
async def test_retry_and_reject_are_for_the_handler_to_raise(
    broker: BrokerServer, address: str
) -> None:
    began = time.monotonic()
    times: list[float] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        times.append(time.monotonic() - began)
        if len(times) == 1:
            raise Retry(delay=timedelta(milliseconds=100))
        if len(times) == 2:
            raise Retry(delay=0)
        raise Reject("no such customer", condition="shop:customer")

    worker = Worker(broker.url, address, handle, retry_delay=3600)
    await put(broker, Message("x", message_id=1), to=address)
    async with running(worker):
        await until(lambda: queue(broker, "jobs.dead").message_count() == 1)
    assert len(times) == 3 and times[1] - times[0] >= 0.098
    async with ferrymq.connect(broker.url) as connection:
        dead = (await (await connection.receiver("jobs.dead")).receive(timeout=20)).message
    annotations = dead.message_annotations
    assert annotations["x-opt-deadletter-condition"] == "shop:customer"
    assert annotations["x-opt-deadletter-description"] == "no such customer"


@pytest.mark.parametrize("face", FACES)
async def test_an_outcome_of_the_handler_counts(broker: BrokerServer, face: Any) -> None:
    async def give(delivery: ferrymq.Delivery) -> None:
        if delivery.message.body == "bad":
            await delivery.reject("shop:bad")
        else:
            async with worker.connection.transaction() as txn:
                sender = await worker.connection.sender("done")
                await sender.send(Message("result"), transaction=txn)
            await delivery.accept()
            raise ValueError("too late")

    def give_in_thread(delivery: blocking.Delivery) -> None:
        if delivery.message.body == "bad":
            delivery.reject("shop:bad")
        else:
            worker.connection.sender("done").send(Message("result"), timeout=20)
            delivery.accept()
            raise ValueError("too late")

    await put(broker, Message("bad"), Message("good"))
    worker = face(broker.url, "jobs", give if face is Worker else give_in_thread)
    async with running(worker):
        await until(lambda: queue(broker).message_count() == 0)
    assert queue(broker, "jobs.dead").message_count() == 1
    assert queue(broker, "done").message_count() == 1
    with pytest.raises(RuntimeError, match="does not run"):
        _ = worker.connection


@pytest.mark.parametrize("face", FACES)
async def test_a_handler_that_takes_too_long_has_failed(broker: BrokerServer, face: Any) -> None:
    over = threading.Event()
    attempts: list[int] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        attempts.append(1)
        await asyncio.sleep(60)

    def handle_in_thread(delivery: blocking.Delivery) -> None:
        attempts.append(1)
        over.wait(20)

    worker = face(
        broker.url,
        "jobs",
        handle if face is Worker else handle_in_thread,
        timeout=0.05,
        retries=1,
        retry_delay=0,
    )
    await put(broker, Message("x"))
    async with running(worker):
        await until(lambda: queue(broker, "jobs.dead").message_count() == 1)
    over.set()
    assert len(attempts) == 2
    async with ferrymq.connect(broker.url) as connection:
        dead = (await (await connection.receiver("jobs.dead")).receive(timeout=20)).message
    reason = dead.message_annotations["x-opt-deadletter-description"]
    assert "TimeoutError: the handler took longer than 0.05 s" in str(reason)


async def test_a_malformed_message_is_rejected_at_once(broker: BrokerServer) -> None:
    async def handle(delivery: ferrymq.Delivery) -> None:
        raise AssertionError("it is never called")

    async with ferrymq.connect(broker.url) as connection:
        sender = await connection.sender("jobs")
        await sender.send_encoded([b"\x00\x53\x77\xff"])
    async with running(Worker(broker.url, "jobs", handle)):
        await until(lambda: queue(broker, "jobs.dead").message_count() == 1)


async def test_a_full_queue_takes_no_copy_and_the_retry_waits_here(broker: BrokerServer) -> None:
    attempts: list[int] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        attempts.append(Worker.attempt(delivery))
        if len(attempts) < 3:
            raise ValueError("again")

    await put(broker, Message("x"), to="full")
    async with running(Worker(broker.url, "full", handle, retry_delay=0.02)):
        await until(lambda: queue(broker, "full").message_count() == 0)
    assert attempts == [1, 2, 3]


async def test_a_subscription_waits_here_and_goes_on_afterwards(broker: BrokerServer) -> None:
    """A copy would go to all subscribers."""
    seen: list[object] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        seen.append(delivery.message.body)
        if len(seen) == 1:
            raise ValueError("again")

    async with ferrymq.connect(broker.url, container_id="shop") as connection:
        worker = Worker(
            connection,
            "news",
            handle,
            retry_delay=0.02,
            receiver={"name": "work", "durable": True},
        )
        task = asyncio.create_task(worker.run())
        topic: Any = broker.broker.default.nodes["news"]
        await until(lambda: len(topic.subscriptions()) == 1)
        await put(broker, Message("a"), to="news")
        await until(lambda: len(seen) == 2)
        worker.stop()
        await task
        assert not connection.closed
        # The subscription is there for the next worker.
        await put(broker, Message("b"), to="news")
        async with running(worker):
            await until(lambda: len(seen) == 3)
    assert seen == ["a", "a", "b"]


async def test_a_dead_letter_that_was_moved_back_has_all_its_attempts(
    broker: BrokerServer,
) -> None:
    attempts: list[int] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        attempts.append(Worker.attempt(delivery))
        raise ValueError("again")

    await put(broker, Message("x"))
    async with running(Worker(broker.url, "jobs", handle, retries=2, retry_delay=0.01)):
        for turn in (1, 2):
            await until(lambda: queue(broker, "jobs.dead").message_count() == 1)
            assert attempts == [1, 2, 3] * turn
            if turn == 1:
                async with (
                    ferrymq.connect(broker.url) as connection,
                    connection.management() as management,
                ):
                    assert (await management.move("jobs.dead", "jobs")).count == 1


async def test_failures_of_a_message() -> None:
    assert failures_of(Message(b"", delivery_count=3)) == 3
    noted = {RETRIES: {"count": 4, "deliveries": 2, "deaths": 0}}
    # Killed once since the worker wrote that down.
    assert failures_of(Message(b"", delivery_count=3, message_annotations=noted)) == 5
    dead = {**noted, "x-opt-deadletter-count": 1}
    assert failures_of(Message(b"", delivery_count=9, message_annotations=dead)) == 0
    assert failures_of(Message(b"", message_annotations={RETRIES: "nonsense"})) == 0
    assert all(0.5 * 2 ** (n - 1) <= backoff(n) <= 2 ** (n - 1) for n in range(1, 9))
    assert 150 <= backoff(100) <= 300


@pytest.mark.parametrize("seed", range(amount(1, 5)))
async def test_cut_connections_lose_nothing(broker: BrokerServer, seed: int) -> None:
    """Every message is handled at least once, and its work is there, whatever is cut."""
    results: Counter[object] = Counter()

    async def handle(delivery: ferrymq.Delivery) -> None:
        body = delivery.message.body
        await asyncio.sleep(0.001)
        if body % 7 == 0 and Worker.attempt(delivery) == 1:
            raise Retry(delay=0.01)
        results[body] += 1

    await put(broker, *[Message(number) for number in range(300)])
    port = int(broker.url.rpartition(":")[2])
    cuts = [Cut(outgoing=3000 + 500 * seed), Cut(incoming=4000), Cut(outgoing=5000)]
    async with (
        Cutter(port, cuts) as cutter,
        ferrymq.connect(
            cutter.url, reconnect=ferrymq.ReconnectPolicy(initial=0.01, maximum=0.05)
        ) as connection,
    ):
        worker = Worker(connection, "jobs", handle, concurrency=20, retries=50)
        async with running(worker):
            await until(lambda: queue(broker).message_count() == 0)
        assert cutter.connections > 3
    assert results.keys() == set(range(300))
    assert queue(broker, "jobs.dead").message_count() == 0


async def test_the_end_of_the_connection_ends_the_worker(broker: BrokerServer) -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def handle(delivery: ferrymq.Delivery) -> None:
        began.set()
        await asyncio.sleep(0.05)
        ended.set()

    await put(broker, Message("x"))
    async with ferrymq.connect(broker.url) as connection:
        task = asyncio.create_task(Worker(connection, "jobs", handle).run())
        await asyncio.wait_for(began.wait(), 20)
        connection.transport.abort()
        with pytest.raises(ferrymq.ConnectionClosed):
            await asyncio.wait_for(task, 20)
        # The handler was left to end.
        assert ended.is_set()
    assert queue(broker).message_count() == 1


@pytest.mark.parametrize("face", FACES)
async def test_stop_waits_for_the_handlers_and_gives_back_the_rest(
    broker: BrokerServer, face: Any
) -> None:
    go = threading.Event()
    began: list[object] = []
    ended: list[object] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        began.append(delivery.message.body)
        await asyncio.to_thread(go.wait, 20)
        ended.append(delivery.message.body)

    def handle_in_thread(delivery: blocking.Delivery) -> None:
        began.append(delivery.message.body)
        go.wait(20)
        ended.append(delivery.message.body)

    await put(broker, *[Message(number) for number in range(10)])
    worker = face(broker.url, "jobs", handle if face is Worker else handle_in_thread, concurrency=3)
    async with running(worker, stop=False):
        await until(lambda: len(began) == 3)
        # A second call would end the wait.
        worker.stop()
        await asyncio.sleep(0.05)
        assert not ended
        go.set()
    assert began == [0, 1, 2] and sorted(ended, key=str) == [0, 1, 2]
    assert queue(broker).message_count() == 7
    # Nobody has seen the others.
    async with ferrymq.connect(broker.url) as connection:
        receiver = await connection.receiver("jobs")
        for number in range(3, 10):
            delivery = await receiver.receive(timeout=20)
            assert (delivery.message.body, delivery.message.delivery_count) == (number, 0)


@pytest.mark.parametrize("how", ["grace", "again", "cancel"])
@pytest.mark.parametrize("face", FACES)
async def test_handlers_that_do_not_end_are_left_and_their_messages_released(
    broker: BrokerServer, face: Any, how: str
) -> None:
    if face is blocking.Worker and how == "cancel":
        pytest.skip("a thread is not cancelled")
    go = threading.Event()
    began: list[object] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        began.append(delivery.message.body)
        await asyncio.sleep(60)

    def handle_in_thread(delivery: blocking.Delivery) -> None:
        began.append(delivery.message.body)
        go.wait(20)

    await put(broker, Message("x"))
    grace = 0.05 if how == "grace" else 60
    worker = face(broker.url, "jobs", handle if face is Worker else handle_in_thread, grace=grace)
    if how == "cancel":
        task = asyncio.create_task(worker.run())
        await until(lambda: bool(began))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with running(worker):
            await until(lambda: bool(began))
            if how == "again":
                worker.stop()
                worker.stop()
    go.set()
    await until(lambda: all(thread.name != "ferrymq-worker" for thread in threading.enumerate()))
    async with ferrymq.connect(broker.url) as connection:
        delivery = await (await connection.receiver("jobs")).receive(timeout=20)
        # It was released, not failed.
        assert delivery.message.delivery_count == 0


async def test_a_retry_that_waits_here_is_given_back_at_the_stop(broker: BrokerServer) -> None:
    seen: list[object] = []

    async def handle(delivery: ferrymq.Delivery) -> None:
        seen.append(delivery.message.body)
        raise ValueError("again")

    await put(broker, Message("x", message_id=1), to="once")
    async with running(Worker(broker.url, "once", handle, retry_delay=3600)):
        await until(lambda: bool(seen))
        await asyncio.sleep(0.05)
    async with ferrymq.connect(broker.url) as connection:
        delivery = await (await connection.receiver("once")).receive(timeout=20)
        assert Worker.attempt(delivery) == 2


async def test_a_signal_that_the_program_handles_is_left_alone(broker: BrokerServer) -> None:
    async def handle(delivery: ferrymq.Delivery) -> None:
        pass

    caught: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: caught.append(number))
    try:
        worker = Worker(broker.url, "jobs", handle)
        async with running(worker):
            await until(lambda: worker._receiver is not None)
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: bool(caught))
            assert worker._stops == 0
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_wrong_arguments_are_told_at_once() -> None:
    async def handle(delivery: ferrymq.Delivery) -> None:
        pass

    def plain(delivery: Any) -> None:
        pass

    with pytest.raises(TypeError, match=r"use ferrymq\.blocking\.Worker"):
        Worker("amqp://localhost", "jobs", plain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"use ferrymq\.Worker"):
        blocking.Worker("amqp://localhost", "jobs", handle)  # type: ignore[arg-type]
    for wrong in (
        {"concurrency": 0},
        {"retries": -1},
        {"retry_delay": -1},
        {"timeout": -1},
        {"grace": -1},
        {"receiver": {"credit": 5}},
    ):
        for face in FACES:
            with pytest.raises(ValueError):
                face("amqp://localhost", "jobs", handler(face, plain), **wrong)


async def test_a_worker_runs_once_at_a_time(broker: BrokerServer) -> None:
    async def handle(delivery: ferrymq.Delivery) -> None:
        pass

    worker = Worker(broker.url, "jobs", handle)
    async with running(worker):
        await until(lambda: worker._receiver is not None)
        with pytest.raises(RuntimeError, match="runs already"):
            await worker.run()
    # Stopped before it begins, it ends at once; then it may run again.
    worker.stop()
    await asyncio.wait_for(worker.run(), 20)
    async with running(worker):
        await until(lambda: worker._receiver is not None)
