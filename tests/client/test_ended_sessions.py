"""Sessions that the peer ends because of one link, as RabbitMQ does: the other links go on."""

from __future__ import annotations

import asyncio
import logging

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, blocking
from ferrymq.blocking.portal import Portal
from ferrymq.engine import events
from ferrymq_types.messaging import Released
from ferrymq_types.transport import Error
from tests.client.pauses import Pauses
from tests.client.peer import Peer
from tests.client.rabbit import RabbitPeer, until


class TestWithoutAPolicy:
    async def test_all_links_of_the_session_fail_and_name_the_guilty_one(
        self, rabbit: RabbitPeer
    ) -> None:
        async with ferrymq.connect(rabbit.url) as connection, connection.session() as session:
            sender = await session.sender("/queues/q")
            receiver = await session.receiver("/queues/q")
            receiving = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0)
            with pytest.raises(
                ferrymq.LinkDetached, match=r"^'/queues/nope': amqp:not-found: no q"
            ):
                await session.sender("/queues/nope")
            text = (
                f"{connection.url}: the peer ended the session because of '/queues/nope': "
                "amqp:not-found: no queue 'nope' in vhost '/'"
            )
            with pytest.raises(ferrymq.SessionEnded) as caught:
                await sender.send(Message(1))
            assert str(caught.value) == text
            with pytest.raises(ferrymq.SessionEnded) as caught:
                await receiving
            assert str(caught.value) == text
            assert session.closed

    async def test_a_wrong_user_id_is_the_senders(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection, connection.session() as session:
            good = await session.sender("/queues/good")
            bad = await session.sender("/queues/bad")
            receiver = await session.receiver("/queues/good")
            with pytest.raises(ferrymq.LinkDetached) as caught:
                await bad.send(Message(1, user_id=b"somebody"))
            assert str(caught.value) == (
                "'/queues/bad': the peer ended the session: amqp:unauthorized-access: "
                "user_id property set to 'somebody' but authenticated user was 'guest'"
            )
            for call in (good.send(Message(1)), receiver.receive()):
                with pytest.raises(ferrymq.SessionEnded, match="because of '/queues/bad': amqp:un"):
                    await call

    async def test_an_outcome_is_the_receivers(self, old: RabbitPeer) -> None:
        old.put("q", 1)
        async with ferrymq.connect(old.url) as connection, connection.session() as session:
            sender = await session.sender("q")
            receiver = await session.receiver("q")
            receiver.granted = None
            await (await receiver.receive(timeout=5)).modify(delivery_failed=True)
            with pytest.raises(ferrymq.LinkDetached, match="'q': the peer ended the session: amqp"):
                await receiver.receive(timeout=5)
            with pytest.raises(ferrymq.SessionEnded, match="because of 'q': amqp:invalid-field"):
                await sender.send(Message(1))

    async def test_none_is_named_when_none_is_sure(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url) as connection, connection.session() as session:
            one, two = await session.sender("/queues/one"), await session.sender("/queues/two")
            rabbit.on[events.DeliveryReceived] = lambda _, event: None
            sends = [asyncio.create_task(link.send(Message(1))) for link in (one, two)]
            await rabbit.seen(events.DeliveryReceived, 2)
            rabbit.end("/queues/one", "amqp:not-allowed", "something")
            for send in sends:
                with pytest.raises(ferrymq.SessionEnded, match="ended the session: amqp:not-all"):
                    await send

    async def test_the_first_of_two_attaches_is_the_guilty_one(self, rabbit: RabbitPeer) -> None:
        rabbit.refusals["/queues/b"] = Error(condition="amqp:unauthorized-access")
        async with ferrymq.connect(rabbit.url) as connection, connection.session() as session:
            opened = await asyncio.gather(
                *(session.sender(f"/queues/{name}").open() for name in "abc"),
                return_exceptions=True,
            )
            assert isinstance(opened[1], ferrymq.LinkDetached)
            assert str(opened[1]).startswith("'/queues/b': amqp:unauthorized-access")
            assert "because of '/queues/b'" in str(opened[2])


class TestUnknownOutcomes:
    """RabbitMQ 3.10 cannot read modified, and ends the session."""

    async def test_modify_raises(self, old: RabbitPeer) -> None:
        old.put("q", 1)
        async with ferrymq.connect(old.url) as connection:
            receiver = await connection.receiver("q")
            delivery = await receiver.receive(timeout=5)
            with pytest.raises(ferrymq.LocalProtocolError, match="grants amqp:accepted:list, amqp"):
                await delivery.modify(delivery_failed=True)
            await delivery.accept()

    async def test_the_end_of_a_block_releases(self, old: RabbitPeer) -> None:
        old.put("q", 1, 2)
        async with ferrymq.connect(old.url) as connection:
            receiver = await connection.receiver("q")
            with pytest.raises(RuntimeError):
                async with await receiver.receive(timeout=5):
                    raise RuntimeError("the work failed")
            outcome = await old.seen(events.OutcomeReceived)
            assert outcome.delivery.remote_state == Released()
            await (await receiver.receive(timeout=5)).accept()

    async def test_a_worker_releases(self, old: RabbitPeer) -> None:
        old.put("q", 1)

        async def fail(_: ferrymq.Delivery) -> None:
            raise ValueError("no")

        async with ferrymq.connect(old.url) as connection:
            worker = ferrymq.Worker(connection, "q", fail, retry_delay=0.001)
            running = asyncio.create_task(worker.run())
            outcome = await old.seen(events.OutcomeReceived)
            assert outcome.delivery.remote_state == Released()
            worker.stop()
            await running


class TestWithAPolicy:
    async def test_links_come_back_on_a_new_session(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy, pauses: Pauses
    ) -> None:
        async with (
            ferrymq.connect(rabbit.url, reconnect=policy) as connection,
            connection.session() as session,
        ):
            sender = await session.sender("/queues/q")
            receiver = await session.receiver("/queues/q", credit=7)
            receiving = asyncio.create_task(receiver.receive())
            with pytest.raises(ferrymq.LinkDetached, match="no queue 'nope'"):
                await session.receiver("/queues/nope")
            await until(lambda: len(rabbit.addresses()) == 1 and receiver.credit == 7)
            assert rabbit.addresses() == {"/queues/q": 1}
            await sender.send(Message("after"), timeout=5)
            rabbit.put("/queues/q", "back")
            rabbit.feed(rabbit.connection.links[receiver.name])
            rabbit.connection.process()
            assert (await receiving).message.body == "back"
            assert pauses.asked == [1]
            assert not session.closed and len(rabbit.connections) == 1
            # The session is as good as before.
            await session.sender("/queues/other")

    async def test_a_link_that_was_being_attached_is_attached_again(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy
    ) -> None:
        async with (
            ferrymq.connect(rabbit.url, reconnect=policy) as connection,
            connection.session() as session,
        ):
            bad, good = await asyncio.gather(
                session.sender("/queues/nope").open(),
                session.sender("/queues/good").open(),
                return_exceptions=True,
            )
            assert isinstance(bad, ferrymq.LinkDetached)
            assert isinstance(good, ferrymq.Sender)
            await good.send(Message(1), timeout=5)

    async def test_what_is_in_doubt_is_sent_again(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy
    ) -> None:
        async with (
            ferrymq.connect(rabbit.url, reconnect=policy) as connection,
            connection.session() as session,
        ):
            sender = await session.sender("/queues/q")
            answer, rabbit.on[events.DeliveryReceived] = (
                rabbit.on[events.DeliveryReceived], lambda _, event: None
            )  # fmt: skip
            sending = asyncio.create_task(sender.send(Message("doubtful"), timeout=5))
            await rabbit.seen(events.DeliveryReceived)
            rabbit.on[events.DeliveryReceived] = answer
            with pytest.raises(ferrymq.LinkDetached):
                await session.sender("/queues/nope")
            await sending
            assert [m.body for m in rabbit.received["/queues/q"]] == ["doubtful"]

    async def test_a_link_that_is_refused_now_fails_alone(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy, pauses: Pauses
    ) -> None:
        async with (
            ferrymq.connect(rabbit.url, reconnect=policy) as connection,
            connection.session() as session,
        ):
            links = [await session.sender(f"/queues/{name}") for name in "abcd"]
            for name in "bd":
                text = f"no queue '{name}' in vhost '/'"
                rabbit.refusals[f"/queues/{name}"] = Error(
                    condition="amqp:not-found", description=text
                )
            rabbit.end("/queues/a", "amqp:internal-error")
            for index in (1, 3):
                with pytest.raises(ferrymq.LinkDetached, match="no queue"):
                    await links[index].send(Message(1), timeout=5)
            for index in (0, 2):
                await links[index].send(Message(1), timeout=5)
            assert pauses.asked == [1, 1, 1]
            assert rabbit.attaches == {
                "/queues/a": 4, "/queues/b": 2, "/queues/c": 3, "/queues/d": 2
            }  # fmt: skip

    async def test_each_refused_link_costs_one_pause(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy, pauses: Pauses
    ) -> None:
        """The session is not expected to end again without the link that has ended it."""
        async with (
            ferrymq.connect(rabbit.url, reconnect=policy) as connection,
            connection.session() as session,
        ):
            sender = await session.sender("/queues/q")
            for _ in range(9):
                with pytest.raises(ferrymq.LinkDetached):
                    await session.sender("/queues/nope")
                await sender.send(Message(1), timeout=5)
            assert pauses.asked == [1] * 9

    async def test_a_session_that_keeps_ending_is_given_up(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy, pauses: Pauses
    ) -> None:
        async with ferrymq.connect(rabbit.url, reconnect=policy) as connection:
            sender = await connection.sender("/queues/q")
            other = await connection.sender("/queues/other")

            def crash(_: object, event: events.DeliveryReceived) -> None:
                if event.link.name == sender.name:
                    event.link.session.end(Error(condition="amqp:internal-error"))
                else:
                    event.delivery.settle(event.delivery.remote_state)

            rabbit.on[events.DeliveryReceived] = crash
            with pytest.raises(ferrymq.SessionEnded, match="internal-error"):
                await sender.send(Message("poison"), timeout=10)
            assert pauses.asked == [1, 2, 4, 5, 5, 5]
            assert rabbit.attaches["/queues/q"] == 7 and rabbit.attaches["/queues/other"] == 1
            assert not connection.closed and not other.closed

    async def test_however_many_links_are_refused_now_the_others_come_back(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy, pauses: Pauses
    ) -> None:
        async with (
            ferrymq.connect(rabbit.url, reconnect=policy) as connection,
            connection.session() as session,
        ):
            links = [await session.sender(f"/queues/{i}") for i in range(8)]
            for link in links[:-1]:
                error = Error(condition="amqp:not-found", description=f"no queue '{link.address}'")
                rabbit.refusals[link.address] = error
            rabbit.end("/queues/7", "amqp:internal-error")
            await links[-1].send(Message(1), timeout=5)
            assert [link.closed for link in links] == [True] * 7 + [False]
            assert pauses.asked == [1] * 8

    async def test_a_session_that_ends_at_its_begin_is_given_up(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy, pauses: Pauses
    ) -> None:
        def end(_: object, event: events.BeginReceived) -> None:
            event.session.accept()
            event.session.end(Error(condition="amqp:internal-error", description="no more"))

        async with ferrymq.connect(rabbit.url, reconnect=policy) as connection:
            sender = await connection.sender("/queues/q")
            rabbit.on[events.BeginReceived] = end
            rabbit.end("/queues/q", "amqp:internal-error")
            with pytest.raises(ferrymq.SessionEnded, match="no more"):
                await sender.send(Message(1), timeout=5)
            assert pauses.asked == [1, 2, 4, 5, 5, 5]
            with pytest.raises(ferrymq.SessionEnded, match="no more"):
                await connection.session()
            assert not connection.sessions

    async def test_a_poisonous_message_ends_its_link_at_once(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy
    ) -> None:
        async with (
            ferrymq.connect(rabbit.url, reconnect=policy) as connection,
            connection.session() as session,
        ):
            good = await session.sender("/queues/good")
            bad = await session.sender("/queues/bad")
            with pytest.raises(ferrymq.LinkDetached, match="user_id property set to 'somebody'"):
                await bad.send(Message(1, user_id=b"somebody"), timeout=5)
            await good.send(Message(1, user_id=b"guest"), timeout=5)
            assert rabbit.attaches == {"/queues/good": 2, "/queues/bad": 1}

    async def test_a_session_that_is_closed_meanwhile_stays_closed(
        self, rabbit: RabbitPeer
    ) -> None:
        patient = ReconnectPolicy(initial=60)
        async with ferrymq.connect(rabbit.url, reconnect=patient) as connection:
            session = await connection.session()
            sender = await session.sender("/queues/q")
            rabbit.end("/queues/q", "amqp:internal-error")
            await until(lambda: session.restoring)
            await session.close()
            assert session.closed and sender.closed and not connection.sessions
            await asyncio.sleep(0.01)
            assert rabbit.attaches == {"/queues/q": 1}

    async def test_the_connection_is_lost_meanwhile(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy
    ) -> None:
        async with ferrymq.connect(rabbit.url, reconnect=policy) as connection:
            session = await connection.session()
            sender = await session.sender("/queues/q")
            receiver = await connection.receiver("/queues/q")
            rabbit.end("/queues/q", "amqp:internal-error")
            rabbit.connection.transport.abort()
            await sender.send(Message(1), timeout=5)
            await until(lambda: receiver.credit > 0)
            assert len(rabbit.connections) == 2
            await receiver.close()
            await session.close()
            assert not connection.sessions

    async def test_a_clean_end_is_an_end(self, peer: Peer, policy: ReconnectPolicy) -> None:
        async with ferrymq.connect(peer.url, reconnect=policy) as connection:
            receiver = await connection.receiver("q")
            peer.connection.links[receiver.name].session.end()
            peer.connection.process()
            with pytest.raises(ferrymq.SessionEnded):
                await receiver.receive(timeout=5)

    async def test_any_peers_links_come_back(self, peer: Peer, policy: ReconnectPolicy) -> None:
        async with ferrymq.connect(peer.url, reconnect=policy) as connection:
            sender = await connection.sender("q")
            peer.connection.links[sender.name].session.end(Error(condition="amqp:internal-error"))
            peer.connection.process()
            await sender.send(Message(1), timeout=5)
            assert len(peer.connections) == 1


class TestDurable:
    async def test_a_known_peer_is_not_asked_to_resume(
        self, rabbit: RabbitPeer, policy: ReconnectPolicy, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "ferrymq")
        async with ferrymq.connect(rabbit.url, reconnect=policy, container_id="me") as connection:
            sender = await connection.sender("/queues/q", name="s", durable=True)
            receiver = await connection.receiver("/queues/q", name="r", durable=True)
            answer, rabbit.on[events.DeliveryReceived] = (
                rabbit.on[events.DeliveryReceived], lambda _, event: None
            )  # fmt: skip
            sending = asyncio.create_task(sender.send(Message("doubtful"), timeout=5))
            await rabbit.seen(events.DeliveryReceived)
            rabbit.on[events.DeliveryReceived] = answer
            rabbit.connection.transport.abort()
            await sending
            await until(lambda: receiver.credit > 0)
            assert [m.body for m in rabbit.received["/queues/q"]] == ["doubtful"]
            lines = [record.getMessage() for record in caplog.records]
            assert len([line for line in lines if "RabbitMQ 4.0.5 resumes no links" in line]) == 2
            assert len([line for line in lines if "sent again: some may arrive twice" in line]) == 1

    async def test_exactly_once_is_refused(self, rabbit: RabbitPeer) -> None:
        async with ferrymq.connect(rabbit.url, container_id="me") as connection:
            for open in (connection.sender, connection.receiver):
                with pytest.raises(
                    ferrymq.LinkDetached, match=r"RabbitMQ 4\.0\.5 resumes no links"
                ):
                    await open("/queues/q", name="x", exactly_once=True)

    @pytest.mark.parametrize("resend", [True, False])
    async def test_another_peer_that_refuses_to_resume_is_attached_anew(
        self, pauses: Pauses, resend: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "ferrymq")
        policy = ReconnectPolicy(initial=0.0, attempts=9, sleep=pauses, resend=resend)
        async with (
            RabbitPeer(properties=None) as server,
            ferrymq.connect(server.url, reconnect=policy, container_id="me") as connection,
        ):
            sender = await connection.sender("/queues/q", name="s", durable=True)
            answer, server.on[events.DeliveryReceived] = (
                server.on[events.DeliveryReceived], lambda _, event: None
            )  # fmt: skip
            sending = asyncio.create_task(sender.send(Message("doubtful"), timeout=5))
            await server.seen(events.DeliveryReceived)
            server.on[events.DeliveryReceived] = answer
            server.connection.transport.abort()
            if resend:
                await sending
                assert [m.body for m in server.received["/queues/q"]] == ["doubtful"]
            else:
                with pytest.raises(ferrymq.ConnectionClosed):
                    await sending
            await sender.send(Message("next"), timeout=5)
            assert server.attaches == {"/queues/q": 3}
            lines = [record.getMessage() for record in caplog.records]
            assert len([line for line in lines if "the peer resumes no links" in line]) == 1


def test_the_blocking_face_has_the_same() -> None:
    """A refused link harms no other, and its error is the same."""
    portal = Portal("rabbit")

    async def start() -> RabbitPeer:
        return await RabbitPeer().__aenter__()

    rabbit = portal.run(start)
    try:
        with blocking.connect(rabbit.url, reconnect=True) as connection:
            assert connection.peer.ends_sessions
            with connection.sender("/queues/q") as sender, connection.session() as session:
                other = session.sender("/queues/other")
                for opener in (connection, session):
                    with pytest.raises(ferrymq.LinkDetached, match=r"^'/queues/nope': amqp:not-f"):
                        opener.receiver("/queues/nope")
                sender.send(Message(1), timeout=5)
                other.send(Message(2), timeout=5)
    finally:
        portal.run(lambda: rabbit.__aexit__())
        portal.stop()
