"""What is used or dropped without `await` says so; what is open works in ``async with``."""

from __future__ import annotations

import asyncio
import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from tests.client.peer import Peer

pytestmark = pytest.mark.usefixtures("few_objects")

OPENINGS: dict[str, Callable[[Any], Any]] = {
    "session = await connection.session()": lambda c: c.session(),
    "sender = await connection.sender('orders')": lambda c: c.sender("orders"),
    "receiver = await connection.receiver('orders')": lambda c: c.receiver("orders"),
    "chunk_reader = await connection.chunk_reader('s::0')": lambda c: c.chunk_reader("s::0"),
    "pair = await connection.pair('orders')": lambda c: c.pair("orders"),
    "management = await connection.management()": lambda c: c.management(),
    "transaction = await connection.transaction()": lambda c: c.transaction(),
}
OF_SESSIONS = {
    written.replace("connection.", "session."): opening
    for written, opening in OPENINGS.items()
    if "connection.session" not in written
}


def check_unawaited(written: str, opening: Any) -> None:
    """Check what an opening says that `written` would await."""
    call = written.partition("await ")[2]
    assert repr(opening) == f"<{call}, not awaited>"
    for name in ("send", "receive", "close", "commit", "anything"):
        with pytest.raises(AttributeError) as raised:
            getattr(opening, name)
        assert str(raised.value) == (
            f"{call} is not open, so it has no {name!r}; await it: {written}"
        )
    del raised
    with pytest.warns(RuntimeWarning) as warned:
        del opening
        gc.collect()
    assert [str(one.message) for one in warned] == [f"{call} was never awaited"]


async def test_an_opening_of_a_connection(connection: ferrymq.Connection) -> None:
    for written, opening in OPENINGS.items():
        check_unawaited(written, opening(connection))


async def test_an_opening_of_a_session(connection: ferrymq.Connection) -> None:
    async with connection.session() as session:
        for written, opening in OF_SESSIONS.items():
            check_unawaited(written, opening(session))


def test_a_connect() -> None:
    check_unawaited(
        "connection = await ferrymq.connect('amqp://alice@broker:5672')",
        ferrymq.connect("amqp://alice:secret@broker"),
    )


async def test_with_instead_of_async_with(connection: ferrymq.Connection) -> None:
    opening: Any = connection.sender("orders")
    with pytest.raises(TypeError) as raised, opening:
        pass
    assert str(raised.value) == "use async with: async with connection.sender('orders') as sender:"
    opened: Any = connection
    with pytest.raises(TypeError, match="use async with, not with, for a Connection"), opened:
        pass


async def test_for_instead_of_async_for(connection: ferrymq.Connection) -> None:
    opening: Any = connection.receiver("orders")
    receiver: Any = await opening
    for iterated in (opening, receiver):
        with pytest.raises(TypeError, match="use async for"):
            for _ in iterated:
                pass


async def test_what_is_opened_in_any_way_gives_no_warning(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.put("orders", "a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await connection.sender("orders")
        async with connection.sender("orders"):
            pass
        await asyncio.create_task(connection.sender("orders").open())
        await connection.sender("orders").opener()()
        async for _ in connection.receiver("orders"):
            break
        gc.collect()


async def test_a_copy_is_harmless(connection: ferrymq.Connection) -> None:
    opening = connection.sender("orders")
    opening.opener()
    async with copy.copy(opening) as sender:
        await sender.send(Message("whole"))


async def test_open_objects_work_in_async_with(peer: Peer) -> None:
    connection = await ferrymq.connect(peer.url)
    async with connection as same:
        assert same is connection
        session = await connection.session()
        async with session:
            sender = await session.sender("orders")
            async with sender:
                await sender.send(Message("whole"))
            assert sender.closed
            async with await session.receiver("orders") as receiver:
                assert not receiver.closed
            assert receiver.closed
        assert session.closed
    assert connection.closed
    assert peer.count(events.CloseReceived) == 1
