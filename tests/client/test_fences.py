"""Commits whose answer is lost: in doubt, unless they carried a fence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

import ferrymq
from ferrymq import Committed, Digest, Fence, FenceMismatch, FencePassed, Message, blocking
from ferrymq.errors import (
    ConnectionClosed,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from ferrymq.fence import Algorithm
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
    async with BrokerServer(config) as server:
        yield server


@pytest.fixture
async def connection(broker: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url, reconnect=True) as connected:
        yield connected


def messages(broker: BrokerServer, name: str = "q") -> int:
    queue = broker.broker.default.nodes[name]
    assert isinstance(queue, Queue)
    return queue.message_count()


def lose_the_answer(connection: ferrymq.Connection) -> None:
    """The next bytes from the peer are lost, and the connection with them."""
    transport = connection.transport
    transport.data_received = lambda data: transport.abort()  # type: ignore[method-assign]


def lose_the_question(connection: ferrymq.Connection) -> None:
    """What is written next is lost, and the connection with it."""
    transport = connection.transport
    transport.flush = transport.abort  # type: ignore[method-assign]
    transport.turn._flush = transport.abort


async def test_a_commit_without_an_answer_is_in_doubt(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    txn = await connection.transaction()
    await sender.send(Message("a"), transaction=txn)
    lose_the_answer(connection)
    async with asyncio.timeout(20):
        with pytest.raises(TransactionInDoubt, match="done or not") as caught:
            await txn.commit()
    assert isinstance(caught.value.__cause__, ConnectionClosed)
    assert not isinstance(caught.value, TransactionRolledBack)
    assert not txn.active
    # This time it was done.
    assert messages(broker) == 1


async def test_a_fence_tells_that_it_was_done(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    async with asyncio.timeout(20):
        async with connection.transaction(fence=Fence("g", "m", 7)) as txn:
            await sender.send(Message("a"), transaction=txn)
            lose_the_answer(connection)
        assert "committed" in repr(txn)
        assert messages(broker) == 1
        assert await connection.fence("g", "m") == 7


async def test_a_fence_tells_that_it_was_not_done(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    await sender.send(Message("before"))
    txn = await connection.transaction(fence=Fence("g", "m", 7))
    await sender.send(Message("a"), transaction=txn)
    lose_the_question(connection)
    async with asyncio.timeout(20):
        with pytest.raises(TransactionRolledBack):
            await txn.commit()
        assert messages(broker) == 1
        assert await connection.fence("g", "m") is None
        # So it can be done once more.
        async with connection.transaction(fence=Fence("g", "m", 7)) as txn:
            await sender.send(Message("a"), transaction=txn)
    assert messages(broker) == 2


async def test_work_is_not_committed_twice(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")
    for sequence, member in ((1, "m"), (5, "m"), (5, "n")):
        async with connection.transaction(fence=Fence("g", member, sequence, 2)) as txn:
            await sender.send(Message("a"), transaction=txn)
    for sequence in (5, 4):
        with pytest.raises(FencePassed, match="is not higher") as caught:
            async with connection.transaction(fence=Fence("g", "m", sequence)) as txn:
                await sender.send(Message("again"), transaction=txn)
        assert caught.value.sequence == 5
        assert caught.value.condition == "ferrymq:fence-passed"
        assert isinstance(caught.value, TransactionRolledBack)
    assert messages(broker) == 3
    assert await connection.fence("g", "m") == 5
    assert await connection.fence("g", "other") is None


async def test_a_member_that_has_gone_on_meanwhile(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    """Somebody else writes under the same name: our work is neither done nor to be done again."""
    sender = await connection.sender("q")
    async with (
        ferrymq.connect(broker.url) as other,
        other.transaction(fence=Fence("g", "m", 8)) as theirs,
    ):
        await (await other.sender("q")).send(Message("theirs"), transaction=theirs)
    txn = await connection.transaction(fence=Fence("g", "m", 7))
    await sender.send(Message("ours"), transaction=txn)
    lose_the_answer(connection)
    async with asyncio.timeout(20):
        with pytest.raises(FencePassed) as caught:
            await txn.commit()
    assert caught.value.sequence == 8


def digest(*rows: bytes) -> Digest:
    return digest_of("sha-256", *rows)


def digest_of(algorithm: Algorithm, *rows: bytes) -> Digest:
    found = Digest(algorithm=algorithm)
    found.add(rows)
    return found


@pytest.mark.parametrize(
    ("algorithm", "head", "of_a_and_b"),
    # It is stored for a long time: another function would refuse all that is.
    [
        ("sha-256", "", "08bb6929ca5416152e4c8118ff048e82"),
        ("xxh3-128", "01", "f491c15375bae8083e213ed2626ed35e"),
    ],
)
def test_a_digest_is_the_same_in_any_order_and_in_parts(
    algorithm: Algorithm, head: str, of_a_and_b: str
) -> None:
    made = partial(digest_of, algorithm)
    whole = made(b"a", b"b", b"c")
    assert whole == made(b"c", b"a", b"b")
    parts = made(b"c", b"b")
    parts.merge(made(b"a"))
    assert parts == whole and hash(parts) == hash(whole)
    assert Digest(3, whole.value) == whole and Digest(3, whole.value).algorithm == algorithm
    # What is there twice counts twice, and nothing is nothing.
    assert made(b"a", b"a") != made(b"a") != made()
    assert (whole.rows, made().value) == (3, bytes.fromhex(head) + bytes(16))
    assert made(b"a", b"b").value.hex() == head + of_a_and_b


def test_digests_of_two_algorithms_are_not_added() -> None:
    with pytest.raises(ValueError, match="xxh3-128 cannot be added to one of sha-256"):
        digest_of("sha-256", b"a").merge(digest_of("xxh3-128", b"b"))


async def test_each_target_has_a_fence_of_its_own_with_what_was_written(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("q")

    async def write(target: str, *rows: bytes) -> None:
        async with connection.transaction(fence=Fence("g", "m", 7, target=target)) as txn:
            await sender.send_many([Message(row) for row in rows], transaction=txn)
            await txn.commit(digest=digest(*rows))

    await write("here", b"a", b"b")
    await write("there", b"c")
    with pytest.raises(FencePassed):
        await write("here", b"b", b"a")
    with pytest.raises(FenceMismatch, match=r"ferrymq:fence-content.*2 rows") as caught:
        await write("here", b"a", b"c")
    assert not isinstance(caught.value, FencePassed)
    assert messages(broker) == 3
    assert await connection.committed("g", "m", target="here") == Committed(
        7, 0, "here", digest(b"a", b"b")
    )
    assert await connection.fence("g", "m", target="there") == 7
    assert await connection.committed("g", "m") is None


async def test_a_commit_without_an_answer_that_was_somebody_elses(
    broker: BrokerServer, connection: ferrymq.Connection
) -> None:
    """The same number stands for other rows: ours are not there."""
    sender = await connection.sender("q")
    fence = Fence("g", "m", 7, target="q")
    txn = await connection.transaction(fence=fence)
    await sender.send(Message("ours"), transaction=txn)
    async with ferrymq.connect(broker.url) as other:
        theirs = await other.transaction(fence=fence)
        await (await other.sender("q")).send(Message("theirs"), transaction=theirs)
        await theirs.commit(digest=digest(b"theirs"))
    lose_the_answer(connection)
    async with asyncio.timeout(20):
        with pytest.raises(FenceMismatch):
            await txn.commit(digest=digest(b"ours"))
    assert messages(broker) == 1


async def test_without_reconnecting_it_stays_in_doubt(broker: BrokerServer) -> None:
    async with ferrymq.connect(broker.url) as connection:
        sender = await connection.sender("q")
        txn = await connection.transaction(fence=Fence("g", "m", 7))
        await sender.send(Message("a"), transaction=txn)
        lose_the_answer(connection)
        with pytest.raises(TransactionInDoubt):
            await asyncio.wait_for(txn.commit(), 20)
    # The next process asks for itself.
    async with ferrymq.connect(broker.url) as connection:
        assert await connection.fence("g", "m") == 7


async def test_the_blocking_client(broker: BrokerServer) -> None:
    def work() -> None:
        with blocking.connect(broker.url) as connection:
            assert connection.fence("g", "b") is None
            with connection.transaction(fence=Fence("g", "b", 1)):
                pass
            with connection.session() as session, session.transaction(fence=Fence("g", "b", 2)):
                pass
            assert connection.fence("g", "b", timeout=20) == 2
            with pytest.raises(FencePassed), connection.transaction(fence=Fence("g", "b", 2)):
                pass
            txn = connection.transaction(fence=Fence("g", "b", 3, target="t"))
            txn.commit(digest=digest(b"x"))
            assert connection.fence("g", "b", target="t") == 3
            found = connection.committed("g", "b", target="t", timeout=20)
            assert found is not None and found.digest == digest(b"x")

    await asyncio.to_thread(work)


class Pauses(list[float]):
    """The pauses that were asked for; each is over at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


