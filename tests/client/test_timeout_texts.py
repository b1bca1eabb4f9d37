"""A time-out says what timed out: the address or the broker, the step, and the seconds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.engine import events
from ferrymq_types.transport import ReceiverSettleMode
from tests.client.peer import Peer


def exactly(text: str) -> str:
    """Return the pattern of a whole message."""
    return f"^{re.escape(text)}$"


def silent(_connection: object, _event: object) -> None:
    """Handle an event by no answer."""


async def test_a_receive(connection: ferrymq.Connection) -> None:
    receiver = await connection.receiver("orders")
    with pytest.raises(TimeoutError, match=exactly("no message came from 'orders' within 0.01 s")):
        await receiver.receive(timeout=0.01)
    named = await connection.receiver("orders", name="mine")
    said = exactly("no message came from 'orders' (link 'mine') within 0 s")
    with pytest.raises(TimeoutError, match=said):
        await named.receive_many(5, timeout=0)


async def test_a_receive_without_credit(connection: ferrymq.Connection) -> None:
    receiver = await connection.receiver("orders", credit=0)
    with pytest.raises(TimeoutError, match="the receiver has no credit, and add_credit gives some"):
        await receiver.receive(timeout=0.01)


async def test_a_send_without_credit(peer: Peer) -> None:
    peer.credit = 0
    async with ferrymq.connect(peer.url) as connection:
        sender = await connection.sender("orders")
        said = exactly("no credit from 'orders' within 0.01 s")
        with pytest.raises(TimeoutError, match=said):
            await sender.send(Message("x"), timeout=0.01)
        with pytest.raises(TimeoutError, match=said):
            await sender.ready(timeout=0.01)
        with pytest.raises(TimeoutError, match=said):
            await sender.send_many([Message("x")] * 3, timeout=0.01)
        with pytest.raises(TimeoutError, match=said):
            await sender.send_encoded([Message("x").encode()], timeout=0.01)


async def test_a_send_without_an_outcome(peer: Peer, connection: ferrymq.Connection) -> None:
    peer.on[events.DeliveryReceived] = silent
    sender = await connection.sender("orders")
    said = exactly("the outcome of the message to 'orders' did not come within 0.05 s")
    with pytest.raises(TimeoutError, match=said):
        await sender.send(Message("x"), timeout=0.05)
    said = exactly("the outcomes of 3 messages to 'orders' did not come within 0.05 s")
    with pytest.raises(TimeoutError, match=said):
        await sender.send_many([Message("x")] * 2, timeout=0.05)


async def test_an_outcome_that_is_not_confirmed(peer: Peer, connection: ferrymq.Connection) -> None:
    peer.on[events.OutcomeReceived] = silent
    peer.put("orders", "a")
    receiver = await connection.receiver("orders", rcv_settle_mode=ReceiverSettleMode.SECOND)
    delivery = await receiver.receive(timeout=20)
    said = exactly("'orders': the peer did not confirm the outcome within 0.05 s")
    with pytest.raises(TimeoutError, match=said):
        await delivery.accept(timeout=0.05)


@pytest.mark.parametrize(
    ("event", "call", "text"),
    [
        (
            events.AttachReceived,
            lambda c: c.sender("orders", timeout=0.05),
            "'orders': the peer did not answer the attach within 0.05 s",
        ),
        (
            events.AttachReceived,
            lambda c: c.receiver(None, dynamic=True, timeout=0.05),
            "a dynamic node: the peer did not answer the attach within 0.05 s",
        ),
        (
            events.BeginReceived,
            lambda c: c.session(timeout=0.05),
            "broker {url} did not begin a session within 0.05 s",
        ),
        (
            events.AttachReceived,
            lambda c: c.transaction(timeout=0.05),
            "broker {url} declared no transaction within 0.05 s",
        ),
        (
            events.CloseReceived,
            lambda c: c.wait_closed(timeout=0.05),
            "<connection to {url}> was not closed within 0.05 s",
        ),
    ],
    ids=["sender", "dynamic", "session", "transaction", "wait_closed"],
)
async def test_a_peer_that_does_not_answer(
    peer: Peer,
    connection: ferrymq.Connection,
    event: type[events.Event],
    call: Callable[[ferrymq.Connection], Any],
    text: str,
) -> None:
    peer.on[event] = silent
    with pytest.raises(TimeoutError, match=exactly(text.format(url=connection.url))):
        await call(connection)


@pytest.fixture
async def mute() -> AsyncIterator[str]:
    """Listen, and say nothing; the fixture is the place."""

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_connecting(mute: str, peer: Peer) -> None:
    with pytest.raises(TimeoutError) as raised:
        await ferrymq.connect(f"amqp://alice:secret@{mute}", timeout=0.05)
    assert str(raised.value) == (
        f"broker amqp://alice@{mute} did not answer the protocol header within 0.05 s: is this a "
        "port of AMQP, and without TLS?"
    )
    with pytest.raises(TimeoutError) as raised:
        await ferrymq.connect(f"amqps://{mute}", timeout=0.05)
    assert str(raised.value) == f"broker amqps://{mute} made no TCP or TLS connection within 0.05 s"
    peer.on[events.AuthenticationRequested] = silent
    with pytest.raises(TimeoutError, match=r"did not answer the SASL login within 0\.05 s$"):
        await ferrymq.connect(peer.url, timeout=0.05)
    peer.on[events.OpenReceived] = silent
    with pytest.raises(TimeoutError, match=r"^broker amqp://.* did not answer the open within"):
        await ferrymq.connect(peer.url, sasl=None, timeout=0.05)


async def test_while_the_connection_is_being_restored(peer: Peer) -> None:
    policy = ferrymq.ReconnectPolicy(initial=60)
    async with ferrymq.connect(peer.url, reconnect=policy) as connection:
        receiver = await connection.receiver("orders")
        sender = await connection.sender("orders")
        peer.connections[0].transport.abort()
        await peer.connections[0].lost
        said = "within 0.05 s: the connection is being restored$"
        with pytest.raises(TimeoutError, match=said):
            await receiver.receive(timeout=0.05)
        with pytest.raises(TimeoutError, match=said):
            await sender.send(Message("x"), timeout=0.05)
        with pytest.raises(TimeoutError, match=said):
            await connection.session(timeout=0.05)


async def test_the_blocking_client(peer: Peer) -> None:
    def main() -> None:
        with blocking.connect(peer.url) as connection:
            receiver = connection.receiver("orders")
            said = exactly("no message came from 'orders' within 0.01 s")
            with pytest.raises(TimeoutError, match=said):
                receiver.receive(timeout=0.01)

    await asyncio.to_thread(main)
