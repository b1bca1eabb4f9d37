"""A session for each link, with a peer that ends the session of a link that it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from ferrymq_types.transport import Error
from tests.client.peer import Peer
from tests.client.rabbit import RabbitPeer, until
from tests.client.stepped import Moment, Stepped


class TestSessionForEachLink:
    async def test_a_refused_link_harms_no_other(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection:
            sender = await connection.sender("/queues/q")
            receiver = await connection.receiver("/queues/q")
            for open in (connection.sender, connection.receiver):
                with pytest.raises(ferrymq.LinkDetached) as caught:
                    await open("/queues/nope")
                text = "'/queues/nope': amqp:not-found: no queue 'nope' in vhost '/'"
                assert str(caught.value) == text
                assert isinstance(caught.value.__cause__, ferrymq.SessionEnded)
            await sender.send(Message(1), timeout=5)
            rabbit.put("/queues/q", "still there")
            rabbit.feed(rabbit.connection.links[receiver.name])
            rabbit.connection.process()
            assert (await receiver.receive(timeout=5)).message.body == "still there"

    @pytest.mark.parametrize("leave", ["close", "detach"])
    async def test_the_session_ends_with_its_link(self, old: RabbitPeer, leave: str) -> None:
        """RabbitMQ 3.10 gives a detached receiver messages until its session ends."""
        async with ferrymq.connect(old.url) as connection:
            receiver = await connection.receiver("q", credit=4)
            sender = await connection.sender("q")
            assert len(set(old.addresses().values())) == 1 and len(connection.sessions) == 2
            assert receiver.session is not sender.session
            await getattr(receiver, leave)()
            # The answer has come: what the receiver had is in the queue again.
            assert receiver.session.closed and len(connection.sessions) == 1
            ends = [e for e in old.events if isinstance(e, events.EndReceived)]
            assert len(ends) == 1
            await sender.send(Message(1), timeout=5)

    async def test_an_end_that_is_not_answered_is_not_waited_for(self, old: RabbitPeer) -> None:
        """RabbitMQ 3.10 answers not every end, when many come at once."""
        old.on[events.EndReceived] = lambda _, event: None
        async with ferrymq.connect(old.url) as connection:
            receiver = await connection.receiver("q")
            async with asyncio.timeout(10):
                await receiver.close()
            assert receiver.session.closed and not connection.sessions

    async def test_a_dropped_receiver_ends_its_session(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection:
            receiver = await connection.receiver("/queues/q")
            with pytest.warns(ResourceWarning):
                del receiver
            await until(lambda: not connection.sessions)
            await rabbit.seen(events.EndReceived)

    async def test_a_link_that_the_peer_closes_ends_its_session(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection:
            receiver = await connection.receiver("/queues/q")
            rabbit.connection.links[receiver.name].detach(
                closed=True, error=Error(condition="amqp:resource-deleted")
            )
            rabbit.connection.process()
            with pytest.raises(ferrymq.LinkDetached, match="resource-deleted"):
                await receiver.receive(timeout=5)
            await until(lambda: not connection.sessions)

    async def test_links_share_when_channels_are_scarce(self) -> None:
        async with RabbitPeer(channel_max=7) as rabbit, ferrymq.connect(rabbit.url) as connection:
            senders = [await connection.sender(f"/queues/q{i}") for i in range(12)]
            assert len({sender.session for sender in senders}) == 6
            shares = [[s.session for s in senders].count(x) for x in connection.sessions]
            assert shares == [2] * 6
            explicit = [await connection.session(), await connection.session()]
            with pytest.raises(ferrymq.LocalProtocolError, match="all channels"):
                await connection.session()
            # A session ends with the last of its links.
            first, second = [s for s in senders if s.session is senders[0].session]
            await first.close()
            assert not second.closed
            await second.send(Message(1), timeout=5)
            await second.close()
            assert second.session.closed
            await explicit[0].close()
            async with asyncio.timeout(5):
                await asyncio.gather(*(sender.close() for sender in senders))
            assert list(connection.sessions) == [explicit[1]]

    async def test_many_at_once(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection:
            opened = await asyncio.gather(
                *(connection.sender(f"/queues/{'no' if i % 3 else 'q'}{i}") for i in range(90)),
                return_exceptions=True,
            )
            # Those that share a session with a refused one may end with it.
            for index, link in enumerate(opened):
                if index % 3:
                    assert isinstance(link, ferrymq.PeerError)
            good = [link for link in opened[:45] if isinstance(link, ferrymq.Sender)]
            assert len(good) == 15
            for link in good:
                await link.send(Message(1), timeout=5)

    async def test_the_users_sessions_are_shared(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection, connection.session() as session:
            one, two = await session.sender("/queues/a"), await session.receiver("/queues/a")
            assert one.session is two.session is session
            await one.close()
            await two.close()
            assert not session.closed

    async def test_other_peers_get_one_session(self, peer: Peer) -> None:
        async with ferrymq.connect(peer.url) as connection:
            one, two = await connection.sender("a"), await connection.receiver("a")
            assert one.session is two.session
            await one.close()
            assert not two.session.closed and connection.peer.name == ""

    @pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.value)
    async def test_a_call_that_is_cancelled_leaves_nothing(
        self, rabbit: RabbitPeer, moment: Moment
    ) -> None:
        async def script() -> None:
            async with connection.receiver("/queues/q"):
                pass

        step, struck, visited = 0, True, set[tuple[str, str]]()
        async with ferrymq.connect(rabbit.url) as connection:
            while struck:
                step += 1
                stepped = Stepped(script(), step, moment)

                async def run(work: Stepped = stepped) -> None:
                    await work

                async with asyncio.timeout(20):
                    await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
                struck = stepped.struck
                visited |= stepped.visited
                sessions = rabbit.connection.engine.channels.by_remote
                await until(lambda: not connection.sessions)
                await until(lambda sessions=sessions: not sessions)
        assert step > 4
        assert ("session.py", "Session.for_links") in visited
        assert ("session.py", "Session.ended_idle") in visited

    async def test_channels_are_not_used_again_at_once(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection:
            for _ in range(70):
                async with connection.sender("/queues/q"):
                    pass
        channels = [e.session.remote_channel for e in rabbit.events
                    if isinstance(e, events.BeginReceived)]  # fmt: skip
        assert channels == [*range(64), *range(6)]


class TestWhatIsLacking:
    @pytest.mark.parametrize(
        ("open", "text"),
        [
            (
                lambda c: c.receiver(None, dynamic=True).open(),
                "a dynamic node: amqp:not-implemented: Dynamic sources not supported: "
                "RabbitMQ 4.0.5 has no dynamic nodes",
            ),
            (
                lambda c: c.sender(None, dynamic=True).open(),
                "a dynamic node: amqp:not-implemented: Dynamic targets not supported: "
                "RabbitMQ 4.0.5 has no dynamic nodes",
            ),
            (
                lambda c: c.transaction().open(),
                "the transaction coordinator: amqp:not-implemented: Transactions not supported: "
                "RabbitMQ 4.0.5 has no transactions",
            ),
            (
                lambda c: c.request("/queues/q", Message(1)),
                "a dynamic node: amqp:not-implemented: Dynamic sources not supported: "
                "RabbitMQ 4.0.5 has no dynamic nodes",
            ),
            (
                lambda c: c.management(address="/queues/nope").open(),
                "'/queues/nope': amqp:not-found: no queue 'nope' in vhost '/'",
            ),
        ],
        ids=["source", "target", "transaction", "request", "management"],
    )
    async def test_the_error_says_it(
        self,
        rabbit: RabbitPeer,
        open: Callable[[ferrymq.Connection], Awaitable[object]],
        text: str,
    ) -> None:
        async with ferrymq.connect(rabbit.url) as connection:
            sender = await connection.sender("/queues/q")
            for _ in range(3):
                with pytest.raises(ferrymq.LinkDetached) as caught:
                    await open(connection)
                assert str(caught.value) == text
            await sender.send(Message(1), timeout=5)
            await until(lambda: len(connection.sessions) == 1)

    async def test_management_of_a_session_says_the_first_refusal(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection:
            session = await connection.session()
            with pytest.raises(ferrymq.LinkDetached, match="no queue 'nope'"):
                await session.management("/queues/nope")
