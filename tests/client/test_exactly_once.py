"""Exactly once, wherever a connection is cut: a client and a model of a broker (§2.6.13)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ferrymq
from ferrymq import Message
from ferrymq_types.messaging import Accepted
from tests.client.keeper import POLICY, Cut, Keeper, settled

SIZES = [10, 300, 1500, 20, 700, 30, 2500, 40]


async def exchange(cuts: list[Cut], window: int, keeps_parts: bool) -> None:
    """Send messages and receive others, all at once, over connections that are cut."""
    async with Keeper(cuts, max_frame_size=512) as broker:
        broker.credit = window
        broker.keeps_parts = keeps_parts
        outgoing = [f"{n}:".ljust(size, "o") for n, size in enumerate(SIZES)]
        incoming = [f"{n}:".ljust(size, "i") for n, size in enumerate(SIZES)]
        broker.put("work", *incoming)
        while True:
            try:
                connection = await ferrymq.connect(
                    broker.url, container_id="me", reconnect=POLICY, max_frame_size=512
                )
                break
            except ferrymq.AmqpError:
                # Reconnecting is for connections that have been.
                continue
        try:
            async with asyncio.timeout(5):
                await asyncio.gather(
                    send(connection, outgoing), receive(connection, incoming, window)
                )
                await settled(broker)
        finally:
            await connection.close()
        assert sorted(str(m.body) for m in broker.received["out"]) == sorted(outgoing)
        assert len(set(broker.tags)) == len(broker.tags) == len(outgoing)
        assert all(ends == [Accepted()] for ends in broker.ended.values())
        assert len(broker.ended) == len(incoming)


async def opened(open):  # type: ignore[no-untyped-def]
    """A link whose first attach may have been cut off: only those that were there come back."""
    while True:
        try:
            return await open()
        except ferrymq.AmqpError:
            await asyncio.sleep(0)


async def send(connection: ferrymq.Connection, bodies: list[str]) -> None:
    sender = await opened(
        lambda: connection.sender("orders", name="out", durable=True, exactly_once=True).open()
    )
    await asyncio.gather(*(sender.send(Message(body)) for body in bodies))
    assert sender.unsettled == 0


async def receive(connection: ferrymq.Connection, bodies: list[str], credit: int) -> None:
    receiver = await opened(
        lambda: connection.receiver(
            "work", name="in", durable=True, exactly_once=True, credit=credit
        ).open()
    )
    got: list[object] = []
    accepting: list[asyncio.Task[None]] = []
    while len(got) < len(bodies):
        delivery = await receiver.receive()
        got.append(delivery.message.body)
        accepting.append(asyncio.create_task(delivery.accept()))
    await asyncio.gather(*accepting)
    assert sorted(map(str, got)) == sorted(bodies)
    assert receiver.unsettled_deliveries() == []


bytes_passed = st.integers(300, 9000)
cut = st.builds(Cut, incoming=bytes_passed) | st.builds(Cut, outgoing=bytes_passed)


@pytest.mark.spec("2.6.13", "2.6.12", "2.7.3", "3.4.6")
@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(cut, max_size=6), window=st.sampled_from([2, 100]), keeps_parts=st.booleans())
@example(cuts=[], window=100, keeps_parts=True)
def test_each_message_exactly_once_wherever_it_is_cut(
    cuts: list[Cut], window: int, keeps_parts: bool
) -> None:
    asyncio.run(exchange([Cut(c.incoming, c.outgoing) for c in cuts], window, keeps_parts))
