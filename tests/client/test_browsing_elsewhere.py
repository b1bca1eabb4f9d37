"""Browsing, filters and positions at brokers that grant them and do not keep to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import blocking
from ferrymq.engine.events import AttachReceived, OutcomeReceived
from ferrymq_codec.scalars import Described, ULong
from ferrymq_types.messaging import Released, Source
from ferrymq_types.transport import SenderSettleMode
from tests.client.peer import Peer

RABBITMQ = {"product": "RabbitMQ", "version": "4.0.5"}


@pytest.fixture
async def rabbitmq() -> AsyncIterator[Peer]:
    async with Peer(properties=RABBITMQ) as peer:
        peer.put("orders", *range(5))
        yield peer


def outcomes(peer: Peer) -> list[object]:
    return [e.delivery.remote_state for e in peer.events if isinstance(e, OutcomeReceived)]


def asked(peer: Peer) -> Source:
    (event,) = [e for e in peer.events if isinstance(e, AttachReceived)]
    assert isinstance(event.link.remote_attach.source, Source)
    return event.link.remote_attach.source


class TestBrowsing:
    async def test_what_was_accepted_is_given_back_at_the_end_of_the_link(
        self, rabbitmq: Peer, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with ferrymq.connect(rabbitmq.url) as connection:
            receiver = await connection.receiver("orders", mode="copy", credit=2)
            assert receiver.gives_back
            bodies = []
            for _ in range(4):
                async with await receiver.receive(timeout=5) as delivery:
                    bodies.append(delivery.message.body)
            assert bodies == [0, 1, 2, 3]
            # A further exchange of frames shows that no outcome was on its way.
            await (await connection.sender("elsewhere")).send("x")
            assert outcomes(rabbitmq) == []
            await receiver.close()
            assert outcomes(rabbitmq) == [Released()] * 5
        (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert line.startswith("'orders': RabbitMQ 4.0.5 does not keep the messages of a browser")
        assert line.endswith("a quorum queue counts each as a delivery, up to its delivery-limit")

    @pytest.mark.parametrize("end", ["session", "connection", "error"])
    async def test_all_ways_to_end_it_give_back(self, rabbitmq: Peer, end: str) -> None:
        connection = await ferrymq.connect(rabbitmq.url)
        session = await connection.session()
        try:
            async with session.receiver("orders", mode="copy") as receiver:
                held = [await receiver.receive(timeout=5) for _ in range(3)]
                await held[0].reject("app:unknown")
                if end == "session":
                    await session.close()
                elif end == "connection":
                    await connection.close()
                else:
                    raise RuntimeError("of the program")
        except RuntimeError:
            pass
        await connection.close()
        assert outcomes(rabbitmq) == [Released()] * 5

    async def test_settled_is_not_asked(self, rabbitmq: Peer) -> None:
        async with ferrymq.connect(rabbitmq.url) as connection:
            await connection.receiver(
                "orders", mode="copy", snd_settle_mode=SenderSettleMode.SETTLED
            )
        event = await rabbitmq.seen(AttachReceived)
        assert event.link.remote_attach.snd_settle_mode is SenderSettleMode.UNSETTLED

    async def test_bytes_of_given_outcomes_are_not_kept(self, rabbitmq: Peer) -> None:
        async with ferrymq.connect(rabbitmq.url) as connection:
            receiver = await connection.receiver("orders", mode="copy", credit=1)
            await (await receiver.receive(timeout=5)).accept()
            session = receiver.session.engine
            assert not any(one.payload for one in session.incoming.unsettled.values())
            await receiver.close()

    async def test_blocking(self, rabbitmq: Peer) -> None:
        def browse() -> list[object]:
            with (
                blocking.connect(rabbitmq.url) as connection,
                connection.receiver("orders", mode="copy") as receiver,
            ):
                assert receiver.gives_back
                return [receiver.receive(timeout=5).message.body for _ in range(5)]

        assert await asyncio.to_thread(browse) == [0, 1, 2, 3, 4]
        assert outcomes(rabbitmq) == [Released()] * 5

    # Artemis: as its documents say, not tried with it.
    @pytest.mark.parametrize("product", ["ActiveMQ", "apache-activemq-artemis"])
    async def test_a_broker_that_keeps_copies_is_told_the_outcomes(self, product: str) -> None:
        async with Peer(properties={"product": product, "version": "5.17.2"}) as peer:
            peer.put("orders", 1)
            async with ferrymq.connect(peer.url) as connection:
                receiver = await connection.receiver("orders", mode="copy")
                assert not receiver.gives_back
                await (await receiver.receive(timeout=5)).accept()
                await receiver.close()
            assert len(outcomes(peer)) == 1 and outcomes(peer) != [Released()]

    async def test_a_broker_that_removes_what_it_sends_is_not_asked(self) -> None:
        async with Peer(container_id="broker", max_frame_size=0xFFFFFFFF) as peer:
            async with ferrymq.connect(peer.url) as connection:
                with pytest.raises(
                    ferrymq.LinkDetached,
                    match=r"^'orders': amqp:not-implemented: Proton's example broker removes",
                ):
                    await connection.receiver("orders", mode="copy")
            assert peer.count(AttachReceived) == 0


@pytest.fixture(params=[RABBITMQ, {"product": "RabbitMQ", "version": "3.10.8"}])
async def deaf(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    """A broker that grants filters and applies none."""
    async with Peer(properties=request.param) as peer:
        yield peer


class TestFilters:
    async def test_a_selector_is_refused_before_it_is_asked(self, deaf: Peer) -> None:
        async with ferrymq.connect(deaf.url) as connection:
            with pytest.raises(
                ferrymq.LinkDetached,
                match=r"^'orders': amqp:not-implemented: RabbitMQ [34][.0-9]+ grants selector= "
                r".* and does not apply it: ",
            ):
                await connection.receiver("orders", selector="colour = 'red'")
        assert deaf.count(AttachReceived) == 0

    async def test_a_filter_of_the_broker_is_asked(self, rabbitmq: Peer) -> None:
        filter = Described("rabbitmq:stream-filter", "red")
        async with ferrymq.connect(rabbitmq.url) as connection:
            await connection.receiver("orders", filters={"rabbitmq:stream-filter": filter})
        assert asked(rabbitmq).filter == {"rabbitmq:stream-filter": filter}

    async def test_a_start_is_asked_in_the_broker_s_words(self, rabbitmq: Peer) -> None:
        async with ferrymq.connect(rabbitmq.url) as connection:
            await connection.receiver("orders", start=7)
        name = "rabbitmq:stream-offset-spec"
        assert asked(rabbitmq).filter == {name: Described(name, ULong(7))}
