"""What asyncio reports as overlooked when a link ends: nothing that its end has told already."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, Unsettled
from ferrymq_types.messaging import Accepted
from tests.raw.frames import close_frame, detach_frame, disposition_frame, source, target
from tests.raw.server import HANDLE, Server
from tests.raw.values import TRUE, binary, composite, data_section, mapping, string, symbol, uint

pytestmark = pytest.mark.usefixtures("few_objects")

PATIENCE = 20
ACCEPTED = composite(0x24, [])
KEEPS = {"durable": uint(2), "expiry": symbol("never")}


@pytest.fixture
async def overlooked() -> AsyncIterator[list[str]]:
    """What asyncio has reported to the event loop."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(str(context.get("message"))))
    yield found
    loop.set_exception_handler(None)


@pytest.mark.parametrize("kind", ["sender", "receiver"])
@pytest.mark.parametrize("end", ["link", "connection"])
async def test_deliveries_that_are_resumed_and_not_asked_for(
    overlooked: list[str], kind: str, end: str
) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.expect("attach")
            unsettled = mapping(binary(b"t"), ACCEPTED)
            where = string("q")
            peer.attached(
                asked, credit=0, source_sent=source(where, **KEEPS),
                target_sent=target(where, **KEEPS), unsettled=unsettled,
            )  # fmt: skip
            peer.expect("attach", "flow")
            handle = asked.field(HANDLE)
            assert isinstance(handle, int)
            if end == "link":
                peer.send(detach_frame(handle))
                peer.expect("detach", "flow")
            peer.send(close_frame())
            peer.expect("close", "flow", "detach")

    state = None if kind == "sender" else Accepted()
    given = [Unsettled(b"t", data_section(), state)]
    with Server(script) as server:
        async with ferrymq.connect(server.url, container_id="me", timeout=PATIENCE) as connection:
            if kind == "sender":
                link: Any = await connection.sender("q", name="l", durable=True, unsettled=given)
            else:
                link = await connection.receiver("q", name="l", durable=True, unsettled=given)
            with pytest.raises(ferrymq.AmqpError):
                await connection.sender("other")
            del link
    gc.collect()
    await asyncio.sleep(0)
    assert overlooked == []


async def test_sends_of_which_the_first_has_told_that_the_link_is_lost(
    overlooked: list[str],
) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            for _ in range(3):
                peer.expect("transfer", "flow")
            peer.send(close_frame())
            peer.expect("close", "flow", "detach")

    async def send(url: str) -> str:
        async with ferrymq.connect(url) as connection:
            sender = await connection.sender("q")
            await sender.ready(timeout=PATIENCE)
            futures = [sender.send_nowait(Message(b"x")) for _ in range(3)]
            try:
                for future in futures:
                    await future
            except ferrymq.ConnectionClosed:
                return "lost"
        return "sent"

    with Server(script) as server:
        assert await send(server.url) == "lost"
    gc.collect()
    await asyncio.sleep(0)
    assert overlooked == []


async def test_a_rejection_that_nobody_looks_at_is_told_in_the_log(
    overlooked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.expect("transfer", "flow")
            peer.send(disposition_frame(0, settled=TRUE, state=composite(0x25, [])))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await sender.ready(timeout=PATIENCE)
            future = sender.send_nowait(Message(b"x"))
            await asyncio.wait([future])
            del future
    gc.collect()
    await asyncio.sleep(0)
    assert overlooked == []
    [line] = [one for one in caplog.messages if "send_nowait" in one]
    assert line.startswith("1 message to 'q' not accepted")
