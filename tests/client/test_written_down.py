"""Resuming in another process, from what the first one has written down (AMQP 1.0 §2.6.13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import Message, Unsettled, blocking
from ferrymq.engine import events
from ferrymq_types.messaging import Accepted, Rejected
from ferrymq_types.transport import Error
from tests.client.keeper import Keeper, settled


@pytest.fixture
async def broker() -> AsyncIterator[Keeper]:
    async with Keeper(max_frame_size=512) as keeper:
        yield keeper


class Process:
    """A client process: it ends without a word."""

    def __init__(self, broker: Keeper) -> None:
        self.broker = broker

    async def __aenter__(self) -> ferrymq.Connection:
        self.connection = await ferrymq.connect(self.broker.url, container_id="me")
        return self.connection

    async def __aexit__(self, *_: object) -> None:
        self.broker.lose()
        await self.connection.close()


def kept(broker: Keeper) -> set[bytes]:
    """The tags that the broker remembers of what it got."""
    link = broker.connection.links["out"]
    live = {d.tag for d in link.session.incoming.unsettled.values() if d.link is link}
    resumption = link.resumption
    return live | (set() if resumption is None else set(resumption.unsettled))


async def until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.spec("2.6.12", "2.6.13")
async def test_a_sender_that_dies_between_the_outcome_and_writing_it_down(broker: Keeper) -> None:
    message = Message("body")
    note = Unsettled(b"order-1", message.encode())
    async with Process(broker) as connection:
        sender = await connection.sender("orders", name="out", exactly_once=True)
        await sender.send(message, delivery_tag=note.tag, hold=True)
        # It is accepted, and the application does not get around to settling it.
        assert sender.unsettled == 0
        assert sender.unsettled_deliveries() == [Unsettled(note.tag, note.payload, Accepted())]
        await connection.session()
        assert kept(broker) == {note.tag}
    for attempt in range(3):
        async with Process(broker) as connection:
            sender = await connection.sender(
                "orders", name="out", exactly_once=True, unsettled=[note]
            )
            assert await sender.resumed(timeout=20) == {note.tag: None}
            # New ones do not wait for the application to make up its mind.
            await asyncio.wait_for(sender.send(Message(attempt)), 20)
            if attempt == 2:
                sender.settle(note.tag)
                await until(lambda: not kept(broker))
                assert sender.unsettled_deliveries() == []
    assert [m.body for m in broker.received["out"]] == ["body", 0, 1, 2]


@pytest.mark.spec("2.6.13")
async def test_what_was_written_down_and_never_sent_is_sent(broker: Keeper) -> None:
    async with Process(broker) as connection:
        await connection.sender("orders", name="out", exactly_once=True)
    notes = [Unsettled(b"order-%d" % n, Message(n).encode()) for n in range(20)]
    async with Process(broker) as connection:
        sender = await connection.sender("orders", name="out", exactly_once=True, unsettled=notes)
        assert await sender.resumed(timeout=20) == {note.tag: None for note in notes}
        with pytest.raises(ferrymq.LocalProtocolError, match="belongs to an unsettled"):
            await sender.send(Message("again"), delivery_tag=b"order-3")
        for note in notes:
            sender.settle(note.tag)
        with pytest.raises(ferrymq.LocalProtocolError, match="no delivery"):
            sender.settle(b"order-3")
        await until(lambda: not kept(broker))
        # The tag is free.
        await asyncio.wait_for(sender.send(Message("again"), delivery_tag=b"order-3"), 20)
    assert [m.body for m in broker.received["out"]] == [*range(20), "again"]


@pytest.mark.spec("2.6.13", "3.4.6")
async def test_an_outcome_that_was_written_down_is_not_asked_for_again(broker: Keeper) -> None:
    broker.outcome = Rejected(error=Error(condition="example:no"))
    message = Message("body")
    async with Process(broker) as connection:
        sender = await connection.sender("orders", name="out", exactly_once=True)
        with pytest.raises(ferrymq.DeliveryRejected):
            await sender.send(message, delivery_tag=b"known", hold=True)
        with pytest.raises(ferrymq.DeliveryRejected):
            await sender.send(message, delivery_tag=b"settled", hold=True)
        sender.settle(b"settled")
        await until(lambda: kept(broker) == {b"known"})
    refused = Rejected(error=Error(condition="example:no"))
    notes = [Unsettled(tag, message.encode(), refused) for tag in (b"known", b"settled")]
    async with Process(broker) as connection:
        sender = await connection.sender("orders", name="out", exactly_once=True, unsettled=notes)
        ends = await sender.resumed(timeout=20)
        assert set(ends) == {b"known", b"settled"}
        assert all(isinstance(end, ferrymq.DeliveryRejected) for end in ends.values())
        sender.settle(b"known")
        sender.settle(b"settled")
        await until(lambda: not kept(broker))
    assert broker.tags == [b"known", b"settled"]


@pytest.mark.spec("3.5.6")
async def test_a_target_that_has_expired_meanwhile(broker: Keeper) -> None:
    async with Process(broker) as connection:
        note = Unsettled(b"t", Message("body").encode())
        sender = await connection.sender("orders", name="out", exactly_once=True, unsettled=[note])
        ends = await sender.resumed(timeout=20)
        assert isinstance(ends[b"t"], ferrymq.ConnectionClosed)
        await asyncio.wait_for(sender.send(Message("new")), 20)


@pytest.mark.spec("2.6.12", "2.6.13")
async def test_a_receiver_that_dies_between_its_work_and_the_outcome(broker: Keeper) -> None:
    broker.put("work", "one", "two", "three")
    async with Process(broker) as connection:
        receiver = await connection.receiver("work", name="in", exactly_once=True)
        taken = [await receiver.receive(timeout=20) for _ in range(3)]
        # The work is done and written down; of the last one nothing is.
        notes = [
            Unsettled(taken[0].tag, state=Accepted()),
            Unsettled(taken[1].tag, taken[1].payload),
        ]
    async with Process(broker) as connection:
        receiver = await connection.receiver("work", name="in", exactly_once=True, unsettled=notes)
        assert await receiver.resumed(timeout=20) == {taken[0].tag: None}
        again = [await receiver.receive(timeout=20) for _ in range(2)]
        assert [d.message.body for d in again] == ["two", "three"]
        assert [d.tag for d in again] == [b"m2", b"m3"]
        await asyncio.wait_for(asyncio.gather(*(d.accept() for d in again)), 20)
        await settled(broker)
    assert broker.ended == {b"m%d" % n: [Accepted()] for n in (1, 2, 3)}
    # Told once more, it is final already.
    async with Process(broker) as connection:
        receiver = await connection.receiver(
            "work", name="in", exactly_once=True, unsettled=notes[:1]
        )
        assert await receiver.resumed(timeout=20) == {b"m1": None}


@pytest.mark.spec("3.5.6")
async def test_a_source_that_has_expired_meanwhile(broker: Keeper) -> None:
    notes = [Unsettled(b"a", state=Accepted()), Unsettled(b"b", Message("b").encode())]
    async with Process(broker) as connection:
        receiver = await connection.receiver("work", name="in", exactly_once=True, unsettled=notes)
        ends = await receiver.resumed(timeout=20)
        assert isinstance(ends[b"a"], ferrymq.ConnectionClosed)
        assert receiver.queued == 0


@pytest.mark.parametrize("tags", [[b"t", b"t"], [b"x" * 33]])
async def test_tags_that_cannot_be(broker: Keeper, tags: list[bytes]) -> None:
    notes = [Unsettled(tag) for tag in tags]
    async with Process(broker) as connection:
        with pytest.raises(ValueError, match="twice, or too long"):
            await connection.sender("orders", name="out", exactly_once=True, unsettled=notes)
        with pytest.raises(ValueError, match="twice, or too long"):
            await connection.receiver("orders", name="in", exactly_once=True, unsettled=notes)


async def test_holding_needs_a_target_that_keeps(broker: Keeper) -> None:
    async with Process(broker) as connection:
        fleeting = await connection.sender("orders")
        with pytest.raises(ValueError, match="durable target"):
            await fleeting.send(Message(1), delivery_tag=b"t", hold=True)
        assert fleeting.unsettled_deliveries() == []
        assert await fleeting.resumed() == {}


async def test_the_blocking_client(broker: Keeper) -> None:
    broker.put("work", "one")

    def work() -> None:
        with blocking.connect(broker.url, container_id="me", reconnect=True) as connection:
            sender = connection.sender("orders", name="out", exactly_once=True)
            sender.send(Message("body"), delivery_tag=b"t", hold=True)
            notes = sender.unsettled_deliveries()
            assert [note.tag for note in notes] == [b"t"]
            receiver = connection.receiver("work", name="in", exactly_once=True)
            delivery = receiver.receive(timeout=20)
            assert receiver.unsettled_deliveries() == [Unsettled(delivery.tag, delivery.payload)]
            sender.detach()
            receiver.detach()
            sender = connection.sender("orders", name="out", exactly_once=True, unsettled=notes)
            assert sender.resumed(timeout=20) == {b"t": None}
            sender.settle(b"t")
            receiver = connection.receiver(
                "work",
                name="in",
                exactly_once=True,
                unsettled=[Unsettled(delivery.tag, state=Accepted())],
            )
            assert receiver.resumed(timeout=20) == {delivery.tag: None}

    await asyncio.wait_for(asyncio.to_thread(work), 60)
    assert broker.tags == [b"t"]
    assert broker.ended == {b"m1": [Accepted()]}
    assert broker.count(events.DeliveryReceived) == 1
