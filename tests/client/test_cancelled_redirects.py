"""Links to a stream on two brokers, cancelled at every step: no link is left at either of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

import ferrymq
from ferrymq import Message
from tests.client.stepped import Moment, Stepped
from tests.client.test_cancelled_steps import ELSEWHERE, REDIRECTED
from tests.support.spread_brokers import STREAM, SpreadBrokers

pytestmark = pytest.mark.timeout(300)


async def script(connection: ferrymq.Connection) -> None:
    async with connection.partitioned_sender(STREAM, placement_max_age=0) as sender:
        await sender.send(Message("x", message_annotations={"x-opt-partition": 3}))
        await sender.send_many(["x"] * 4)
    async with connection.sender(f"{STREAM}::2") as sender:
        await sender.send("x")
    async with connection.receiver(f"{STREAM}::3", start=0) as receiver:
        await receiver.receive()


async def until(what: Callable[[], bool], about: object) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, about
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("shared", [True, False], ids=["connected", "connecting"])
@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.value)
async def test_no_link_is_left(moment: Moment, shared: bool) -> None:
    """With a connection to the other broker, and while that is made."""
    step, struck = 0, True
    visited: set[tuple[str, str]] = set()
    async with SpreadBrokers(2) as brokers:
        connection = await ferrymq.connect(brokers.urls[0])
        try:
            while struck:
                step += 1
                if not shared:
                    await connection.close()
                    connection = await ferrymq.connect(brokers.urls[0])
                stepped = Stepped(script(connection), step, moment)

                async def run(work: Stepped = stepped) -> None:
                    await work

                async with asyncio.timeout(20):
                    await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
                struck = stepped.struck
                visited |= stepped.visited
                for number in range(2):
                    stream = brokers.stream(number)
                    await until(lambda stream=stream: stream.links == 0, (step, number))
                assert len(brokers.servers[1].connections) <= 1 + (not shared)
            await script(connection)
        finally:
            await connection.close()
        for server in brokers.servers:
            await until(lambda server=server: not server.connections, step)
    assert step > 10
    assert shared or set(ELSEWHERE[REDIRECTED]) <= visited
