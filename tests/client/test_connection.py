"""Connections that are open: sessions, losing them, closing them."""

from __future__ import annotations

import asyncio

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from ferrymq_types.messaging import Released
from ferrymq_types.transport import Error
from tests.client.peer import Peer


async def waiting_tasks(peer: Peer, connection: ferrymq.Connection) -> list[asyncio.Task[object]]:
    """One task for every kind of wait, all of them waiting."""
    peer.on[events.DeliveryReceived] = lambda _, event: None
    sender = await connection.sender("orders")
    receiver = await connection.receiver("orders")
    peer.credit = 0
    waiting_for_room = await connection.sender("starved")
    await sender.ready()
    peer.on[events.CreditReceived] = lambda _, event: None
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(sender.send(Message(b""))),
        asyncio.create_task(sender.send_many([Message(b"")] * 3)),
        asyncio.create_task(waiting_for_room.send(Message(b""))),
        asyncio.create_task(waiting_for_room.ready()),
        asyncio.create_task(receiver.receive()),
        asyncio.create_task(receiver.drain()),
        asyncio.create_task(receiver.__anext__()),
    ]
    await connection.session()
    peer.on[events.AttachReceived] = lambda _, event: None
    peer.on[events.BeginReceived] = lambda _, event: None
    tasks += [
        asyncio.ensure_future(connection.sender("late").open()),
        asyncio.ensure_future(connection.receiver("late").open()),
        asyncio.ensure_future(connection.session().open()),
    ]
    await peer.seen(events.BeginReceived, 3)
    assert not any(task.done() for task in tasks)
    return tasks


async def all_raise(
    tasks: list[asyncio.Task[object]], error: type[ferrymq.AmqpError]
) -> list[ferrymq.AmqpError]:
    async with asyncio.timeout(5):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    raised = [result for result in results if isinstance(result, error)]
    assert len(raised) == len(tasks), results
    return raised


class TestLoss:
    """Whatever waits hears of it: nothing hangs."""

    async def test_the_transport_breaks(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url)
        tasks = await waiting_tasks(peer, connection)
        peer.connection.transport.abort()
        await all_raise(tasks, ferrymq.ConnectionClosed)
        assert connection.closed
        with pytest.raises(ferrymq.ConnectionClosed):
            await connection.wait_closed()
        with pytest.raises(ferrymq.ConnectionClosed):
            await connection.sender("orders")
        with pytest.raises(ferrymq.ConnectionClosed):
            await connection.session()
        await connection.close()

    async def test_the_peer_closes_with_an_error(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url)
        tasks = await waiting_tasks(peer, connection)
        error = Error(condition="amqp:connection:forced", description="going down")
        peer.connection.engine.close(error)
        peer.connection.process()
        for raised in await all_raise(tasks, ferrymq.ConnectionClosed):
            assert isinstance(raised, ferrymq.ConnectionClosed)
            assert raised.error == error
        with pytest.raises(ferrymq.ConnectionClosed, match="going down"):
            await connection.wait_closed()

    async def test_the_peer_closes_without_one(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url)
        tasks = await waiting_tasks(peer, connection)
        peer.connection.engine.close()
        peer.connection.process()
        await all_raise(tasks, ferrymq.ConnectionClosed)
        await connection.wait_closed()

    async def test_the_peer_breaks_the_protocol(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url)
        tasks = await waiting_tasks(peer, connection)
        peer.connection.transport.write(b"\x00\x00\x00\x03garbage")
        for raised in await all_raise(tasks, ferrymq.ConnectionClosed):
            assert isinstance(raised.__cause__, ferrymq.RemoteProtocolError)

    async def test_this_side_closes(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url)
        tasks = await waiting_tasks(peer, connection)
        await connection.close()
        await all_raise(tasks[:6] + tasks[7:], ferrymq.ConnectionClosed)
        await connection.wait_closed()
        await connection.close()

    async def test_a_silent_peer(self) -> None:
        async with Peer() as peer:
            connection = await ferrymq.connect(
                peer.url, idle_time_out=0.1, close_timeout=0.05, timeout=10
            )
            receiver = await connection.receiver("orders")
            peer.connection.reading = False
            # Its own heart-beats are due only by the time-out it was told; stop them too.
            peer.connection.engine.receive_eof(asyncio.get_running_loop().time())
            with pytest.raises(ferrymq.ConnectionClosed, match="idle"):
                await receiver.receive(timeout=10)
            await connection.close()

    async def test_heart_beats_keep_a_quiet_connection(self) -> None:
        async with Peer(idle_time_out=0.2) as peer:
            connection = await ferrymq.connect(peer.url)
            beats = asyncio.Event()
            receive = peer.connection.engine.receive_data
            count = 0

            class Counting(type(peer.connection)):  # type: ignore[misc]
                def data_received(self, data: bytes) -> None:
                    nonlocal count
                    count += data == b"\x00\x00\x00\x08\x02\x00\x00\x00"
                    if count >= 3:
                        beats.set()
                    super().data_received(data)

            peer.connection.__class__ = Counting
            async with asyncio.timeout(10):
                await beats.wait()
            assert not connection.closed
            assert receive is not None
            await connection.close()


