"""At least once with one word: what is in doubt after a loss is sent again with `reconnect=True`.

Against the project's own broker, over connections that a proxy cuts after so many bytes.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, blocking
from ferrymq.engine import events
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_types.transport import Error
from tests.client.cutter import Cutter
from tests.client.keeper import Cut
from tests.client.peer import Peer, PeerConnection
from tests.support.lanes import amount

POLICY = ReconnectPolicy(initial=0.001, maximum=0.01)
SIZE = 200


def ignoring(*_: object) -> None:
    """Leave an event without the usual answer."""


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [{"name": "orders"}, {"name": "once", "duplicate-window": "1h"}],
        }
    )
    async with BrokerServer(config) as server:
        yield server


def port(server: BrokerServer) -> int:
    return int(server.url.rpartition(":")[2])


async def bodies(server: BrokerServer, address: str = "orders") -> list[int]:
    """What the queue has, in its order."""
    found: list[int] = []
    async with (
        ferrymq.connect(server.url) as connection,
        connection.receiver(address, credit=0) as receiver,
    ):
        receiver.add_credit(100_000)
        await receiver.drain(timeout=20)
        while receiver.queued:
            delivery = await receiver.receive()
            found.append(int(delivery.message.subject or ""))
            await delivery.accept()
    return found


def message(number: int) -> Message:
    return Message(bytes(SIZE), subject=f"{number}", message_id=number)


def counted(caplog: pytest.LogCaptureFixture) -> int:
    """How many messages were sent again, as the log tells."""
    found = re.findall(r"(\d+) messages to '\w+' had no outcome .* sent again", caplog.text)
    return sum(int(number) for number in found)


@pytest.mark.parametrize("way", ["send", "send_many", "send_nowait"])
@pytest.mark.parametrize("direction", ["incoming", "outgoing"])
@pytest.mark.parametrize("seed", range(amount(2, 20)))
async def test_cut_connections_lose_nothing(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture, way: str, direction: str, seed: int
) -> None:
    caplog.set_level(logging.WARNING, "ferrymq")
    rng = random.Random(f"{way} {direction} {seed}")
    # On the way to the broker messages are cut; on the way back their outcomes, which are a hundred
    # bytes at least behind the 460 of the handshake and the attach.
    span = (10_000, 40_000) if direction == "incoming" else (461, 557)
    cuts = [Cut(**{direction: rng.randrange(*span)}) for _ in range(6)]
    count = 600
    async with (
        Cutter(port(broker), cuts) as cutter,
        ferrymq.connect(cutter.url, reconnect=POLICY, timeout=5) as connection,
        asyncio.timeout(50),
    ):
        sender = await connection.sender("orders")
        if way == "send_many":
            await sender.send_many([message(number) for number in range(count)])
        elif way == "send":
            turn = asyncio.Semaphore(50)

            async def send(number: int) -> None:
                async with turn:
                    await sender.send(message(number))

            await asyncio.gather(*[send(number) for number in range(count)])
        else:
            futures = []
            for number in range(count):
                await sender.ready()
                futures.append(sender.send_nowait(message(number)))
            await asyncio.gather(*futures)
        assert sender.unsettled == 0
        assert cutter.connections > 1
    found = await bodies(broker)
    assert set(found) == set(range(count))
    # Each is there once, or was announced in the log.
    assert len(found) - count <= counted(caplog)
    assert counted(caplog) > 0
    if way != "send":
        # First deliveries keep the order in which they were sent.
        first = list(dict.fromkeys(found))
        assert first == sorted(first)


async def test_duplicate_detection_makes_it_exactly_once(broker: BrokerServer) -> None:
    cuts = [Cut(outgoing=450) for _ in range(5)]
    async with (
        Cutter(port(broker), cuts) as cutter,
        ferrymq.connect(cutter.url, reconnect=POLICY) as connection,
        asyncio.timeout(50),
    ):
        sender = await connection.sender("once")
        await sender.send_many([message(number) for number in range(300)])
    assert await bodies(broker, "once") == list(range(300))


async def test_reconnect_true_is_enough(broker: BrokerServer) -> None:
    cuts = [Cut(outgoing=450)]
    async with (
        Cutter(port(broker), cuts) as cutter,
        ferrymq.connect(cutter.url, reconnect=True) as connection,
        asyncio.timeout(50),
    ):
        sender = await connection.sender("orders")
        await sender.send_many([message(number) for number in range(300)])
        assert cutter.connections == 2
    assert Counter(await bodies(broker)).keys() == set(range(300))


async def test_the_blocking_client(broker: BrokerServer) -> None:
    cuts = [Cut(outgoing=450) for _ in range(3)]
    async with Cutter(port(broker), cuts) as cutter:

        def run() -> None:
            with blocking.connect(cutter.url, reconnect=POLICY) as connection:
                sender = connection.sender("orders")
                sender.send_many([message(number) for number in range(150)])
                futures = []
                while len(futures) < 150:
                    sender.ready()
                    try:
                        futures.append(sender.send_nowait(message(150 + len(futures))))
                    except ferrymq.LocalProtocolError:
                        # The connection was lost between the two calls.
                        continue
                for future in futures:
                    future.result(20)

        await asyncio.wait_for(asyncio.to_thread(run), 50)
    assert set(await bodies(broker)) == set(range(300))


async def test_a_peer_that_is_lost_again_and_again(peer: Peer) -> None:
    """In their order, from the first that has no outcome, on every connection."""
    limits = [4, 3, 2, 100]
    seen: list[list[object]] = [[] for _ in limits]

    def lose(connection: PeerConnection, event: events.DeliveryReceived) -> None:
        turn = peer.connections.index(connection)
        if len(seen[turn]) < limits[turn]:
            seen[turn].append(Message.decode(event.delivery.payload).body)
        if turn == 3:
            peer.default(connection, event)
        elif len(seen[turn]) == limits[turn]:
            connection.transport.abort()

    peer.on[events.DeliveryReceived] = lose
    async with ferrymq.connect(peer.url, reconnect=POLICY) as connection, asyncio.timeout(20):
        sender = await connection.sender("orders")
        await sender.send_many([Message(number) for number in range(4)])
    assert seen == [[0, 1, 2, 3], [0, 1, 2], [0, 1], [0, 1, 2, 3]]


async def test_a_caller_that_has_left_is_not_served(peer: Peer) -> None:
    """Its message may have arrived or not; it is not sent again behind its back."""
    peer.on[events.DeliveryReceived] = ignoring
    async with ferrymq.connect(peer.url, reconnect=POLICY) as connection, asyncio.timeout(20):
        sender = await connection.sender("orders")
        with pytest.raises(TimeoutError):
            await sender.send(Message("late"), timeout=0.05)
        del peer.on[events.DeliveryReceived]
        peer.connection.transport.abort()
        await sender.send(Message("next"))
    assert [message.body for message in peer.received["orders"]] == ["next"]


async def test_a_message_of_a_transaction_is_not_sent_again(broker: BrokerServer) -> None:
    async with ferrymq.connect(broker.url, reconnect=POLICY) as connection, asyncio.timeout(20):
        sender = await connection.sender("orders")
        txn = await connection.transaction()
        sending = asyncio.create_task(sender.send(message(1), transaction=txn))
        await asyncio.sleep(0)
        connection.transport.abort()
        with pytest.raises(ferrymq.ConnectionClosed):
            await sending
        await sender.send(message(2))
    assert await bodies(broker) == [2]


async def test_the_last_of_a_settled_batch_is_not_sent_alone(peer: Peer) -> None:
    """It would say of the messages before it that they have arrived."""
    peer.on[events.DeliveryReceived] = ignoring
    async with ferrymq.connect(peer.url, reconnect=POLICY) as connection, asyncio.timeout(20):
        sender = await connection.sender("orders")
        batch = [Message(number).encode() for number in range(3)]
        sending = asyncio.create_task(sender.send_encoded(batch, settled=True))
        await peer.seen(events.DeliveryReceived, 3)
        peer.connection.transport.abort()
        with pytest.raises(ferrymq.ConnectionClosed):
            await sending


async def test_a_tag_of_the_user_is_kept(peer: Peer) -> None:
    tags: list[bytes] = []

    def lose(connection: object, event: events.DeliveryReceived) -> None:
        tags.append(event.delivery.tag)
        if len(tags) == 2:
            peer.connection.transport.abort()
        elif len(tags) > 2:
            peer.default(peer.connection, event)

    peer.on[events.DeliveryReceived] = lose
    async with ferrymq.connect(peer.url, reconnect=POLICY) as connection, asyncio.timeout(20):
        sender = await connection.sender("orders")
        named = sender.send(Message(1), delivery_tag=b"mine")
        await asyncio.gather(named, sender.send(Message(2)))
    assert tags[0] == tags[2] == b"mine"


@pytest.mark.parametrize("why", ["close", "given up", "refused"])
async def test_what_cannot_be_sent_again_fails(peer: Peer, why: str) -> None:
    peer.on[events.DeliveryReceived] = ignoring
    policy = replace(POLICY, attempts=2)
    async with ferrymq.connect(peer.url, reconnect=policy) as connection, asyncio.timeout(20):
        sender = await connection.sender("orders")
        sending = asyncio.create_task(sender.send(Message(1)))
        await peer.seen(events.DeliveryReceived)
        if why == "refused":
            peer.on[events.AttachReceived] = lambda _, event: event.link.refuse(
                Error(condition="amqp:not-found")
            )
        else:
            peer.on[events.OpenReceived] = lambda *_: peer.connection.transport.abort()
        peer.connection.transport.abort()
        if why == "close":
            await asyncio.sleep(0)
            await connection.close()
        expected = ferrymq.LinkDetached if why == "refused" else ferrymq.ConnectionClosed
        with pytest.raises(expected):
            await sending
        assert sender.unsettled == 0
