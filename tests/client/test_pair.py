"""Requests and responses over a pair of links (Link Pairing 1.0)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import SenderLink, events
from ferrymq.engine.pairing import LINK_PAIR, PAIRED, are_paired, is_paired
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import Error
from tests.client.peer import Peer, PeerConnection

TRUE = {PAIRED: True}


class Service(Peer):
    """Answers requests on the paired link, as `answer` says; some after the next request."""

    def __init__(self) -> None:
        super().__init__(offered_capabilities=[LINK_PAIR])
        self.requests: list[Message] = []
        self.halves: dict[bool, Any] = {}
        self.held: list[Message] = []
        self.hold = False
        self.properties: dict[str, object] | None = TRUE
        self.on[events.AttachReceived] = self.attached
        self.on[events.DeliveryReceived] = self.requested

    def attached(self, connection: PeerConnection, event: events.AttachReceived) -> None:
        remote = event.link.remote_attach
        assert remote is not None and is_paired(remote.properties)
        self.halves[event.link.is_sender] = event.link
        self.attach(connection, event, properties=self.properties)

    def requested(self, connection: PeerConnection, event: events.DeliveryReceived) -> None:
        request = Message.decode(event.delivery.payload)
        self.requests.append(request)
        event.delivery.settle(Accepted())
        self.held.append(request)
        if not self.hold:
            self.answer()

    def answer(self) -> None:
        """The latest request first."""
        link = self.halves[True]
        assert isinstance(link, SenderLink)
        while self.held:
            request = self.held.pop()
            response = Message(f"re: {request.body}", correlation_id=request.message_id, to="$me")
            link.send(response.encode())
        self.connection.process()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service() as running:
        yield running


def connect(service: Peer, *desired: str) -> Any:
    return ferrymq.connect(service.url, desired_capabilities=list(desired) or None)


@pytest.mark.spec("pairing-2.1", "pairing-2.2")
async def test_request_and_response(service: Service) -> None:
    async with connect(service, LINK_PAIR) as connection, connection.pair("service") as pair:
        assert pair.address == "service"
        assert are_paired(service.halves[True], service.halves[False])
        question = Message("question", subject="s")
        response = await pair.request(question, timeout=20)
        assert response.body == "re: question"
        (request,) = service.requests
        assert request.reply_to == "$me" and request.subject == "s"
        assert request.message_id is not None
        # The caller's message is the caller's.
        assert question.reply_to is None and question.message_id is None
        again = await pair.request(Message("more", message_id="mine"), timeout=20)
        assert again.correlation_id == "mine"


@pytest.mark.spec("pairing-2.2.2")
async def test_the_response_has_credit_before_the_request_is_sent(service: Service) -> None:
    async with connect(service, LINK_PAIR) as connection, connection.pair("service", credit=3):
        kinds = [
            event.link.is_sender
            for event in service.events
            if isinstance(event, events.AttachReceived)
        ]
        # The service sends on the half that was attached first.
        assert kinds == [True, False]
        await service.seen(events.CreditReceived)
        assert service.halves[True].credit == 3


async def test_requests_overlap(service: Service) -> None:
    service.hold = True
    async with connect(service, LINK_PAIR) as connection, connection.pair("service") as pair:
        first, second = (
            asyncio.ensure_future(pair.request(Message(body), timeout=20)) for body in ("a", "b")
        )
        await service.seen(events.DeliveryReceived, 2)
        service.answer()
        assert [(await first).body, (await second).body] == ["re: a", "re: b"]


async def test_a_message_id_waits_only_once(service: Service) -> None:
    service.hold = True
    async with connect(service, LINK_PAIR) as connection, connection.pair("service") as pair:
        first = asyncio.ensure_future(pair.request(Message("a", message_id="x"), timeout=20))
        await service.seen(events.DeliveryReceived)
        with pytest.raises(ValueError, match="waits already"):
            await pair.request(Message("b", message_id="x"))
        service.answer()
        assert (await first).body == "re: a"


async def test_a_late_response_is_dropped(service: Service) -> None:
    service.hold = True
    async with connect(service, LINK_PAIR) as connection, connection.pair("service") as pair:
        given_up = asyncio.ensure_future(pair.request(Message("slow")))
        await service.seen(events.DeliveryReceived)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        service.answer()
        service.hold = False
        assert (await pair.request(Message("quick"), timeout=20)).body == "re: quick"


async def test_the_end_of_the_pair_ends_requests(service: Service) -> None:
    service.hold = True
    async with connect(service, LINK_PAIR) as connection:
        pair = await connection.pair("service")
        waiting = asyncio.ensure_future(pair.request(Message("a")))
        await service.seen(events.DeliveryReceived)
        service.halves[True].close(Error(condition="amqp:internal-error"))
        service.connection.process()
        with pytest.raises(ferrymq.LinkDetached):
            await waiting
        with pytest.raises(ferrymq.LinkDetached):
            await pair.request(Message("b"))
        await pair.close()


@pytest.mark.spec("pairing-2.1.1")
async def test_without_the_capability_no_pair(service: Service) -> None:
    async with connect(service) as connection:
        with pytest.raises(ferrymq.LocalProtocolError, match="desire"):
            await connection.pair("service")
    async with Peer() as plain, connect(plain, LINK_PAIR) as connection:
        with pytest.raises(ferrymq.LocalProtocolError, match="offer"):
            await connection.pair("service")
        # The connection is none the worse for it.
        await connection.sender("orders")


@pytest.mark.spec("pairing-2.2.1")
async def test_a_service_that_does_not_pair(service: Service) -> None:
    service.properties = None
    async with connect(service, LINK_PAIR) as connection:
        with pytest.raises(ferrymq.LinkDetached):
            await connection.pair("service")


def test_credit_for_no_response() -> None:
    with pytest.raises(ValueError, match="response"):
        ferrymq.aio.Pair(None, "service", None, 0)  # type: ignore[arg-type]
