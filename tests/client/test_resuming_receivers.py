"""What becomes of messages received when their receiver is attached again (AMQP 1.0 §2.6.13)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ferrymq
from ferrymq import ReconnectPolicy
from ferrymq.engine import events
from ferrymq.engine.resumption import Resolution
from ferrymq.engine.sender import SenderLink
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from ferrymq_types.transport import SenderSettleMode
from tests.client.keeper import POLICY, Cut, Keeper, settled


@pytest.fixture
def connection(lasting: ferrymq.Connection) -> ferrymq.Connection:
    return lasting


@pytest.fixture(params=["first", "second"])
async def receiver(
    broker: Keeper, connection: ferrymq.Connection, request: pytest.FixtureRequest
) -> ferrymq.Receiver:
    broker.put("work", "one", "two")
    once = request.param == "second"
    return await connection.receiver("work", name="in", durable=True, exactly_once=once)


def is_second(receiver: ferrymq.Receiver) -> bool:
    return receiver._options.exactly_once


async def received(
    broker: Keeper, connection: ferrymq.Connection
) -> tuple[ferrymq.Receiver, ferrymq.Delivery]:
    """A message that has come in mode second, and has no outcome."""
    broker.put("work", "one")
    receiver = await connection.receiver("work", name="in", exactly_once=True)
    return receiver, await receiver.receive()


def drop(broker: Keeper, *tags: bytes) -> None:
    """The broker no longer has these."""
    kept = broker.kept["in", True]
    for tag in tags:
        del kept.outgoing[tag], kept.payloads[tag]


@pytest.mark.spec("2.6.13", "3.4.6")
async def test_deliveries_outlive_the_connection_and_come_once(
    broker: Keeper, receiver: ferrymq.Receiver
) -> None:
    taken = await receiver.receive()
    assert receiver.queued == 1 or await broker.seen(events.CreditReceived)
    broker.lose()
    await broker.seen(events.AttachReceived, 2)
    async with asyncio.timeout(20):
        await taken.accept()
        other = await receiver.receive()
        assert (taken.message.body, other.message.body) == ("one", "two")
        await other.reject("example:no")
        await settled(broker)
    assert broker.ended[b"m1"] == [Accepted()]
    (refused,) = broker.ended[b"m2"]
    assert isinstance(refused, Rejected)
    assert receiver.queued == 0
    assert set(broker.resolutions) == {Resolution.CONTINUE}


@pytest.mark.spec("2.6.13", "3.4.6")
async def test_an_outcome_given_while_the_connection_is_away_is_told_when_it_is_back(
    broker: Keeper, receiver: ferrymq.Receiver
) -> None:
    one, two = await receiver.receive(), await receiver.receive()
    broker.lose()
    while receiver._engine is None or receiver._engine.usable:  # noqa: ASYNC110
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await asyncio.gather(one.accept(), two.modify(delivery_failed=True))
        await settled(broker)
    assert broker.ended[b"m1"] == [Accepted()]
    assert broker.ended[b"m2"] == [Modified(delivery_failed=True, undeliverable_here=False)]
    # The map told it: the sender has only had to settle.
    assert set(broker.resolutions) == {Resolution.SETTLE}
    assert one.settled and two.settled
    assert receiver.unsettled_deliveries() == []


@pytest.mark.spec("2.6.12", "2.6.13")
async def test_in_mode_second_an_outcome_is_final_when_the_sender_has_settled(
    broker: Keeper, connection: ferrymq.Connection
) -> None:
    """The sender has settled, and that it did is lost: that it has forgotten it says the same."""
    receiver, delivery = await received(broker, connection)
    broker.on[events.OutcomeReceived] = lambda *_: None
    accepting = asyncio.create_task(delivery.accept())
    await broker.seen(events.OutcomeReceived)
    assert not accepting.done()
    assert [u.state for u in receiver.unsettled_deliveries()] == [Accepted()]
    broker.lose()
    drop(broker, b"m1")
    await asyncio.wait_for(accepting, 20)
    assert delivery.settled
    assert receiver.unsettled_deliveries() == []


@pytest.mark.spec("2.6.12", "2.6.13")
async def test_in_mode_second_an_outcome_that_was_lost_is_told_again(
    broker: Keeper, connection: ferrymq.Connection
) -> None:
    receiver, delivery = await received(broker, connection)
    broker.connection.reading = False
    accepting = asyncio.create_task(delivery.accept())
    while not receiver.confirming:  # noqa: ASYNC110
        await asyncio.sleep(0)
    broker.lose()
    await asyncio.wait_for(accepting, 20)
    assert broker.ended == {b"m1": [Accepted()]}
    assert broker.resolutions == [Resolution.SETTLE]


@pytest.mark.spec("2.6.13")
async def test_what_the_sender_no_longer_has_is_dropped(
    broker: Keeper, receiver: ferrymq.Receiver
) -> None:
    taken = await receiver.receive()
    while receiver.queued == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    broker.lose()
    drop(broker, b"m1", b"m2")
    await broker.seen(events.AttachReceived, 2)
    # A round trip on the connection that has been restored.
    await receiver.session.connection.session()
    assert receiver.queued == 0
    broker.put("work", "three")
    broker.feed_durably(broker.connection.links["in"])  # type: ignore[arg-type]
    broker.connection.process()
    async with asyncio.timeout(20):
        third = await receiver.receive()
        assert third.message.body == "three"
        with pytest.raises(ferrymq.ConnectionClosed):
            await taken.accept()
        await third.accept()


@pytest.mark.spec("2.6.13")
async def test_an_outcome_that_cannot_have_been_heard_is_not_final(
    broker: Keeper, receiver: ferrymq.Receiver
) -> None:
    """The delivery was gone before the outcome was told."""
    taken = await receiver.receive()
    broker.lose()
    drop(broker, b"m1")
    while receiver._engine is None or receiver._engine.usable:  # noqa: ASYNC110
        await asyncio.sleep(0)
    with pytest.raises(ferrymq.ConnectionClosed):
        await asyncio.wait_for(taken.accept(), 20)


@pytest.mark.spec("2.7.3", "3.5.6")
async def test_with_a_source_that_has_expired_all_is_lost(
    broker: Keeper, receiver: ferrymq.Receiver
) -> None:
    one, two = await receiver.receive(), await receiver.receive()
    broker.on[events.OutcomeReceived] = lambda *_: None
    accepting = asyncio.create_task(one.accept())
    await broker.seen(events.OutcomeReceived)
    broker.lose()
    broker.kept.clear()
    async with asyncio.timeout(20):
        if is_second(receiver):
            with pytest.raises(ferrymq.ConnectionClosed):
                await accepting
        else:
            # It was on its way, which is all that this mode has to say.
            await accepting
        await broker.seen(events.AttachReceived, 2)
        await receiver.session.connection.session()
        with pytest.raises(ferrymq.ConnectionClosed):
            await two.accept()


@pytest.mark.spec("2.6.13", "3.4.6", "2.6.14")
@pytest.mark.parametrize("pieces", [1, 3, 6])
async def test_a_message_that_arrived_in_part_is_completed(pieces: int) -> None:
    async with Keeper([Cut(outgoing=900 + 512 * pieces)], max_frame_size=512) as broker:
        body = bytes(range(256)) * 40
        broker.put("work", body)
        async with ferrymq.connect(
            broker.url, container_id="me", reconnect=POLICY, max_frame_size=512
        ) as connection:
            receiver = await connection.receiver("work", name="in", exactly_once=True)
            delivery = await receiver.receive(timeout=20)
            assert delivery.message.body == body
            await delivery.accept(timeout=20)
            assert len(broker.connections) == 2
            assert broker.resolutions == [Resolution.CONTINUE]
            attach = broker.connection.links["in"].remote_attach
            assert attach is not None and attach.unsettled is not None
            assert list(attach.unsettled) == [b"m1"]


@pytest.mark.spec("2.6.13", "3.4.6")
@pytest.mark.parametrize("given", [True, False])
async def test_a_delivery_the_sender_gives_up_is_lost(
    broker: Keeper, connection: ferrymq.Connection, given: bool
) -> None:
    """It has come to an outcome of its own, and what it had sent is aborted."""
    receiver, delivery = await received(broker, connection)
    broker.lose()
    broker.kept["in", True].outgoing[b"m1"].state = Released()
    broker.on[events.CreditReceived] = lambda _, e: resume_all(e.link)
    if given:
        while receiver._engine is None or receiver._engine.usable:  # noqa: ASYNC110
            await asyncio.sleep(0)
        accepting = asyncio.create_task(delivery.accept())
    else:
        await broker.seen(events.CreditReceived, 2)
        await connection.session()
        accepting = asyncio.create_task(delivery.accept())
    # If the outcomes differ, the sender's stands (§3.4.6, 13).
    with pytest.raises(ferrymq.ConnectionClosed):
        await asyncio.wait_for(accepting, 20)
    assert receiver.unsettled_deliveries() == []


def resume_all(link: SenderLink) -> None:
    resumption = link.resumption
    assert resumption is not None
    for delivery in list(resumption.unsettled.values()):
        link.resume(delivery, b"")


async def test_a_sender_that_settles_all_is_refused(
    broker: Keeper, connection: ferrymq.Connection
) -> None:
    def settles(peer: Any, event: events.AttachReceived) -> None:
        link = event.link
        link.agree_settle_modes(SenderSettleMode.SETTLED, link.rcv_settle_mode)
        broker.default(peer, event)

    broker.on[events.AttachReceived] = settles
    with pytest.raises(ferrymq.LinkDetached, match="sends settled"):
        await connection.receiver("work", name="in", exactly_once=True)


async def test_it_ends_for_good_when_the_connection_does(broker: Keeper) -> None:
    policy = ReconnectPolicy(initial=0, maximum=0, attempts=2)
    async with ferrymq.connect(broker.url, container_id="me", reconnect=policy) as connection:
        broker.put("work", "one", "two")
        receiver = await connection.receiver("work", name="in", exactly_once=True)
        one, two = await receiver.receive(), await receiver.receive()
        broker.on[events.OutcomeReceived] = lambda *_: None
        accepting = asyncio.create_task(one.accept())
        await broker.seen(events.OutcomeReceived)
        broker.server.close()
        broker.lose()
        async with asyncio.timeout(20):
            with pytest.raises(ferrymq.ConnectionClosed):
                await accepting
            with pytest.raises(ferrymq.ConnectionClosed):
                await two.accept()
        assert [(u.tag, u.state) for u in receiver.unsettled_deliveries()] == [
            (b"m1", Accepted()),
            (b"m2", None),
        ]


@pytest.mark.spec("2.6.7", "2.6.13")
async def test_credit_that_was_given_by_hand_is_given_again(
    broker: Keeper, connection: ferrymq.Connection
) -> None:
    receiver = await connection.receiver("work", name="in", exactly_once=True, credit=0)
    receiver.add_credit(2)
    await broker.seen(events.CreditReceived)
    broker.put("work", "one", "two", "three")
    broker.feed_durably(broker.connection.links["in"])  # type: ignore[arg-type]
    broker.connection.process()
    async with asyncio.timeout(20):
        one = await receiver.receive()
        assert receiver.credit == 0
        broker.lose()
        await broker.seen(events.CreditReceived, 2)
        two = await receiver.receive()
        await asyncio.gather(one.accept(), two.accept())
        await connection.session()
    # The two that were resumed have taken credit, and no more was given.
    assert receiver.queued == 0
    assert len(broker.messages["work"]) == 1