async def test_a_peer_that_refuses_the_links_is_asked_again_and_not_for_ever() -> None:
    config = Config.model_validate(
        {"listener": [{"url": "amqp://127.0.0.1:0"}], "limits": {"links": 3}}
    )
    pauses = Pauses()
    policy = ferrymq.ReconnectPolicy(initial=1, maximum=8, random=lambda: 1.0, sleep=pauses)
    async with (
        BrokerServer(config) as broker,
        ferrymq.connect(broker.url, reconnect=policy, timeout=30) as connection,
    ):
        other, sender = await connection.sender("q"), await connection.sender("q")
        txn = await connection.transaction(fence=Fence("g", "m", 7))
        await sender.send(Message("a"), transaction=txn)
        lose_the_answer(connection)
        async with asyncio.timeout(20):
            with pytest.raises(TransactionInDoubt, match="resource-limit-exceeded"):
                await txn.commit()
            # The first is that of the connection.
            assert pauses == [1, 1, 2, 4, 8, 8]
            # When there is room, it can be asked again.
            await sender.close()
            await other.close()
            await txn.commit()
        assert "committed" in repr(txn)


async def test_a_user_who_may_not_ask_is_in_doubt() -> None:
    """Who may not send at a target may not read its fences either."""
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "rule": [{"who": "*", "may": ["send", "create"], "where": "q"}],
        }
    )
    policy = ferrymq.ReconnectPolicy(sleep=Pauses())
    async with (
        BrokerServer(config) as broker,
        ferrymq.connect(broker.url, reconnect=policy) as connection,
        asyncio.timeout(20),
    ):
        sender = await connection.sender("q")
        txn = await connection.transaction(fence=Fence("g", "m", 7, target="elsewhere"))
        await sender.send(Message("a"), transaction=txn)
        lose_the_answer(connection)
        for call in (txn.commit, txn.rollback):
            with pytest.raises(TransactionInDoubt, match="403"):
                await call()
        with pytest.raises(TransactionError, match="403"):
            await connection.fence("g", "m", target="elsewhere")
