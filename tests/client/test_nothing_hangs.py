"""Calls that are under way when the connection is lost, closed or frozen come to an end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, blocking
from ferrymq.engine import events
from ferrymq.errors import ConnectionClosed
from tests.client.keeper import at_once
from tests.client.peer import Peer
from tests.raw.fixtures import address, broker, config
from tests.raw.process import Broker

__all__ = ["address", "broker", "config"]

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url) as connected:
        yield connected


@contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    """The broker answers nothing."""
    broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.signal(signal.SIGCONT)


LEAVES = ["receiver.close", "receiver.detach", "sender.close", "sender.detach", "session.close"]


@pytest.mark.parametrize("reconnect", [False, True])
@pytest.mark.parametrize("leave", LEAVES)
async def test_a_close_under_way_ends_with_the_connection(
    peer: Peer, leave: str, reconnect: bool
) -> None:
    for kind in (events.DetachReceived, events.EndReceived):
        peer.on[kind] = lambda *_: None
    policy = ReconnectPolicy(sleep=at_once) if reconnect else False
    async with ferrymq.connect(peer.url, reconnect=policy) as connection:
        session = await connection.session()
        things = {
            "receiver": await session.receiver("q"),
            "sender": await session.sender("q"),
            "session": session,
        }
        thing, verb = leave.split(".")
        task = asyncio.create_task(getattr(things[thing], verb)(timeout=None))
        await peer.seen(events.EndReceived if thing == "session" else events.DetachReceived)
        for kind in (events.DetachReceived, events.EndReceived):
            del peer.on[kind]
        peer.connection.transport.abort()
        async with asyncio.timeout(10):
            await task


async def test_closing_while_reconnecting_tells_who_waits(peer: Peer) -> None:
    trying = asyncio.Event()

    async def wait(_: float) -> None:
        trying.set()
        await asyncio.Event().wait()

    async with ferrymq.connect(peer.url, reconnect=ReconnectPolicy(sleep=wait)) as connection:
        receiver = await connection.receiver("q")
        sender = await connection.sender("r")
        peer.connection.transport.abort()
        await trying.wait()
        calls = [
            receiver.receive(),
            sender.send(Message(b"")),
            connection.session().open(),
            connection.sender("s").open(),
            connection.receiver("s").open(),
            connection.transaction().open(),
        ]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await connection.close()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(error, ConnectionClosed), error


async def test_a_frozen_broker_costs_no_more_than_the_timeout(
    broker: Broker, connection: ferrymq.Connection
) -> None:
    with frozen(broker):
        async with asyncio.timeout(10):
            for opening in (
                connection.transaction(timeout=0.05),
                connection.session(timeout=0.05),
                connection.session(timeout=0),
            ):
                with pytest.raises(TimeoutError):
                    await opening
            await connection.close(timeout=0.05)
    assert connection.closed


async def test_the_timeout_of_the_connection_is_the_default(broker: Broker) -> None:
    connection = await ferrymq.connect(broker.url, timeout=0.2, close_timeout=0.05)
    session = await connection.session()
    with frozen(broker):
        async with asyncio.timeout(10):
            for opening in (connection.transaction(), session.transaction(), connection.session()):
                with pytest.raises(TimeoutError):
                    await opening
            await session.close(timeout=0.05)
            await connection.close()


async def test_the_blocking_client_has_the_same_timeouts(broker: Broker) -> None:
    def work() -> None:
        connection = blocking.connect(broker.url)
        with frozen(broker):
            for call in (connection.transaction, connection.session):
                with pytest.raises(TimeoutError):
                    call(timeout=0.05)
            connection.close(timeout=0.05)

    await asyncio.wait_for(asyncio.to_thread(work), 20)


async def test_times_that_are_none_are_refused(
    broker: Broker, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    receiver = await connection.receiver("q")
    for options in ({"timeout": -1}, {"close_timeout": -1}, {"idle_time_out": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            ferrymq.connect(broker.url, **options)  # type: ignore[arg-type]
    calls: list[Callable[[], Any]] = [
        lambda: connection.session(timeout=-1),
        lambda: connection.transaction(timeout=-1),
        lambda: connection.sender("q", timeout=-1),
        lambda: connection.receiver("q", timeout=float("nan")),
        lambda: sender.send(Message(b""), timeout=-1),
        lambda: receiver.receive(timeout=-1),
        lambda: receiver.drain(timeout=-1),
        lambda: sender.close(timeout=-1),
        lambda: connection.close(timeout=-1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="timeout"):
            await call()
    assert not connection.closed and not sender.closed


def test_a_forked_child_leaves_in_peace(broker: Broker) -> None:
    with blocking.connect(broker.url) as connection:
        child = 0
        try:
            with (
                connection.session() as session,
                session.sender("q"),
                session.receiver("q"),
                connection.transaction(),
            ):
                child = os.fork()
                if child == 0:
                    sys.exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        except SystemExit as end:
            # The child must not run the tests that follow.
            connection.close()
            os._exit(end.code if isinstance(end.code, int) else 1)
        except BaseException:
            if child == 0:
                os._exit(1)
            raise
