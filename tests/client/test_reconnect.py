"""Reconnecting: what comes back, what is lost, and when it is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy
from ferrymq.engine import events
from ferrymq_types.security import SaslCode
from ferrymq_types.transport import Error
from tests.client.pauses import Pauses
from tests.client.peer import Peer, PeerConnection


@pytest.fixture
async def connection(peer: Peer, policy: ReconnectPolicy) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(peer.url, reconnect=policy) as connected:
        yield connected


def test_pauses_grow_to_a_maximum_and_end() -> None:
    policy = ReconnectPolicy(initial=1, factor=3, maximum=10, attempts=5, random=lambda: 1.0)
    assert list(policy.pauses()) == [1, 3, 9, 10, 10]
    halves = ReconnectPolicy(initial=1, factor=3, maximum=10, attempts=3, random=lambda: 0.0)
    assert list(halves.pauses()) == [0.5, 1.5, 4.5]


async def test_links_come_back_under_their_names(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("orders", name="out")
    receiver = await connection.receiver("work", name="in")
    await sender.send(Message(1))
    first = peer.connection
    first.transport.abort()
    await peer.seen(events.AttachReceived, 4)
    await sender.send(Message(2), timeout=10)
    peer.put("work", "after")
    await peer.seen(events.CreditReceived, 2)
    peer.feed(peer.connection.links["in"])
    peer.connection.process()
    delivery = await receiver.receive(timeout=10)
    assert delivery.message.body == "after"
    await delivery.accept()
    assert peer.connection is not first
    assert [m.body for m in peer.received["orders"]] == [1, 2]
    assert not connection.closed


async def test_what_was_in_flight_fails(peer: Peer, policy: ReconnectPolicy) -> None:
    """Without resend, as for a connection that is not restored."""
    async with ferrymq.connect(peer.url, reconnect=replace(policy, resend=False)) as connection:
        await in_flight_fails(peer, connection)


async def in_flight_fails(peer: Peer, connection: ferrymq.Connection) -> None:
    peer.on[events.DeliveryReceived] = lambda _, event: None
    peer.put("work", 1, 2)
    sender = await connection.sender("orders")
    receiver = await connection.receiver("work")
    delivery = await receiver.receive()
    sending = asyncio.create_task(sender.send(Message(b"")))
    await peer.seen(events.DeliveryReceived)
    peer.connection.transport.abort()
    with pytest.raises(ferrymq.ConnectionClosed):
        await sending
    with pytest.raises(ferrymq.ConnectionClosed):
        await delivery.accept()
    # The one that was not taken is gone as well; the node has it still.
    await peer.seen(events.AttachReceived, 4)
    assert receiver.queued == 0
    with pytest.raises(ferrymq.ConnectionClosed):
        await delivery.accept()


async def test_waits_for_messages_and_credit_go_on(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.credit = 0
    sender = await connection.sender("orders")
    receiver = await connection.receiver("work")
    sending = asyncio.create_task(sender.send(Message(b"waited")))
    receiving = asyncio.create_task(receiver.receive())
    await connection.session()
    peer.credit = 10
    peer.put("work", "new")
    peer.connection.transport.abort()
    async with asyncio.timeout(10):
        await sending
        assert (await receiving).message.body == "new"
    assert [m.body for m in peer.received["orders"]] == [b"waited"]


async def test_new_links_wait_for_the_connection(
    peer: Peer, connection: ferrymq.Connection, pauses: Pauses
) -> None:
    await connection.sender("orders")
    pauses.go.clear()
    peer.connection.transport.abort()
    await pauses.begun.wait()
    opening = asyncio.ensure_future(connection.sender("later").open())
    other = asyncio.ensure_future(connection.session().open())
    pauses.go.set()
    async with asyncio.timeout(10):
        await (await opening).send(Message(b"x"))
        assert not (await other).closed


async def test_it_is_tried_until_someone_answers(
    peer: Peer, connection: ferrymq.Connection, pauses: Pauses
) -> None:
    sender = await connection.sender("orders")
    attempts = 0

    def busy(c: object, event: events.OpenReceived) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            peer.connection.transport.abort()
        else:
            peer.default(peer.connection, event)

    peer.on[events.OpenReceived] = busy
    peer.connection.transport.abort()
    async with asyncio.timeout(10):
        await peer.seen(events.AttachReceived, 2)
        await sender.send(Message(b"x"))
    assert pauses.asked == [1, 2, 4, 5]


async def test_it_is_given_up_after_so_many_attempts(
    peer: Peer, connection: ferrymq.Connection, pauses: Pauses
) -> None:
    receiver = await connection.receiver("work")
    receiving = asyncio.create_task(receiver.receive())
    await connection.session()
    peer.on[events.OpenReceived] = lambda *_: peer.connection.transport.abort()
    peer.connection.transport.abort()
    async with asyncio.timeout(10):
        with pytest.raises(ferrymq.ConnectionClosed):
            await receiving
        with pytest.raises(ferrymq.ConnectionClosed):
            await connection.wait_closed()
    assert len(pauses.asked) == 6
    assert connection.closed


async def test_refused_credentials_end_it_at_once(
    peer: Peer, connection: ferrymq.Connection, pauses: Pauses
) -> None:
    peer.on[events.AuthenticationRequested] = lambda c, _: c.engine.reject_authentication(
        SaslCode.AUTH
    )
    peer.connection.transport.abort()
    with pytest.raises(ferrymq.ConnectionClosed, match="SASL") as caught:
        await connection.wait_closed(timeout=10)
    assert isinstance(caught.value.__cause__, ferrymq.AuthenticationError)
    assert len(pauses.asked) == 1


async def test_a_link_that_is_refused_ends_alone(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    kept = await connection.sender("kept", name="kept")
    gone = await connection.receiver("gone", name="gone")

    def refuse(c: object, event: events.AttachReceived) -> None:
        if event.link.name == "gone":
            event.link.refuse(Error(condition="amqp:not-found"))
        else:
            peer.default(peer.connection, event)

    peer.on[events.AttachReceived] = refuse
    peer.connection.transport.abort()
    async with asyncio.timeout(10):
        with pytest.raises(ferrymq.LinkDetached, match="not-found"):
            await gone.receive()
        await kept.send(Message(b"x"))


async def test_a_peer_that_falls_silent_while_links_are_restored_is_left(
    peer: Peer, policy: ReconnectPolicy
) -> None:
    """A leader that has lost its database answers nothing, and is replaced."""
    async with ferrymq.connect(peer.url, reconnect=policy, timeout=0.1) as connection:
        sender = await connection.sender("orders", name="orders")
        attaches = 0

        def silent(c: PeerConnection, event: events.AttachReceived) -> None:
            nonlocal attaches
            attaches += 1
            if attaches > 2:
                peer.default(c, event)

        peer.on[events.AttachReceived] = silent
        peer.connection.transport.abort()
        async with asyncio.timeout(10):
            await sender.send(Message(b"x"))
        assert attaches == 3


async def test_closed_links_and_sessions_stay_closed(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    async with connection.sender("closed"):
        pass
    async with connection.session() as session:
        await session.sender("closed")
    await connection.sender("open")
    peer.connection.transport.abort()
    await peer.seen(events.AttachReceived, 4)
    await connection.session()
    assert peer.count(events.AttachReceived) == 4


async def test_closing_stops_it(peer: Peer, connection: ferrymq.Connection, pauses: Pauses) -> None:
    pauses.go.clear()
    peer.connection.transport.abort()
    await pauses.begun.wait()
    async with asyncio.timeout(5):
        await connection.close()
    assert connection.closed
    assert len(peer.connections) == 1


async def test_a_session_is_closed_at_once_while_the_connection_is_away(
    peer: Peer, connection: ferrymq.Connection, pauses: Pauses
) -> None:
    session = await connection.session()
    sender = await session.sender("orders")
    pauses.go.clear()
    peer.connection.transport.abort()
    await pauses.begun.wait()
    async with asyncio.timeout(20):
        await session.close(timeout=None)
    assert session.closed and sender.closed


async def test_an_orderly_close_of_the_peer_is_a_loss_too(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("orders")
    peer.connection.engine.close(Error(condition="amqp:connection:forced"))
    peer.connection.process()
    await peer.seen(events.AttachReceived, 2)
    await sender.send(Message(b"x"), timeout=10)


async def test_losing_it_while_restoring_starts_over(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("orders")
    dropped = False

    def drop_once(c: object, event: events.AttachReceived) -> None:
        nonlocal dropped
        if dropped:
            peer.default(peer.connection, event)
        else:
            dropped = True
            peer.connection.transport.abort()

    peer.on[events.AttachReceived] = drop_once
    peer.connection.transport.abort()
    await peer.seen(events.AttachReceived, 3)
    await sender.send(Message(b"x"), timeout=10)


@pytest.mark.parametrize("lost", ["after the flow", "before the attach"])
async def test_credit_the_user_has_given_comes_back(
    peer: Peer, connection: ferrymq.Connection, pauses: Pauses, lost: str
) -> None:
    receiver = await connection.receiver("work", name="in", credit=0)
    receiver.add_credit(4)
    peer.put("work", "one", "two")
    await peer.seen(events.CreditReceived)
    taken = await receiver.receive(timeout=10)
    await taken.accept()
    waiting = asyncio.create_task(receiver.receive())
    assert (await waiting).message.body == "two"
    waiting = asyncio.create_task(receiver.receive())
    pauses.go.clear()
    pauses.begun.clear()
    peer.connection.transport.abort()
    await pauses.begun.wait()
    receiver.add_credit(3)
    if lost == "before the attach":
        # An attempt that comes to nothing costs no credit.
        def lose(connection: PeerConnection, _: events.Event) -> None:
            del peer.on[events.AttachReceived]
            connection.transport.abort()

        peer.on[events.AttachReceived] = lose
    peer.put("work", *range(10))
    pauses.go.set()
    async with asyncio.timeout(20):
        bodies = [(await waiting).message.body]
        bodies += [(await receiver.receive()).message.body for _ in range(4)]
        assert bodies == [0, 1, 2, 3, 4]
        await (await connection.session()).close()
    assert (receiver.queued, receiver.credit) == (0, 0)


async def test_credit_for_messages_that_were_lost_unseen_comes_back(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.put("work", 1, 2, 3)
    receiver = await connection.receiver("work", name="in", credit=0)
    receiver.add_credit(3)
    while receiver.queued < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    peer.put("work", 1, 2, 3)
    peer.connection.transport.abort()
    async with asyncio.timeout(20):
        assert [(await receiver.receive()).message.body for _ in range(3)] == [1, 2, 3]


async def test_a_drain_goes_on_when_the_link_is_back(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    receiver = await connection.receiver("work", name="in", credit=0)
    receiver.add_credit(3)
    await peer.seen(events.CreditReceived)
    drained: list[int] = []

    def feed(connection: PeerConnection, event: events.CreditReceived) -> None:
        if event.link.drain and not drained:
            drained.append(event.link.credit)
            connection.transport.abort()
        else:
            peer.default(connection, event)

    peer.on[events.CreditReceived] = feed
    await receiver.drain(timeout=20)
    assert drained == [3] and receiver.credit == 0
