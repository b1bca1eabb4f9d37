"""Unsettled maps that do not fit into a frame are resumed in rounds (AMQP 1.0 §2.6.13, §2.7.3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import OutgoingDelivery, SenderLink, events
from ferrymq_types.messaging import Accepted
from tests.client.keeper import POLICY, Keeper, settled

# A frame of 512 bytes has room for some ten of these.
COUNT = 60


def tag(number: int) -> bytes:
    return b"%030d" % number


def rounds(broker: Keeper) -> list[bool]:
    """Of each attach of the client, whether its map was incomplete."""
    attaches = [e.link.remote_attach for e in broker.events if isinstance(e, events.AttachReceived)]
    return [attach is not None and attach.incomplete_unsettled for attach in attaches]


async def connect(broker: Keeper) -> ferrymq.Connection:
    return await ferrymq.connect(
        broker.url, container_id="me", reconnect=POLICY, max_frame_size=512
    )


@pytest.mark.spec("2.7.3", "2.6.13")
@pytest.mark.parametrize("arrived", [0, 30, COUNT])
@pytest.mark.parametrize("decided", [True, False])
async def test_a_sender_with_more_in_flight_than_a_frame_has_room_for(
    arrived: int, decided: bool
) -> None:
    async with Keeper(max_frame_size=512) as broker, Closing(await connect(broker)) as me:
        sender = await me.sender("orders", name="out", exactly_once=True)
        seen = asyncio.Event()
        lost = asyncio.Event()

        def until_it_is_lost(connection: Any, event: events.DeliveryReceived) -> None:
            """So many get through, and no outcome is told."""
            if not lost.is_set() and len(broker.tags) >= arrived:
                event.delivery.link.unsettled.pop(event.delivery.tag, None)
                forgotten.append(event.delivery)
            else:
                broker.outcome = Accepted() if lost.is_set() else None
                broker.default(connection, event)
            if len(broker.tags) + len(forgotten) == COUNT:
                seen.set()

        forgotten: list[Any] = []
        broker.on[events.DeliveryReceived] = until_it_is_lost
        sends = [
            asyncio.create_task(sender.send(Message(n), delivery_tag=tag(n))) for n in range(COUNT)
        ]
        async with asyncio.timeout(20):
            await seen.wait()
            lost.set()
            broker.lose()
            kept = broker.kept["out", False].incoming
            for delivery in forgotten:
                kept.pop(delivery.tag, None)
            assert len(kept) == arrived
            for delivery in kept.values():
                # What comes of them is known when the client asks, or only afterwards.
                if decided:
                    delivery.state = Accepted()
                else:
                    delivery.complete = False
                    delivery._received = len(delivery.payload)
            if not decided:
                broker.tags.clear()
                broker.received.clear()
            await asyncio.gather(*sends)
            await sender.send(Message("new"))
        assert sorted(broker.tags) == sorted({*map(tag, range(COUNT)), broker.tags[-1]})
        assert [m.body for m in broker.received["out"]][-1] == "new"
        assert any(rounds(broker)) and not rounds(broker)[-1]
        # Another round is begun by detaching, not by closing.
        detaches = [e for e in broker.events if isinstance(e, events.DetachReceived)]
        assert detaches and not any(e.closed for e in detaches)


@pytest.mark.spec("2.7.3", "2.6.13")
async def test_both_maps_are_partial_and_have_nothing_in_common() -> None:
    """The receiver has what the sender has settled; the sender, what never arrived."""
    async with Keeper(max_frame_size=512) as broker, Closing(await connect(broker)) as me:
        sender = await me.sender("orders", name="out", exactly_once=True)
        told = asyncio.Event()
        broker.outcome = None
        broker.credit = 2 * COUNT
        broker.on[events.DeliveryReceived] = lambda *_: None
        first = [
            asyncio.create_task(sender.send(Message(n), delivery_tag=tag(n))) for n in range(COUNT)
        ]
        await broker.seen(events.DeliveryReceived, COUNT)
        # They are accepted; that the client settles them is lost.
        connection = broker.connection
        received = [e.delivery for e in broker.events if isinstance(e, events.DeliveryReceived)]
        for delivery in received:
            delivery.settle(Accepted())
        connection.process()
        connection.reading = False
        async with asyncio.timeout(20):
            await asyncio.gather(*first)
            second = [
                asyncio.create_task(sender.send(Message(n), delivery_tag=tag(n)))
                for n in range(COUNT, 2 * COUNT)
            ]
            await asyncio.sleep(0)
            assert sender.unsettled > 0
            told.set()
            del broker.on[events.DeliveryReceived]
            broker.outcome = Accepted()
            broker.lose()
            assert len(broker.kept["out", False].incoming) == COUNT
            await asyncio.gather(*second)
        assert sorted(broker.tags) == [tag(n) for n in range(COUNT, 2 * COUNT)]
        assert sum(rounds(broker)) >= 1 and not rounds(broker)[-1]


@pytest.mark.spec("2.7.3", "2.6.13")
@pytest.mark.parametrize("accept_first", [True, False])
async def test_a_receiver_that_holds_more_than_a_frame_has_room_for(accept_first: bool) -> None:
    async with Keeper(max_frame_size=512) as broker, Closing(await connect(broker)) as me:
        broker.put("work", *range(COUNT))
        receiver = await me.receiver("work", name="in", exactly_once=True, credit=COUNT)
        async with asyncio.timeout(20):
            held = [await receiver.receive() for _ in range(COUNT)]
            accepting = []
            if accept_first:
                # While the connection is away.
                broker.lose()
                await asyncio.sleep(0)
                accepting = [asyncio.create_task(d.accept()) for d in held]
            else:
                broker.lose()
                await broker.seen(events.AttachReceived, 2)
                accepting = [asyncio.create_task(d.accept()) for d in held]
            await asyncio.gather(*accepting)
            broker.put("work", "new")
            await settled_but(broker, 0)
            broker.feed_durably(broker.connection.links["in"])  # type: ignore[arg-type]
            broker.connection.process()
            delivery = await receiver.receive()
            assert delivery.message.body == "new"
            await delivery.accept()
            await settled(broker)
        assert len(broker.ended) == COUNT + 1
        assert all(ends == [Accepted()] for ends in broker.ended.values())
        assert any(rounds(broker)) and not rounds(broker)[-1]


@pytest.mark.spec("2.7.3", "2.6.13")
async def test_each_round_tells_of_others() -> None:
    """The sender no longer has the first half, and cannot say so: its map is not whole either."""
    async with Keeper(max_frame_size=512) as broker, Closing(await connect(broker)) as me:
        broker.put("work", *range(COUNT))
        receiver = await me.receiver("work", name="in", exactly_once=True, credit=COUNT)
        long = {b"m%d" % n: tag(n) for n in range(1, COUNT + 1)}
        broker.connection.links["in"].session.outgoing.unsettled.clear()
        async with asyncio.timeout(20):
            held = [await receiver.receive() for _ in range(COUNT)]
            kept = broker.kept["in", True]
            engines = [d._engine for d in held]
            broker.lose()
            # Longer tags than the model makes: one frame has room for ten.
            engine = receiver._engine
            assert engine is not None
            while engine.usable:  # noqa: ASYNC110
                await asyncio.sleep(0)
            engine.unsettled = {}
            kept.outgoing.clear()
            kept.payloads.clear()
            link = broker.connection.links["in"]
            assert isinstance(link, SenderLink)
            for number, one in enumerate(engines):
                one.tag = long[one.tag]
                engine.unsettled[one.tag] = one
                if number >= COUNT // 2:
                    kept.outgoing[one.tag] = OutgoingDelivery(link, one.tag, False)
                    kept.payloads[one.tag] = one.payload
            accepting = [asyncio.create_task(d.accept()) for d in held]
            await asyncio.gather(*accepting, return_exceptions=True)
            await settled(broker)
        assert len(broker.ended) == COUNT - COUNT // 2
        assert rounds(broker).count(True) > 1 and not rounds(broker)[-1]


async def settled_but(broker: Keeper, count: int) -> None:
    """Wait until the link is whole again and the broker has so many unsettled."""
    while True:
        link = broker.connection.links["in"]
        resumption = link.resumption
        if (
            resumption is not None
            and resumption.complete
            and link.usable
            and not rounds(broker)[-1]
            and len(broker.kept["in", True].payloads) == count
        ):
            return
        await asyncio.sleep(0)


class Closing:
    """Closes a connection at the end, whatever comes of it."""

    def __init__(self, connection: ferrymq.Connection) -> None:
        self.connection = connection

    async def __aenter__(self) -> ferrymq.Connection:
        return self.connection

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()