class TestSessions:
    async def test_sessions_are_apart(self, peer: Peer, connection: ferrymq.Connection) -> None:
        async with connection.session() as first, connection.session() as second:
            one = await first.sender("a", name="one")
            two = await second.sender("b", name="two")
            await one.send(Message(1))
            await two.send(Message(2))
            # A name stands for one link, whatever the session (AMQP 1.0 §2.6.1).
            with pytest.raises(ferrymq.LocalProtocolError, match="attached already"):
                await second.sender("a", name="one")
            await first.close()
            assert first.closed and one.closed
            with pytest.raises(ferrymq.SessionEnded):
                await one.send(Message(3))
            await two.send(Message(4))
        assert [m.body for m in peer.received["b"]] == [2, 4]
        assert peer.count(events.EndReceived) == 2

    async def test_the_peer_ends_a_session(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        session = await connection.session()
        receiver = await session.receiver("orders")
        error = Error(condition="amqp:session:errant-link", description="enough")
        receiver._engine.session  # noqa: B018 - attached
        peer.connection.links[receiver.name].session.end(error)
        peer.connection.process()
        with pytest.raises(ferrymq.SessionEnded, match="enough"):
            await receiver.receive()
        with pytest.raises(ferrymq.SessionEnded):
            await session.sender("orders")
        # The shared session is another one.
        await (await connection.sender("orders")).send(Message(b""))

    async def test_a_new_shared_session_replaces_one_that_ended(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        sender = await connection.sender("orders")
        peer.connection.links[sender.name].session.end()
        peer.connection.process()
        with pytest.raises(ferrymq.SessionEnded):
            await sender.send(Message(b""), timeout=5)
            await sender.send(Message(b""), timeout=5)
        await (await connection.sender("orders")).send(Message(b""))

    async def test_a_begin_that_is_not_answered_times_out(self, peer: Peer) -> None:
        async with ferrymq.connect(peer.url, timeout=0.2) as connection:
            peer.on[events.BeginReceived] = lambda _, event: None
            with pytest.raises(TimeoutError):
                await connection.session()
            # What comes too late is ended.
            (await peer.seen(events.BeginReceived)).session.accept()
            peer.connection.process()
            await peer.seen(events.EndReceived)

    async def test_links_begun_together_share_one_session(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        await asyncio.gather(*[connection.sender(f"q{i}").open() for i in range(10)])
        assert peer.count(events.BeginReceived) == 1

    async def test_what_the_peer_begins_is_refused(
        self, peer: Peer, connection: ferrymq.Connection
    ) -> None:
        session = peer.connection.engine.begin()
        peer.connection.process()
        await peer.seen(events.EndReceived)
        assert not session.mapped
        sender = await connection.sender("orders")
        shared = peer.connection.links[sender.name].session
        shared.attach_sender("unasked", target=None)
        peer.on[events.AttachReceived] = lambda _, event: None
        peer.connection.process()
        detached = await peer.seen(events.DetachReceived)
        assert detached.error.condition == "amqp:not-allowed"
        await sender.send(Message(b""))


class TestClosing:
    async def test_close_releases_what_was_not_taken(self, peer: Peer) -> None:
        peer.put("orders", *range(5))
        async with ferrymq.connect(peer.url) as connection:
            receiver = await connection.receiver("orders")
            taken = await receiver.receive()
            await connection.session()
        assert not taken.settled
        await peer.seen(events.OutcomeReceived, 4)
        assert all(
            event.delivery.remote_state == Released()
            for event in peer.events
            if isinstance(event, events.OutcomeReceived)
        )
        await peer.connection.lost

    async def test_what_was_accepted_is_written_before_the_close(self, peer: Peer) -> None:
        peer.put("orders", *range(5))
        async with ferrymq.connect(peer.url) as connection:
            receiver = await connection.receiver("orders")
            for _ in range(5):
                await (await receiver.receive()).accept()
        await peer.seen(events.OutcomeReceived, 5)

    async def test_close_with_an_error(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url)
        await connection.close(error=Error(condition="x:why"))
        assert (await peer.seen(events.CloseReceived)).error == Error(condition="x:why")

    async def test_close_does_not_wait_for_a_dead_peer(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url, close_timeout=0.05)
        peer.connection.reading = False
        async with asyncio.timeout(5):
            await connection.close()
        assert connection.closed

    async def test_concurrent_closes(self, peer: Peer) -> None:
        connection = await ferrymq.connect(peer.url)
        await asyncio.gather(connection.close(), connection.close(), connection.wait_closed())
        assert peer.count(events.CloseReceived) == 1

    async def test_an_error_in_the_block_is_not_hidden(self, peer: Peer) -> None:
        with pytest.raises(KeyError):
            async with ferrymq.connect(peer.url) as connection:
                await connection.sender("orders")
                raise KeyError
        assert connection.closed

    async def test_waiting_for_the_end_can_time_out(self, connection: ferrymq.Connection) -> None:
        with pytest.raises(TimeoutError):
            await connection.wait_closed(timeout=0.01)
        assert not connection.closed
