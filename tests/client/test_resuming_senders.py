"""What becomes of messages in flight when their sender is attached again (AMQP 1.0 §2.6.13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy
from ferrymq.aio.transport import EngineTransport
from ferrymq.engine import events
from ferrymq_types.messaging import (
    Accepted,
    Rejected,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import Error, ReceiverSettleMode, SenderSettleMode
from tests.client.keeper import POLICY, Cut, Keeper
from tests.client.peer import Peer, PeerConnection


@pytest.fixture
def connection(lasting: ferrymq.Connection) -> ferrymq.Connection:
    return lasting


@pytest.fixture
async def sender(connection: ferrymq.Connection) -> ferrymq.Sender:
    return await connection.sender("orders", name="out", exactly_once=True)


def ignoring(*_: object) -> None:
    """Nothing happens."""


async def in_flight(broker: Keeper, sender: ferrymq.Sender, body: object) -> asyncio.Task[None]:
    """A send whose message has arrived and has no outcome."""
    broker.outcome = None
    before = broker.count(events.DeliveryReceived)
    sending = asyncio.create_task(sender.send(Message(body), delivery_tag=b"t"))
    await broker.seen(events.DeliveryReceived, before + 1)
    return sending


def resumed(broker: Keeper) -> list[tuple[bytes, bool]]:
    """Tags of what came again, and whether it came settled."""
    return [
        (e.delivery.tag, e.delivery.remote_settled)
        for e in broker.events
        if isinstance(e, events.SettlementReceived) and e.delivery.resumed
    ]


@pytest.mark.spec("2.6.13", "3.4.6")
async def test_an_outcome_the_peer_knows_ends_the_send_and_nothing_is_sent_again(
    broker: Keeper, sender: ferrymq.Sender
) -> None:
    sending = await in_flight(broker, sender, 1)
    broker.lose()
    broker.kept["out", False].incoming[b"t"].state = Accepted()
    await asyncio.wait_for(sending, 20)
    await broker.seen(events.SettlementReceived)
    assert resumed(broker) == [(b"t", True)]
    assert broker.tags == [b"t"]
    assert (sender.unsettled, sender.unsettled_deliveries()) == (0, [])


@pytest.mark.spec("2.6.13", "3.4.6")
async def test_a_refusal_the_peer_remembers_is_raised(
    broker: Keeper, sender: ferrymq.Sender
) -> None:
    sending = await in_flight(broker, sender, 1)
    broker.lose()
    refusal = Rejected(error=Error(condition="example:no"))
    broker.kept["out", False].incoming[b"t"].state = refusal
    with pytest.raises(ferrymq.DeliveryRejected, match="example:no"):
        await asyncio.wait_for(sending, 20)
    assert broker.tags == [b"t"]


@pytest.mark.spec("2.6.13")
async def test_what_the_peer_has_without_an_outcome_is_resumed_and_waited_for(
    broker: Keeper, sender: ferrymq.Sender
) -> None:
    sending = await in_flight(broker, sender, 1)
    broker.lose()
    await broker.seen(events.SettlementReceived)
    assert resumed(broker) == [(b"t", False)]
    assert not sending.done()
    event = await broker.seen(events.SettlementReceived)
    event.delivery.settle(Accepted())
    broker.connection.process()
    await asyncio.wait_for(sending, 20)
    assert broker.tags == [b"t"]


@pytest.mark.spec("2.6.13")
async def test_what_the_peer_never_got_is_sent_again_under_its_tag_in_order(
    broker: Keeper, sender: ferrymq.Sender
) -> None:
    connection = broker.connection
    connection.reading = False
    sends = [
        asyncio.create_task(sender.send(Message(n), delivery_tag=b"tag %d" % n)) for n in range(20)
    ]
    # A round trip of the loop: they are on their way.
    while sender.unsettled < 20:  # noqa: ASYNC110
        await asyncio.sleep(0)
    broker.lose()
    await asyncio.wait_for(asyncio.gather(*sends), 20)
    assert [m.body for m in broker.received["out"]] == list(range(20))
    assert broker.tags == [b"tag %d" % n for n in range(20)]
    # They are new deliveries, not resumed ones.
    assert resumed(broker) == []


@pytest.mark.spec("2.6.13", "3.4.6", "2.6.14")
@pytest.mark.parametrize("keeps_parts", [True, False])
async def test_a_message_that_arrived_in_part_goes_on_or_begins_again(keeps_parts: bool) -> None:
    async with Keeper([Cut(incoming=4000)], max_frame_size=512) as broker:
        broker.keeps_parts = keeps_parts
        async with ferrymq.connect(broker.url, container_id="me", reconnect=POLICY) as connection:
            sender = await connection.sender("orders", name="out", exactly_once=True)
            body = bytes(range(256)) * 40
            await asyncio.wait_for(sender.send(Message(body)), 20)
            assert len(broker.connections) == 2
            (message,) = broker.received["out"]
            assert message.body == body
            (arrived,) = (e for e in broker.events if isinstance(e, events.DeliveryReceived))
            assert arrived.delivery.resumed is keeps_parts


@pytest.mark.spec("2.6.13")
async def test_the_peer_forgets_what_only_it_had(broker: Keeper, sender: ferrymq.Sender) -> None:
    await sender.send(Message(1), delivery_tag=b"t")
    connection = broker.connection
    connection.reading = False
    connection.links["out"].session.incoming.clear()
    broker.lose()
    # As if the settlement had not come.
    delivery = next(e for e in broker.events if isinstance(e, events.DeliveryReceived)).delivery
    delivery.settled = delivery.remote_settled = False
    broker.kept["out", False].incoming[b"t"] = delivery
    await broker.seen(events.AttachReceived, 2)
    assert delivery.remote_settled
    # The tag is free.
    await asyncio.wait_for(sender.send(Message(2), delivery_tag=b"t"), 20)
    assert [m.body for m in broker.received["out"]] == [1, 2]


@pytest.mark.spec("2.6.13")
async def test_new_messages_wait_until_all_is_resumed(
    broker: Keeper, sender: ferrymq.Sender
) -> None:
    sending = await in_flight(broker, sender, 1)
    broker.credit = 0
    broker.lose()
    await broker.seen(events.AttachReceived, 2)
    later = asyncio.create_task(sender.send(Message(2)))
    await sender.session.connection.session()
    broker.outcome = Accepted()
    broker.on[events.SettlementReceived] = lambda _, e: e.delivery.settle(Accepted())
    broker.credit = 1
    broker.connection.links["out"].set_credit(1)  # type: ignore[union-attr]
    broker.connection.process()
    await asyncio.wait_for(sending, 20)
    assert not later.done()
    broker.connection.links["out"].set_credit(1)  # type: ignore[union-attr]
    broker.connection.process()
    await asyncio.wait_for(later, 20)
    assert [m.body for m in broker.received["out"]] == [1, 2]


async def test_the_loop_rests_while_the_peer_reads_nothing_of_what_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[object] = []
    process = EngineTransport.process

    def counted(transport: EngineTransport) -> None:
        passes.append(transport)
        process(transport)

    monkeypatch.setattr(EngineTransport, "process", counted)
    async with Keeper(max_frame_size=65536) as broker:

        def read_no_more(connection: PeerConnection, event: events.AttachReceived) -> None:
            broker.attach(connection, event)
            connection.transport.pause_reading()

        async with ferrymq.connect(broker.url, container_id="me", reconnect=POLICY) as connection:
            sender = await connection.sender("orders", name="out", exactly_once=True)
            broker.connection.reading = False
            # More than the buffers of a socket take.
            message = Message(bytes(2**24))
            sends = [asyncio.create_task(sender.send(message)) for _ in range(2)]
            while sender.unsettled < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            broker.on[events.AttachReceived] = read_no_more
            broker.lose()
            await broker.seen(events.AttachReceived, 2)
            while not connection.transport.paused:  # noqa: ASYNC110
                await asyncio.sleep(0)
            passes.clear()
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(passes) < 10
            broker.connection.transport.resume_reading()
            await asyncio.wait_for(asyncio.gather(*sends), 20)
            assert len(broker.received["out"]) == 2


@pytest.mark.spec("2.6.12", "2.6.13")
async def test_in_mode_first_a_lost_outcome_means_that_it_is_sent_again(
    broker: Keeper, connection: ferrymq.Connection
) -> None:
    """The peer has settled, and so forgotten it: at least once."""
    sender = await connection.sender("orders", name="out", durable=True)

    def settle_unheard(peer: Any, event: events.DeliveryReceived) -> None:
        broker.default(peer, event)
        if len(broker.tags) == 1:
            broker.lose()

    broker.on[events.DeliveryReceived] = settle_unheard
    await asyncio.wait_for(sender.send(Message(1), delivery_tag=b"t"), 20)
    assert broker.tags == [b"t", b"t"]


@pytest.mark.spec("2.7.3", "3.5.6")
async def test_a_target_that_has_expired_leaves_it_in_doubt(
    broker: Keeper, sender: ferrymq.Sender
) -> None:
    sending = await in_flight(broker, sender, 1)
    broker.lose()
    broker.kept.clear()
    with pytest.raises(ferrymq.ConnectionClosed, match="forgotten"):
        await asyncio.wait_for(sending, 20)
    broker.outcome = Accepted()
    await asyncio.wait_for(sender.send(Message(2)), 20)
    assert [m.body for m in broker.received["out"]] == [1, 2]


@pytest.mark.parametrize("resend", [False, True])
async def test_a_peer_that_keeps_nothing_leaves_it_as_it_was(peer: Peer, resend: bool) -> None:
    """Without exactly_once such a peer will do; what is in flight is then in doubt as ever."""

    def without(connection: Any, event: events.AttachReceived) -> None:
        target = event.link.remote_attach.target  # type: ignore[union-attr]
        target.durable = TerminusDurability.NONE  # type: ignore[union-attr]
        target.expiry_policy = TerminusExpiryPolicy.LINK_DETACH  # type: ignore[union-attr]
        peer.attach(connection, event, target=target)

    peer.on[events.AttachReceived] = without
    peer.on[events.DeliveryReceived] = ignoring
    policy = replace(POLICY, resend=resend)
    async with ferrymq.connect(peer.url, container_id="me", reconnect=policy) as connection:
        sender = await connection.sender("orders", name="out", durable=True)
        sending = asyncio.create_task(sender.send(Message(1)))
        await peer.seen(events.DeliveryReceived)
        del peer.on[events.DeliveryReceived]
        peer.connection.transport.abort()
        if resend:
            await asyncio.wait_for(sending, 20)
        else:
            with pytest.raises(ferrymq.ConnectionClosed):
                await asyncio.wait_for(sending, 20)
        await asyncio.wait_for(sender.send(Message(2)), 20)
        assert [message.body for message in peer.received["orders"]] == [1, 2][not resend :]
        with pytest.raises(ferrymq.LinkDetached, match="does not keep what is unsettled"):
            await connection.sender("orders", name="once", exactly_once=True)


async def test_exactly_once_needs_a_peer_that_lets_us_settle_first(
    broker: Keeper, connection: ferrymq.Connection
) -> None:
    def first(peer: Any, event: events.AttachReceived) -> None:
        link = event.link
        link.agree_settle_modes(link.snd_settle_mode, ReceiverSettleMode.FIRST)
        broker.default(peer, event)

    broker.on[events.AttachReceived] = first
    with pytest.raises(ferrymq.LinkDetached, match="settle first"):
        await connection.sender("orders", name="out", exactly_once=True)
    detached = await broker.seen(events.DetachReceived)
    assert detached.error is not None and detached.error.condition == "amqp:precondition-failed"


async def test_an_end_for_good_fails_what_waits_and_can_be_written_down(broker: Keeper) -> None:
    policy = ReconnectPolicy(initial=0, maximum=0, attempts=2)
    async with ferrymq.connect(broker.url, container_id="me", reconnect=policy) as connection:
        sender = await connection.sender("orders", name="out", exactly_once=True)
        sending = await in_flight(broker, sender, "body")
        broker.server.close()
        broker.lose()
        with pytest.raises(ferrymq.ConnectionClosed):
            await asyncio.wait_for(sending, 20)
        (left,) = sender.unsettled_deliveries()
        assert (left.tag, left.state) == (b"t", None)
        assert Message.decode(left.payload).body == "body"


@pytest.mark.spec("4.4.4")
async def test_messages_of_transactions_are_not_resumed(
    broker: Keeper, connection: ferrymq.Connection, sender: ferrymq.Sender
) -> None:
    broker.on[events.DeliveryReceived] = ignoring

    class Txn:
        def state_for(self, link: object) -> object:
            from ferrymq_types.transactions import TransactionalState

            return TransactionalState(txn_id=b"x")

        on_posted = staticmethod(ignoring)

    sending = asyncio.create_task(sender.send(Message(1), transaction=Txn()))  # type: ignore[arg-type]
    await broker.seen(events.DeliveryReceived)
    broker.lose()
    with pytest.raises(ferrymq.ConnectionClosed):
        await asyncio.wait_for(sending, 20)
    await broker.seen(events.AttachReceived, 2)
    attach = broker.connection.links["out"].remote_attach
    assert attach is not None and attach.unsettled == {}


@pytest.mark.spec("2.6.1", "2.7.3")
async def test_what_is_asked_for_on_the_wire(
    broker: Keeper, connection: ferrymq.Connection, sender: ferrymq.Sender
) -> None:
    attach = broker.connection.links["out"].remote_attach
    assert attach is not None
    assert attach.target.durable is TerminusDurability.UNSETTLED_STATE  # type: ignore[union-attr]
    assert attach.target.expiry_policy is TerminusExpiryPolicy.NEVER  # type: ignore[union-attr]
    assert attach.rcv_settle_mode is ReceiverSettleMode.SECOND
    # It is not resumed the first time.
    assert attach.unsettled is None
    broker.lose()
    await broker.seen(events.AttachReceived, 2)
    again = broker.connection.links["out"].remote_attach
    assert again is not None and again.unsettled == {}


@pytest.mark.spec("2.6.1")
@pytest.mark.parametrize("options", [{"durable": True}, {"exactly_once": True}, {"unsettled": []}])
@pytest.mark.parametrize("kind", ["sender", "receiver"])
async def test_who_wants_to_be_found_again_has_to_have_a_name(
    broker: Keeper, connection: ferrymq.Connection, options: dict[str, Any], kind: str
) -> None:
    with pytest.raises(ValueError, match="give the name"):
        await getattr(connection, kind)("orders", **options)
    async with ferrymq.connect(broker.url) as nameless:
        with pytest.raises(ValueError, match="give the container_id"):
            await getattr(nameless, kind)("orders", name="n", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"durable": TerminusDurability.CONFIGURATION},
        {"expiry_policy": TerminusExpiryPolicy.LINK_DETACH},
        {"snd_settle_mode": SenderSettleMode.SETTLED},
    ],
)
async def test_what_cannot_be_exactly_once(
    connection: ferrymq.Connection, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"exactly_once|outlive"):
        await connection.sender("orders", name="n", exactly_once=True, **options)


async def test_an_attach_that_is_not_answered_leaves_the_target_as_it_is(
    broker: Keeper, connection: ferrymq.Connection
) -> None:
    asked: list[events.AttachReceived] = []
    broker.on[events.AttachReceived] = lambda _, event: asked.append(event)
    with pytest.raises(TimeoutError):
        await connection.sender("orders", name="out", exactly_once=True, timeout=0.05)
    broker.on[events.DetachReceived] = ignoring
    # The peer does not say that it has made the target: it may have been there.
    broker.attach(broker.connection, asked[0])
    broker.connection.process()
    detached = await broker.seen(events.DetachReceived)
    assert not detached.closed
