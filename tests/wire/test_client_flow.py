"""Credit, windows and echoes as a peer of the running client sees them (AMQP 1.0 §2.6.7)."""

from __future__ import annotations

import asyncio

import pytest

import ferrymq
from ferrymq import Message
from tests.raw.frames import disposition_frame, flow_frame
from tests.raw.server import ServedPeer, Server
from tests.raw.values import NULL, TRUE, composite, uint

ACCEPTED = composite(0x24, [])


@pytest.mark.spec("2.6.7")
async def test_a_message_that_waits_for_the_window_is_not_sent_once_its_credit_is_taken_back() -> (
    None
):
    def script(server: Server) -> None:
        peer = server.accept().begin(incoming_window=2)
        peer.attached(credit=0)
        peer.send(flow_frame(uint(0), uint(4), uint(0), incoming_window=2))
        peer.expect("transfer", "flow", "empty")
        peer.expect("transfer", "flow", "empty")
        # Two wait for the window. One of them may still come.
        peer.send(flow_frame(uint(0), uint(1), uint(2), next_incoming_id=uint(2)))
        peer.expect("transfer", "flow", "empty")
        assert _state(peer, 3) == (3, 0)
        # The window is wide open, and the fourth comes only with credit.
        peer.send(flow_frame(uint(0), uint(1), uint(3), next_incoming_id=uint(3)))
        peer.expect("transfer", "flow", "empty")
        peer.send(disposition_frame(0, uint(3), settled=TRUE, state=ACCEPTED))
        peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("orders")
            await sender.send_many([Message(b"%d" % n) for n in range(4)], timeout=20)


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize("how", ["one by one", "many", "encoded", "blocking"])
async def test_available_says_how_many_messages_wait_for_credit(how: str) -> None:
    def script(server: Server) -> None:
        peer = server.accept().begin()
        peer.attached(credit=0)
        # They come one after the other, if each has a task of its own.
        while (waiting := _available(peer, 0)) != 3:
            assert waiting == 0 or (how == "one by one" and waiting in (1, 2))
        peer.send(flow_frame(uint(0), uint(2), uint(0)))
        peer.expect("transfer", "flow", "empty")
        peer.expect("transfer", "flow", "empty")
        assert _available(peer, 2) == 1
        peer.send(flow_frame(uint(0), uint(1), uint(2), next_incoming_id=uint(2)))
        peer.expect("transfer", "flow", "empty")
        assert _available(peer, 3) == 0
        peer.send(disposition_frame(0, uint(2), settled=TRUE, state=ACCEPTED))
        peer.finish()

    messages = [Message(b"%d" % n) for n in range(3)]
    with Server(script) as server:
        if how == "blocking":
            await asyncio.to_thread(_send_many, server.url, messages)
            return
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("orders")
            if how == "one by one":
                await asyncio.gather(*(sender.send(one, timeout=20) for one in messages))
            elif how == "many":
                await sender.send_many(messages, timeout=20)
            else:
                await sender.send_encoded([one.encode() for one in messages], timeout=20)


def _send_many(url: str, messages: list[Message]) -> None:
    with ferrymq.blocking.connect(url) as connection, connection.sender("orders") as sender:
        sender.send_many(messages, timeout=20)


def _available(peer: ServedPeer, arrived: int) -> object:
    """Ask for what is available on link 0, after so many transfers."""
    peer.send(flow_frame(uint(0), NULL, uint(arrived), next_incoming_id=uint(arrived), echo=TRUE))
    while True:
        flow = peer.expect("flow", "empty")
        if flow.field(4) is not None:
            return flow.field(7)


def _state(peer: ServedPeer, arrived: int) -> tuple[object, object]:
    """Ask for delivery-count and credit of link 0, after so many transfers."""
    peer.send(flow_frame(uint(0), next_incoming_id=uint(arrived), echo=TRUE))
    while True:
        flow = peer.expect("flow", "empty")
        if flow.field(4) is not None:
            return flow.field(5), flow.field(6)
