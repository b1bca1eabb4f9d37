"""`connect(authorize=…)`: what is done before links are attached, also after a reconnect."""

from __future__ import annotations

import asyncio

import pytest

import ferrymq
from ferrymq.engine import events
from ferrymq_types.transport import Error
from tests.client.keeper import POLICY
from tests.client.peer import Peer

REFUSED = Error(condition="amqp:unauthorized-access", description="no token")


class Gate:
    """Keeps who asked for what, and raises what is in `errors`, first the first."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.errors: list[Exception | None] = []

    async def __call__(self, session: ferrymq.Session, address: str) -> None:
        assert not session.closed
        await asyncio.sleep(0)
        self.asked.append(address)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


async def test_each_link_is_authorized_first(peer: Peer) -> None:
    gate = Gate()
    async with ferrymq.connect(peer.url, authorize=gate) as connection:
        await connection.sender("orders")
        await connection.receiver("news")
        # Nobody knows the address of a node that is to be made.
        await connection.receiver(None, dynamic=True)
        assert gate.asked == ["orders", "news"]
        gate.errors = [ferrymq.LinkDetached("'x'", REFUSED)]
        with pytest.raises(ferrymq.LinkDetached, match="no token"):
            await connection.sender("x")
        gate.errors = [RuntimeError("mine")]
        with pytest.raises(ferrymq.TransportError, match="'x': authorize raised RuntimeError"):
            await connection.sender("x")
    assert peer.count(events.AttachReceived) == 3


async def test_it_may_use_the_session(peer: Peer) -> None:
    """Also while the connection is restored, when others wait for that."""

    async def ask_first(session: ferrymq.Session, address: str) -> None:
        if address != "first":
            async with session.sender("first") as sender:
                await sender.send(f"for {address}")

    async with ferrymq.connect(peer.url, authorize=ask_first, reconnect=POLICY) as connection:
        sender = await connection.sender("orders")
        await sender.send("one")
        peer.connection.transport.abort()
        await sender.send("two", timeout=20)
        assert [one.body for one in peer.received["first"]] == ["for orders"] * 2


async def test_a_refusal_after_a_reconnect(peer: Peer) -> None:
    """A refusal ends the link that it is for, and no other."""
    gate = Gate()
    async with ferrymq.connect(peer.url, authorize=gate, reconnect=POLICY) as connection:
        one = await connection.sender("one")
        two = await connection.sender("two")
        gate.errors = [ferrymq.LinkDetached("'one'", REFUSED)]
        peer.connection.transport.abort()
        await two.send("message", timeout=20)
        assert one.closed and not two.closed
        with pytest.raises(ferrymq.LinkDetached, match="no token"):
            await one.send("message")
        assert gate.asked == ["one", "two"] * 2


@pytest.mark.parametrize(
    "error", [RuntimeError("mine"), ferrymq.TransportError("no way"), OSError()]
)
async def test_an_error_after_a_reconnect(peer: Peer, error: Exception) -> None:
    """The connection is restored again."""
    gate = Gate()
    async with ferrymq.connect(peer.url, authorize=gate, reconnect=POLICY) as connection:
        sender = await connection.sender("orders")
        gate.errors = [error, error]
        peer.connection.transport.abort()
        await sender.send("message", timeout=20)
        assert gate.asked == ["orders"] * 4
        assert peer.count(events.OpenReceived) == 4


async def test_it_takes_too_long(peer: Peer) -> None:
    async def sleep(session: ferrymq.Session, address: str) -> None:
        await asyncio.sleep(60)

    async with ferrymq.connect(peer.url, authorize=sleep) as connection:
        with pytest.raises(TimeoutError, match=r"'x': the link was not authorized within 0\.05 s"):
            await connection.sender("x", timeout=0.05)
