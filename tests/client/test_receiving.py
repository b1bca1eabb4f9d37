"""Receivers: credit, prefetch, outcomes, browsing, draining and the ways receiving can end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from ferrymq.options import Start
from ferrymq_codec.scalars import Described, Timestamp, ULong
from ferrymq_types.filters import NoLocalFilter, SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    Modified,
    Rejected,
    Released,
    Source,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import Error, ReceiverSettleMode, SenderSettleMode
from tests.client.peer import Peer


async def test_messages_come_in_order_and_are_accepted(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.put("orders", *range(250))
    received = []
    async for delivery in connection.receiver("orders"):
        received.append(delivery.message.body)
        await delivery.accept()
        if len(received) == 250:
            break
    assert received == list(range(250))
    await peer.seen(events.OutcomeReceived, 250)
    assert all(
        event.delivery.remote_state == Accepted() and event.delivery.remote_settled
        for event in peer.events
        if isinstance(event, events.OutcomeReceived)
    )
    # Leaving the loop closed the receiver.
    await peer.seen(events.DetachReceived)


async def test_an_awaited_receiver_is_the_callers_to_close(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.put("orders", "a", "b")
    receiver = await connection.receiver("orders")
    assert (await receiver.receive()).message.body == "a"
    async with asyncio.timeout(5):
        async for delivery in receiver:
            assert delivery.message.body == "b"
            break
    assert not receiver.closed
    await receiver.close()
    assert receiver.closed
    assert [d async for d in receiver] == []


async def test_a_receiver_in_async_with_is_closed_at_the_end(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    async with connection.receiver("orders") as receiver:
        assert not receiver.closed
    assert receiver.closed
    assert peer.count(events.DetachReceived) == 1


async def test_a_delivery_shows_what_came(peer: Peer, connection: ferrymq.Connection) -> None:
    receiver = await connection.receiver("orders")
    await peer.seen(events.CreditReceived)
    payload = Message(b"one", subject="s").encode()
    peer.connection.send(receiver.name, payload, tag=b"tag", message_format=7)
    delivery = await receiver.receive()
    assert delivery.payload == payload
    assert delivery.tag == b"tag"
    assert delivery.message_format == 7
    assert delivery.receiver is receiver
    assert delivery.message is delivery.message
    assert delivery.message.subject == "s"
    assert not delivery.settled
    assert "746167" in repr(delivery)


async def test_bytes_that_are_no_message_are_the_users_to_judge(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    receiver = await connection.receiver("orders")
    await peer.seen(events.CreditReceived)
    peer.connection.send(receiver.name, b"garbage")
    delivery = await receiver.receive()
    with pytest.raises(ferrymq.DecodeError):
        _ = delivery.message
    await delivery.reject("amqp:decode-error")
    event = await peer.seen(events.OutcomeReceived)
    assert event.delivery.remote_state == Rejected(error=Error(condition="amqp:decode-error"))


async def test_a_big_message_comes_in_many_frames(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    body = bytes(range(256)) * 4096 * 4
    peer.put("orders", body)
    async with connection.receiver("orders") as receiver:
        assert (await receiver.receive(timeout=20)).message.body == body


@pytest.mark.spec("3.4")
class TestOutcomes:
    async def outcome(self, peer: Peer) -> object:
        event = await peer.seen(events.OutcomeReceived)
        assert event.delivery.remote_settled
        return event.delivery.remote_state

    async def delivery(self, peer: Peer, connection: ferrymq.Connection) -> ferrymq.Delivery:
        peer.put("orders", b"one")
        return await (await connection.receiver("orders")).receive()

    async def test_reject(self, peer: Peer, connection: ferrymq.Connection) -> None:
        delivery = await self.delivery(peer, connection)
        await delivery.reject("x:bad", "really")
        error = Error(condition="x:bad", description="really")
        assert await self.outcome(peer) == Rejected(error=error)

    async def test_reject_without_a_reason(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        delivery = await self.delivery(peer, connection)
        await delivery.reject()
        assert await self.outcome(peer) == Rejected()

    async def test_release(self, peer: Peer, connection: ferrymq.Connection) -> None:
        delivery = await self.delivery(peer, connection)
        await delivery.release()
        assert await self.outcome(peer) == Released()

    async def test_modify(self, peer: Peer, connection: ferrymq.Connection) -> None:
        delivery = await self.delivery(peer, connection)
        await delivery.modify(
            delivery_failed=True, undeliverable_here=True, message_annotations={"x-opt-a": 1}
        )
        assert await self.outcome(peer) == Modified(
            delivery_failed=True, undeliverable_here=True, message_annotations={"x-opt-a": 1}
        )

    async def test_a_second_outcome_is_a_mistake(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        delivery = await self.delivery(peer, connection)
        await delivery.accept()
        with pytest.raises(ferrymq.LocalProtocolError, match="outcome already"):
            await delivery.release()
        assert await self.outcome(peer) == Accepted()

    async def test_settled_deliveries_need_none(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", b"one")
        receiver = await connection.receiver("orders", snd_settle_mode=SenderSettleMode.SETTLED)
        delivery = await receiver.receive()
        assert delivery.settled
        await delivery.accept()
        await connection.session()
        assert peer.count(events.OutcomeReceived) == 0

    @pytest.mark.spec("2.6.12")
    async def test_in_mode_second_accept_waits_for_the_sender(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.OutcomeReceived] = lambda _, event: None
        peer.put("orders", b"one", b"two")
        receiver = await connection.receiver("orders", rcv_settle_mode=ReceiverSettleMode.SECOND)
        delivery = await receiver.receive()
        task = asyncio.create_task(delivery.accept())
        event = await peer.seen(events.OutcomeReceived)
        assert not event.delivery.remote_settled
        assert not task.done()
        event.delivery.settle()
        peer.connection.process()
        await task
        assert delivery.settled
        with pytest.raises(TimeoutError):
            await (await receiver.receive()).accept(timeout=0.01)

    async def test_in_mode_second_a_lost_link_is_told(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.OutcomeReceived] = lambda _, event: event.delivery.link.close()
        peer.put("orders", b"one")
        receiver = await connection.receiver("orders", rcv_settle_mode=ReceiverSettleMode.SECOND)
        delivery = await receiver.receive()
        with pytest.raises(ferrymq.LinkDetached):
            await delivery.accept()


class TestCredit:
    async def test_prefetch_is_bounded_and_given_again_at_half(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(30))
        receiver = await connection.receiver("orders", credit=10)
        await connection.session()
        assert receiver.queued == 10
        assert receiver.credit == 0
        for _ in range(4):
            await (await receiver.receive()).accept()
        await connection.session()
        assert (receiver.queued, receiver.credit) == (6, 0)
        await (await receiver.receive()).accept()
        await connection.session()
        assert (receiver.queued, receiver.credit) == (10, 0)
        for body in range(5, 30):
            delivery = await receiver.receive(timeout=5)
            assert delivery.message.body == body
            await delivery.accept()

    async def test_credit_one_takes_one_message_at_a_time(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1, 2, 3)
        receiver = await connection.receiver("orders", credit=1)
        for expected in (1, 2, 3):
            delivery = await receiver.receive(timeout=5)
            assert delivery.message.body == expected
            assert (receiver.queued, receiver.credit) == (0, 0)
            await delivery.accept()

    async def test_manual_credit(self, peer: Peer, connection: ferrymq.Connection) -> None:
        peer.put("orders", *range(5))
        receiver = await connection.receiver("orders", credit=0)
        with pytest.raises(TimeoutError):
            await receiver.receive(timeout=0.01)
        receiver.add_credit(2)
        assert len([await receiver.receive() for _ in range(2)]) == 2
        with pytest.raises(TimeoutError):
            await receiver.receive(timeout=0.01)
        with pytest.raises(ValueError, match="negative"):
            receiver.add_credit(-1)

    @pytest.mark.spec("2.6.7")
    async def test_drain_brings_what_there_is_and_takes_back_the_rest(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(3))
        receiver = await connection.receiver("orders", credit=0)
        receiver.add_credit(10)
        await receiver.drain(timeout=5)
        assert receiver.queued == 3
        assert receiver.credit == 0
        await receiver.drain(timeout=5)
        peer.put("orders", "late")
        receiver.add_credit(1)
        bodies = [(await receiver.receive()).message.body for _ in range(4)]
        assert bodies == [0, 1, 2, "late"]

    async def test_a_drained_prefetch_stays_dry(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(3))
        receiver = await connection.receiver("orders")
        await receiver.drain(timeout=5)
        for _ in range(3):
            await receiver.receive()
        await connection.session()
        assert (receiver.queued, receiver.credit) == (0, 0)

    async def test_two_drains_share_one_answer(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        await asyncio.gather(receiver.drain(), receiver.drain())
        assert receiver.credit == 0


class TestTaking:
    async def test_receive_many_takes_what_there_is(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(7))
        receiver = await connection.receiver("orders")
        await connection.session()
        assert [d.message.body for d in await receiver.receive_many(5)] == [0, 1, 2, 3, 4]
        assert [d.message.body for d in await receiver.receive_many(5)] == [5, 6]
        with pytest.raises(TimeoutError):
            await receiver.receive_many(5, timeout=0.01)
        with pytest.raises(ValueError, match="below 1"):
            await receiver.receive_many(0)

    async def test_concurrent_takers_take_turns(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        tasks = [asyncio.create_task(receiver.receive()) for _ in range(5)]
        await connection.session()
        for body in range(5):
            peer.connection.send(receiver.name, Message(body).encode())
        assert [(await task).message.body for task in tasks] == [0, 1, 2, 3, 4]

    async def test_a_cancelled_taker_loses_nothing(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        tasks = [asyncio.create_task(receiver.receive()) for _ in range(3)]
        await connection.session()
        peer.connection.send(receiver.name, Message(1).encode())
        tasks[0].cancel()
        peer.connection.send(receiver.name, Message(2).encode())
        assert [(await task).message.body for task in tasks[1:]] == [1, 2]

    async def test_a_message_that_came_with_the_cancellation_stays(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        task = asyncio.create_task(receiver.receive())
        await connection.session()
        peer.connection.send(receiver.name, Message(1).encode())
        # The receiver has been told of the message; the task has not run yet.
        arrived = receiver._changed.wait()
        await arrived
        task.cancel()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(result, ferrymq.Delivery):
            assert result.message.body == 1
        else:
            assert (await receiver.receive(timeout=5)).message.body == 1


class TestSource:
    async def source(self, peer: Peer) -> Source:
        event = await peer.seen(events.AttachReceived)
        source = event.link.remote_attach.source
        assert source is not None
        return source

    async def test_browsing(self, peer: Peer, connection: ferrymq.Connection) -> None:
        await connection.receiver("orders", mode="copy")
        source = await self.source(peer)
        assert source.distribution_mode == "copy"
        assert source.address == "orders"

    async def test_filters_and_selector(self, peer: Peer, connection: ferrymq.Connection) -> None:
        receiver = await connection.receiver(
            "orders", filters={"mine": NoLocalFilter()}, selector="colour = 'red'"
        )
        source = await self.source(peer)
        assert source.filter is not None
        assert set(source.filter) == {"mine", "apache.org:selector-filter:string"}
        assert receiver.source is not None
        assert receiver.source.filter is not None
        assert SelectorFilter("colour = 'red'") is not None

    @pytest.mark.parametrize(
        ("start", "value"),
        [
            ("first", "first"),
            ("next", "next"),
            (0, ULong(0)),
            (2**63, ULong(2**63)),
            (datetime(2026, 1, 2, tzinfo=UTC), Timestamp(1_767_312_000_000)),
        ],
    )
    async def test_a_place_in_a_stream(
        self, peer: Peer, connection: ferrymq.Connection, start: Start, value: object
    ) -> None:
        await connection.receiver("events", start=start)
        source = await self.source(peer)
        assert source.filter is not None
        position = source.filter["ferrymq:position"]
        assert isinstance(position, Described)
        assert position.descriptor == "ferrymq:position"
        assert position.value == value and type(position.value) is type(value)

    @pytest.mark.parametrize("start", [-1, datetime(2026, 1, 2)])
    async def test_no_place_in_a_stream(self, connection: ferrymq.Connection, start: Start) -> None:
        with pytest.raises(ValueError):
            await connection.receiver("events", start=start)

    @pytest.mark.spec("3.5.3")
    async def test_a_default_outcome(self, peer: Peer, connection: ferrymq.Connection) -> None:
        await connection.receiver("orders", default_outcome=Modified(delivery_failed=True))
        source = await self.source(peer)
        assert source.default_outcome == Modified(delivery_failed=True)

    async def test_dynamic_nodes_get_their_address_from_the_peer(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver(None, dynamic=True)
        assert receiver.address == "made-up"
        sender = await connection.sender(None, dynamic=True)
        assert sender.address == "made-up"
        assert (await connection.receiver("orders")).address == "orders"

    async def test_an_address_or_dynamic_but_not_both(self, connection: ferrymq.Connection) -> None:
        with pytest.raises(ValueError, match="not both"):
            await connection.receiver(None)
        with pytest.raises(ValueError, match="not both"):
            await connection.receiver("a", dynamic=True)
        with pytest.raises(ValueError, match="give None"):
            await connection.sender("a", dynamic=True)
        with pytest.raises(ValueError, match="negative"):
            await connection.receiver("a", credit=-1)

    async def test_the_other_fields(self, peer: Peer, connection: ferrymq.Connection) -> None:
        peer.on[events.AttachReceived] = lambda c, event: peer.attach(
            c, event, properties={"a": 1}, offered_capabilities=["queue"]
        )
        receiver = await connection.receiver(
            "orders",
            name="mine",
            expiry_policy=TerminusExpiryPolicy.NEVER,
            expiry_timeout=60,
            capabilities=["queue"],
            properties={"b": 2},
            max_message_size=1000,
        )
        attach = (await peer.seen(events.AttachReceived)).link.remote_attach
        assert attach.name == "mine"
        # The second asks whether the source was there before.
        assert attach.properties == {"b": 2, "ferrymq:new-terminus": True}
        assert attach.max_message_size == 1000
        assert attach.source.expiry_policy is TerminusExpiryPolicy.NEVER
        assert attach.source.timeout == 60
        assert attach.source.capabilities == ["queue"]
        assert receiver.properties == {"a": 1}
        assert receiver.offered_capabilities == ["queue"]


class TestEndings:
    async def test_the_peer_closes_the_link(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        task = asyncio.create_task(receiver.receive())
        await connection.session()
        peer.connection.links[receiver.name].close(Error(condition="amqp:resource-deleted"))
        peer.connection.process()
        with pytest.raises(ferrymq.LinkDetached, match="resource-deleted"):
            await task
        with pytest.raises(ferrymq.LinkDetached):
            async for _ in receiver:
                pass

    async def test_a_detach_is_told_from_a_close(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        peer.connection.links[receiver.name].detach(closed=False)
        peer.connection.process()
        with pytest.raises(ferrymq.LinkDetached) as caught:
            await receiver.receive()
        assert not caught.value.closed

    async def test_a_violation_by_the_peer_ends_the_link(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders", max_message_size=100)
        await peer.seen(events.CreditReceived)
        peer.connection.links[receiver.name].remote_max_message_size = 0
        peer.connection.send(receiver.name, b"x" * 101)
        with pytest.raises(ferrymq.LinkDetached, match="message-size-exceeded"):
            await receiver.receive()

    async def test_closing_releases_what_was_not_taken(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", *range(10))
        receiver = await connection.receiver("orders")
        taken = await receiver.receive()
        await connection.session()
        assert receiver.queued == 9
        await receiver.close()
        assert not taken.settled
        assert peer.count(events.OutcomeReceived) == 9
        assert all(
            event.delivery.remote_state == Released()
            for event in peer.events
            if isinstance(event, events.OutcomeReceived)
        )

    @pytest.mark.spec("2.6.4")
    async def test_detaching_leaves_the_terminus(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders", name="mine")
        await receiver.detach()
        [detached] = [e for e in peer.events if isinstance(e, events.DetachReceived)]
        assert not detached.closed
        with pytest.raises(ferrymq.LinkDetached, match=r"'mine'.*was detached"):
            await receiver.receive()
        again = await connection.receiver("orders", name="mine")
        assert not again.closed

    async def test_a_delivery_of_a_closed_link_cannot_be_settled(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.put("orders", 1)
        receiver = await connection.receiver("orders")
        delivery = await receiver.receive()
        await receiver.close()
        with pytest.raises(ferrymq.LinkDetached):
            await delivery.accept()

    async def test_settled_messages_survive_the_link(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        await peer.seen(events.CreditReceived)
        peer.connection.send(receiver.name, Message(1).encode(), settled=True)
        peer.connection.send(receiver.name, Message(2).encode(), settled=False)
        await connection.session()
        peer.connection.links[receiver.name].close()
        peer.connection.process()
        await connection.session()
        assert (await receiver.receive()).message.body == 1
        with pytest.raises(ferrymq.LinkDetached):
            await receiver.receive()

    @pytest.mark.spec("2.6.3")
    async def test_a_refused_link_tells_why(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        error = Error(condition="amqp:not-found", description="no such node")
        peer.on[events.AttachReceived] = lambda _, event: event.link.refuse(error)
        for opening in (connection.receiver("nowhere"), connection.sender("nowhere")):
            with pytest.raises(
                ferrymq.LinkDetached, match=r"^'nowhere': amqp:not-found: no such node$"
            ) as caught:
                await opening
            assert caught.value.error == error
        with pytest.raises(ferrymq.LinkDetached, match=r"^'nowhere': amqp:not-found"):
            async for _ in connection.receiver("nowhere"):
                pass

    async def test_an_attach_that_is_not_answered_times_out(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.AttachReceived] = lambda _, event: None
        with pytest.raises(TimeoutError):
            await connection.receiver("orders", name="slow", timeout=0.01)
        # What comes too late is taken back, and the name is free again.
        event = await peer.seen(events.AttachReceived)
        event.link.accept()
        peer.connection.process()
        await peer.seen(events.DetachReceived)
        await connection.session()
        del peer.on[events.AttachReceived]
        receiver = await connection.receiver("orders", name="slow")
        assert not receiver.closed

    async def test_a_cancelled_attach_is_taken_back(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.AttachReceived] = lambda _, event: None
        task = asyncio.ensure_future(connection.sender("orders").__aenter__())
        event = await peer.seen(events.AttachReceived)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        event.link.accept()
        peer.connection.process()
        await peer.seen(events.DetachReceived)

    async def test_close_does_not_wait_for_ever(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        receiver = await connection.receiver("orders")
        peer.on[events.DetachReceived] = lambda _, event: None
        await receiver.close(timeout=0.01)
        assert receiver.closed
