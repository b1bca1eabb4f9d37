"""Calls from a thread or an event loop that the object does not belong to raise at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.blocking.connection import connect_beside_loop
from ferrymq.blocking.portal import Portal
from tests.client.peer import Peer


async def _objects(
    peer: Peer, connection: ferrymq.Connection
) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return a call of each kind of object, by a name."""
    peer.put("orders", "a")
    session = await connection.session()
    sender = await connection.sender("orders")
    receiver = await connection.receiver("orders")
    delivery = await receiver.receive()

    async def add_credit() -> None:
        receiver.add_credit(1)

    async def send_nowait() -> None:
        sender.send_nowait(Message("x"))

    return {
        "connection.sender": lambda: connection.sender("orders").open(),
        "connection.session": lambda: connection.session().open(),
        "connection.transaction": lambda: connection.transaction().open(),
        "connection.fence": lambda: connection.fence("group", "member"),
        "connection.wait_closed": connection.wait_closed,
        "connection.close": connection.close,
        "session.receiver": lambda: session.receiver("orders").open(),
        "session.close": session.close,
        "sender.send": lambda: sender.send(Message("x")),
        "sender.send_nowait": send_nowait,
        "sender.send_many": lambda: sender.send_many([Message("x")]),
        "sender.send_encoded": lambda: sender.send_encoded([Message("x").encode()]),
        "sender.ready": sender.ready,
        "sender.close": sender.close,
        "receiver.receive": receiver.receive,
        "receiver.add_credit": add_credit,
        "receiver.drain": receiver.drain,
        "receiver.detach": receiver.detach,
        "delivery.accept": delivery.accept,
        "delivery.release": delivery.release,
    }


async def test_another_loop_in_another_thread(peer: Peer, connection: ferrymq.Connection) -> None:
    def run(call: Callable[[], Awaitable[object]]) -> str:
        async def main() -> None:
            await call()

        with pytest.raises(RuntimeError) as raised:
            asyncio.run(main())
        return str(raised.value)

    for name, call in (await _objects(peer, connection)).items():
        said = await asyncio.to_thread(run, call)
        assert "belongs to the event loop it was made in" in said, name
        assert "run_coroutine_threadsafe" in said and "ferrymq.blocking" in said, name
    # Nothing was done and nothing is broken.
    assert not connection.closed
    async with connection.sender("orders") as sender:
        await sender.send(Message("whole"))
    assert [message.body for message in peer.received["orders"]] == ["whole"]


async def test_a_thread_without_a_loop(connection: ferrymq.Connection) -> None:
    sender = await connection.sender("orders")
    with pytest.raises(RuntimeError, match="this thread runs none"):
        await asyncio.to_thread(sender.send_nowait, Message("x"))


def test_a_loop_that_has_ended() -> None:
    async def connect() -> ferrymq.Connection:
        async with Peer() as peer:
            connection = await ferrymq.connect(peer.url)
            await connection.close()
            return connection

    async def use(connection: ferrymq.Connection) -> None:
        await connection.sender("orders")

    connection = asyncio.run(connect())
    with pytest.raises(RuntimeError, match="an event loop that has ended: connect again"):
        asyncio.run(use(connection))


async def test_a_blocking_call_inside_a_running_loop(peer: Peer) -> None:
    with pytest.raises(RuntimeError, match=r"use await ferrymq\.connect\(\.\.\.\) here"):
        blocking.connect(peer.url)
    connection = await asyncio.to_thread(blocking.connect, peer.url)
    sender = await asyncio.to_thread(connection.sender, "orders")
    calls: list[Callable[[], object]] = [
        lambda: connection.sender("orders"),
        lambda: connection.receiver("orders"),
        connection.session,
        connection.close,
        lambda: sender.send(Message("x")),
        lambda: sender.send_nowait(Message("x")),
        sender.close,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"or asyncio\.to_thread"):
            call()
    # The refused close has left the connection as it was.
    await asyncio.to_thread(sender.send, Message("whole"))
    await asyncio.to_thread(connection.close)


def test_libraries_for_notebooks_may_stop_the_loop() -> None:
    portal = Portal("peer")
    peer = portal.run(Peer().__aenter__)

    async def cell() -> None:
        with connect_beside_loop(peer.url) as connection:
            connection.sender("orders").send(Message("whole"), timeout=20)

    try:
        asyncio.run(cell())
        assert [message.body for message in peer.received["orders"]] == ["whole"]
    finally:
        portal.run(peer.__aexit__)
        portal.stop()
