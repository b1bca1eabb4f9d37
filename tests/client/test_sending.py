"""Senders: credit, outcomes, settlement, pipelining and the ways a send can end."""

from __future__ import annotations

import asyncio

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from ferrymq_types.messaging import Modified, Received, Rejected, Released
from ferrymq_types.transport import Error, ReceiverSettleMode, SenderSettleMode
from tests.client.peer import Peer


async def test_a_message_arrives_and_is_accepted(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    sender = await connection.sender("orders")
    await sender.send(Message(b"one", subject="s"))
    assert peer.received["orders"] == [Message(b"one", subject="s")]
    assert sender.unsettled == 0
    await sender.close()
    assert sender.closed


async def test_a_big_message_takes_many_frames(peer: Peer, connection: ferrymq.Connection) -> None:
    body = bytes(range(256)) * 4096 * 4
    async with connection.sender("orders") as sender:
        await sender.send(Message(body))
    assert peer.received["orders"][0].body == body


async def test_a_settled_message_is_not_waited_for(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    settled = []
    peer.on[events.DeliveryReceived] = lambda _, event: settled.append(
        event.delivery.remote_settled
    )
    sender = await connection.sender("orders")
    await sender.send(Message(b"one"), settled=True)
    await peer.seen(events.DeliveryReceived)
    assert settled == [True]


async def test_a_presettled_link_settles_every_message(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.on[events.DeliveryReceived] = lambda _, event: None
    sender = await connection.sender("orders", snd_settle_mode=SenderSettleMode.SETTLED)
    await sender.send(Message(b"one"))
    event = await peer.seen(events.DeliveryReceived)
    assert event.delivery.remote_settled


@pytest.mark.spec("3.4")
class TestOutcomes:
    @pytest.mark.parametrize(
        ("state", "error"),
        [
            (Rejected(error=Error(condition="x:bad", description="no")), ferrymq.DeliveryRejected),
            (Rejected(), ferrymq.DeliveryRejected),
            (Released(), ferrymq.DeliveryReleased),
            (Modified(delivery_failed=True), ferrymq.DeliveryModified),
            (None, ferrymq.DeliveryReleased),
        ],
    )
    async def test_other_outcomes_are_errors(
        self,
        peer: Peer,
        connection: ferrymq.Connection,
        state: object,
        error: type[ferrymq.DeliveryError],
    ) -> None:
        peer.on[events.DeliveryReceived] = lambda _, event: event.delivery.settle(state)
        sender = await connection.sender("orders")
        with pytest.raises(error) as caught:
            await sender.send(Message(b"one"))
        if isinstance(state, Rejected) and state.error is not None:
            assert caught.value.error == state.error
            assert "x:bad: no" in str(caught.value)
        if isinstance(caught.value, ferrymq.DeliveryModified):
            assert caught.value.delivery_failed
            assert not caught.value.undeliverable_here
        assert sender.unsettled == 0

    async def test_received_is_not_an_outcome(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.DeliveryReceived] = lambda _, event: event.delivery.update(
            Received(section_number=0, section_offset=0)
        )
        sender = await connection.sender("orders")
        await sender.ready()
        future = sender.send_nowait(Message(b"one"))
        event = await peer.seen(events.DeliveryReceived)
        assert not future.done()
        event.delivery.settle(Released())
        peer.connection.process()
        with pytest.raises(ferrymq.DeliveryReleased):
            await future

    @pytest.mark.spec("2.6.12")
    async def test_in_mode_second_the_sender_settles(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        sender = await connection.sender("orders", rcv_settle_mode=ReceiverSettleMode.SECOND)
        await sender.send(Message(b"one"))
        event = await peer.seen(events.SettlementReceived)
        assert event.delivery.remote_settled
        assert event.delivery.settled


def count_writes(connection: ferrymq.Connection) -> list[int]:
    """Count the writes to the transport from now on, in the first entry of the list."""
    transport = connection.transport._transport
    assert transport is not None
    counted = [0]

    class Counting:
        def write(self, data: bytes) -> None:
            counted[0] += 1
            transport.write(data)

        def __getattr__(self, name: str) -> object:
            return getattr(transport, name)

    connection.transport._transport = Counting()  # type: ignore[assignment]
    return counted


class TestWrites:
    async def test_messages_one_after_the_other_are_written_at_once(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        sender = await connection.sender("orders")
        writes = count_writes(connection)
        for number in range(5):
            sending = sender.send(Message(number))
            # The coroutine has run until it waits for the outcome.
            sending.send(None)
            assert writes == [1]
            sending.close()
            await connection.session()  # a round trip: the outcome has come
            writes[0] = 0

    async def test_messages_sent_together_share_a_write(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        sender = await connection.sender("orders")
        await asyncio.gather(*(sender.send(Message(number)) for number in range(20)))
        writes = count_writes(connection)
        await asyncio.gather(*(sender.send(Message(number)) for number in range(20)))
        assert writes == [1]


class TestCredit:
    async def test_send_waits_for_credit(self, peer: Peer, connection: ferrymq.Connection) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        task = asyncio.create_task(sender.send(Message(b"one")))
        other = await connection.sender("other")
        await peer.seen(events.AttachReceived, 2)
        assert sender.credit == other.credit == 0
        assert not task.done()
        peer.connection.links[sender.name].set_credit(1)
        peer.connection.process()
        await task
        assert [m.body for m in peer.received["orders"]] == [b"one"]

    async def test_waiting_sends_keep_their_order(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        tasks = [asyncio.create_task(sender.send(Message(bytes([i])))) for i in range(20)]
        peer.credit = 3
        peer.connection.links[sender.name].set_credit(3)
        peer.connection.process()
        await asyncio.gather(*tasks)
        assert [m.body for m in peer.received["orders"]] == [bytes([i]) for i in range(20)]

    async def test_sends_that_wait_in_different_ways_keep_their_order(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")

        async def send_when_ready(number: int) -> None:
            await sender.ready(timeout=20)
            await sender.send_nowait(Message(number))

        tasks = []
        for number in range(0, 40, 4):
            tasks += [
                asyncio.create_task(sender.send(Message(number))),
                asyncio.create_task(sender.send(Message(number + 1), timeout=20)),
                asyncio.create_task(sender.send_many([Message(number + 2)])),
                asyncio.create_task(send_when_ready(number + 3)),
            ]
        await connection.session()  # a round trip: the tasks are waiting by now
        peer.credit = 7
        peer.connection.links[sender.name].set_credit(7)
        peer.connection.process()
        await asyncio.gather(*tasks)
        assert [m.body for m in peer.received["orders"]] == list(range(40))

    async def test_waiting_sends_share_a_write(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        tasks = [asyncio.create_task(sender.send(Message(number))) for number in range(50)]
        await connection.session()  # a round trip: the tasks are waiting by now
        writes = count_writes(connection)
        peer.connection.links[sender.name].set_credit(50)
        peer.connection.process()
        await asyncio.gather(*tasks)
        assert writes == [1]

    async def test_large_messages_that_wait_are_all_sent(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        body = bytes(400_000)
        tasks = [asyncio.create_task(sender.send(Message(body))) for _ in range(200)]
        await connection.session()  # a round trip: the tasks are waiting by now
        peer.credit = 1000
        peer.connection.links[sender.name].set_credit(1000)
        peer.connection.process()
        await asyncio.gather(*tasks)
        assert len(peer.received["orders"]) == 200

    async def test_a_message_that_is_refused_keeps_no_other_from_its_turn(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        peer.on[events.AttachReceived] = lambda one, event: peer.attach(
            one, event, max_message_size=1000
        )
        sender = await connection.sender("orders")
        tasks = [asyncio.create_task(sender.send(Message(bytes(size)))) for size in (10, 2000, 20)]
        await connection.session()  # a round trip: the tasks are waiting by now
        peer.connection.links[sender.name].set_credit(2)
        peer.connection.process()
        with pytest.raises(ferrymq.LocalProtocolError, match="at most 1000 bytes"):
            await tasks[1]
        await asyncio.gather(tasks[0], tasks[2])
        assert [len(m.body) for m in peer.received["orders"]] == [10, 20]
        assert sender._in_flight.waiting == 0 and sender not in connection.polled

    async def test_a_cancelled_wait_gives_its_turn_away(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        tasks = [asyncio.create_task(sender.send(Message(bytes([i])))) for i in range(3)]
        await connection.session()  # a round trip: the tasks are waiting by now
        tasks[0].cancel()
        peer.connection.links[sender.name].set_credit(2)
        peer.connection.process()
        await asyncio.gather(*tasks[1:])
        assert tasks[0].cancelled() or isinstance(tasks[0].exception(), asyncio.CancelledError)
        assert [m.body for m in peer.received["orders"]] == [b"\x01", b"\x02"]

    async def test_without_credit_send_nowait_refuses(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        with pytest.raises(ferrymq.LocalProtocolError, match="no credit"):
            sender.send_nowait(Message(b"one"))

    @pytest.mark.spec("2.6.7")
    async def test_a_drain_gives_back_what_nobody_needs(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        sender = await connection.sender("orders")
        await sender.ready()
        peer.connection.links[sender.name].drain_credit()
        peer.connection.process()
        await peer.seen(events.DrainCompleted)
        assert sender.credit == 0

    @pytest.mark.spec("2.6.7")
    async def test_a_drain_lets_waiting_sends_go_first(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        tasks = [asyncio.create_task(sender.send(Message(bytes([i])))) for i in range(5)]
        await connection.session()
        link = peer.connection.links[sender.name]
        peer.on[events.DeliveryReceived] = lambda _, event: event.delivery.settle(Released())
        link.set_credit(10)
        link.drain_credit()
        peer.connection.process()
        await peer.seen(events.DrainCompleted)
        assert peer.count(events.DeliveryReceived) == 5
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, ferrymq.DeliveryReleased) for result in results)


class TestPipelining:
    async def test_many_messages_are_sent_and_all_outcomes_awaited(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 7
        sender = await connection.sender("orders")
        await sender.send_many(Message(i) for i in range(200))
        assert [m.body for m in peer.received["orders"]] == list(range(200))

    async def test_failures_tell_which_message(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.DeliveryReceived] = lambda c, event: (
            event.delivery.settle(Rejected())
            if Message.decode(event.delivery.payload).body in (1, 3)
            else Peer.default(peer, c, event)
        )
        sender = await connection.sender("orders")
        with pytest.raises(ExceptionGroup) as caught:
            await sender.send_many([Message(i) for i in range(5)])
        notes = [error.__notes__[0] for error in caught.value.exceptions]
        assert notes == [f"message {i} of 5, counted from 0" for i in (1, 3)]

    async def test_futures_end_with_their_outcomes(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        sender = await connection.sender("orders")
        await sender.ready()
        futures = [sender.send_nowait(Message(i)) for i in range(50)]
        assert sender.unsettled == 50
        await asyncio.gather(*futures)
        assert sender.unsettled == 0

    async def test_a_full_transport_makes_senders_wait(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 10_000
        sender = await connection.sender("orders")
        await sender.ready()
        paused = asyncio.Event()
        transport = connection.transport
        pause = transport.pause_writing

        def pause_writing() -> None:
            pause()
            paused.set()

        transport.pause_writing = pause_writing  # type: ignore[method-assign]
        peer.connection.transport.pause_reading()
        task = asyncio.create_task(sender.send_many([Message(b"x" * 60_000)] * 1000))
        await paused.wait()
        sent = sender.unsettled
        assert sent < 1000
        with pytest.raises(TimeoutError):
            await sender.ready(timeout=0.01)
        # Nothing is sent into a full transport.
        assert sender.unsettled == sent
        peer.connection.transport.resume_reading()
        await task
        assert len(peer.received["orders"]) == 1000


class TestEndings:
    async def test_a_timeout_while_waiting_for_credit(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        with pytest.raises(TimeoutError):
            await sender.send(Message(b"one"), timeout=0.01)
        with pytest.raises(TimeoutError):
            await sender.ready(timeout=0.01)

    async def test_a_timeout_while_waiting_for_the_outcome(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.DeliveryReceived] = lambda _, event: None
        sender = await connection.sender("orders")
        with pytest.raises(TimeoutError):
            await sender.send(Message(b"one"), timeout=0.05)
        # The outcome that comes after all is settled as any other.
        event = await peer.seen(events.DeliveryReceived)
        event.delivery.settle(Released())
        peer.connection.process()
        await connection.session()
        assert sender.unsettled == 0

    async def test_the_peer_closes_the_link(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.DeliveryReceived] = lambda _, event: event.link.close(
            Error(condition="amqp:resource-deleted")
        )
        sender = await connection.sender("orders")
        with pytest.raises(ferrymq.LinkDetached, match="resource-deleted") as caught:
            await sender.send(Message(b"one"))
        assert caught.value.condition == "amqp:resource-deleted"
        assert sender.closed
        with pytest.raises(ferrymq.LinkDetached):
            await sender.send(Message(b"two"))
        await sender.close()

    async def test_a_waiting_send_hears_that_the_link_is_gone(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.credit = 0
        sender = await connection.sender("orders")
        tasks = [asyncio.create_task(sender.send(Message(b"one"))) for _ in range(3)]
        await connection.session()
        peer.connection.links[sender.name].close()
        peer.connection.process()
        for task in tasks:
            with pytest.raises(ferrymq.LinkDetached):
                await task

    async def test_closing_ends_what_waits(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.DeliveryReceived] = lambda _, event: None
        sender = await connection.sender("orders")
        await sender.ready()
        future = sender.send_nowait(Message(b"one"))
        await sender.close()
        with pytest.raises(ferrymq.LinkDetached, match="was closed"):
            await future

    async def test_a_message_too_large_is_refused_here(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        peer.on[events.AttachReceived] = lambda c, event: peer.attach(
            c, event, max_message_size=1000
        )
        sender = await connection.sender("orders")
        assert sender.max_message_size == 1000
        with pytest.raises(ferrymq.LocalProtocolError, match="at most 1000"):
            await sender.send(Message(b"x" * 1001))
        await sender.send(Message(b"x"))

    async def test_a_value_without_encoding_is_refused_here(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        sender = await connection.sender("orders")
        with pytest.raises(ferrymq.EncodeError):
            await sender.send(Message(object()))
        await sender.send(Message(b"x"))
