"""Loops over messages that are left: what becomes of the message in hand."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

import ferrymq
from ferrymq import blocking
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import Accepted, Released
from tests.client.peer import Peer
from tests.client.test_giving_back import FAILED, Broken, client, outcomes, server, settled

__all__ = ["client", "server"]


async def test_an_exception_fails_the_message_in_hand(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.put("orders", 1, 2, 3)
    with pytest.raises(Broken):
        async for delivery in connection.receiver("orders"):
            if delivery.message.body == 2:
                raise Broken
            await delivery.accept()
    assert await settled(peer, 3) == [Accepted(), FAILED, Released()]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["break", "return", "break in blocks", "return in a loop"])
async def test_a_break_releases_the_message_in_hand(
    peer: Peer, connection: ferrymq.Connection, how: str
) -> None:
    peer.put("orders", 1)

    async def work() -> object:
        if how == "return in a loop":
            for _ in range(2):
                async for delivery in connection.receiver("orders"):
                    return delivery
        async for delivery in connection.receiver("orders"):
            if how == "return":
                return delivery.message.body
            if how == "break":
                break
            with contextlib.suppress(Broken):
                try:
                    break
                finally:
                    str(delivery)
        return None

    await work()
    assert await settled(peer) == [Released()]
    gc.collect()


async def test_an_outcome_after_a_break_counts(peer: Peer, connection: ferrymq.Connection) -> None:
    peer.put("orders", 1)
    async for delivery in connection.receiver("orders"):
        taken = delivery
        break
    await taken.accept()
    assert await settled(peer) == [Accepted()]


@pytest.mark.parametrize("how", ["caught", "caught in a block", "from a finally"])
async def test_an_exception_that_is_caught_outside_fails_it(
    peer: Peer, connection: ferrymq.Connection, how: str
) -> None:
    peer.put("orders", 1)
    try:
        async for delivery in connection.receiver("orders"):
            if how == "caught":
                int("no number")
            with contextlib.suppress(KeyError):
                try:
                    raise ValueError(delivery)
                finally:
                    str(delivery)
    except ValueError:
        assert await settled(peer) == [FAILED]


@pytest.mark.parametrize("error", [None, Broken, asyncio.CancelledError])
async def test_a_block_that_closes_the_loop(
    peer: Peer, connection: ferrymq.Connection, error: type[BaseException] | None
) -> None:
    peer.put("orders", 1)
    with contextlib.suppress(Broken, asyncio.CancelledError):
        async with contextlib.aclosing(aiter(connection.receiver("orders"))) as deliveries:
            async for _ in deliveries:
                if error is not None:
                    raise error
                break
    assert await settled(peer) == [FAILED if error is Broken else Released()]


async def test_a_cancellation_releases_it(peer: Peer, connection: ferrymq.Connection) -> None:
    peer.put("orders", 1)
    begun = asyncio.Event()

    async def work() -> None:
        async for _ in connection.receiver("orders"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await settled(peer) == [Released()]


async def test_over_a_receiver_that_goes_on(peer: Peer, connection: ferrymq.Connection) -> None:
    peer.put("orders", 1, 2)
    receiver = await connection.receiver("orders", credit=2)

    async def work() -> None:
        async for delivery in receiver:
            raise Broken(delivery.message.body)

    for body in (1, 2):
        with pytest.raises(Broken, match=str(body)):
            await work()
    assert await settled(peer, 2) == [FAILED, FAILED]
    assert receiver.credit == 2


async def test_a_break_in_the_blocking_client(server: BrokerServer) -> None:
    """The message stays in hand; the end of the block gives it back, and counts nothing."""

    def work() -> list[int]:
        counts: list[int] = []
        with blocking.connect(server.url) as connection:
            connection.sender("jobs").send("x")
            for _ in range(3):
                with connection.receiver("jobs") as receiver:
                    for delivery in receiver:
                        counts.append(delivery.message.delivery_count)
                        break
            with connection.receiver("jobs") as receiver:
                for delivery in receiver:
                    taken = delivery
                    break
                taken.accept()
        return counts

    assert await asyncio.to_thread(work) == [0, 0, 0]


async def test_breaks_count_nothing(client: ferrymq.Connection) -> None:
    await (await client.sender("jobs")).send("x")
    for _ in range(4):
        async for delivery in client.receiver("jobs"):
            assert delivery.message.delivery_count == 0
            break
        await client.session()


async def test_over_a_receiver_of_the_blocking_client(peer: Peer) -> None:
    peer.put("orders", 1, 2)

    def work() -> None:
        def handle(receiver: blocking.Receiver) -> None:
            for delivery in receiver:
                raise Broken(delivery.message.body)

        with blocking.connect(peer.url) as connection:
            receiver = connection.receiver("orders", credit=1)
            for body in (1, 2):
                with pytest.raises(Broken, match=str(body)):
                    handle(receiver)

    await asyncio.to_thread(work)
    assert outcomes(peer) == [FAILED, FAILED]
