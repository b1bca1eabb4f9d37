"""Requests to a node and the responses to them, over two links. Requests may overlap.

A pair (Request-Response Messaging with Link Pairing 1.0) needs no node for responses. Our open has
to desire the capability, so connect with ``desired_capabilities=[LINK_PAIR]``. RabbitMQ does not
ask for that, and takes only pairs whose messages are settled on both links.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Literal, Self
from uuid import uuid4

from ferrymq.aio.opening import Opened
from ferrymq.aio.outcomes import ACCEPTED
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.sender import Sender
from ferrymq.aio.waiting import deadline, fresh
from ferrymq.durations import Duration
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.link_pair import expect_pairing
from ferrymq.engine.pairing import ME, is_paired, paired_properties
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import AmqpError, DecodeError, PeerError
from ferrymq.message import Message
from ferrymq.options import MadeUp, ReceiverOptions, SenderOptions, Timeout
from ferrymq.sendable import Sendable, to_message
from ferrymq_types.messaging import Properties, Rejected, Source, Target
from ferrymq_types.transport import Error, SenderSettleMode

if TYPE_CHECKING:
    from ferrymq.aio.session import Session
    from ferrymq_types.unions import MessageId


class _Requests(Sender):
    """Link on which requests are sent; its source is the address of the responses."""

    # What the loss of the connection means for a request, its caller decides.
    resends = False

    def __init__(
        self, session: Session, address: str, reply_address: str | None, options: SenderOptions
    ) -> None:
        super().__init__(session, address, options)
        self._source = Source(address=reply_address)


class Responses(Receiver):
    """Link on which responses arrive, read by a task of its owner.

    `waiting` has the requests by their message-ids.
    """

    held = True

    def __init__(
        self,
        session: Session,
        address: str | None,
        reply_address: str | None,
        options: ReceiverOptions,
    ) -> None:
        super().__init__(session, address, options)
        self._target = Target(address=reply_address)
        self._settled = options.snd_settle_mode is SenderSettleMode.SETTLED
        self.waiting: dict[MessageId, asyncio.Future[Message]] = {}

    def _create(self, session: EngineSession) -> ReceiverLink:
        if is_paired(self._options.properties) and not self._settled:
            expect_pairing(session.connection)
        return super()._create(session)

    def _lost(self, error: PeerError) -> None:
        super()._lost(error)
        self._fail(error)

    def _fail(self, error: AmqpError) -> None:
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(fresh(error))
        self.waiting.clear()

    def _on_malformed(self, error: DecodeError) -> None:
        """Handle a response that cannot be decoded, and so matched to no request."""
        self._fail(error)

    def on_delivery(self, engine: IncomingDelivery) -> None:
        """Give a response to its request. A response that belongs to no request is dropped."""
        super().on_delivery(engine)
        if not self._queue:
            return
        delivery = self._take()
        try:
            message = delivery.message
            id = message.correlation_id
        except DecodeError as error:
            engine.settle(
                Rejected(error=Error(condition="amqp:decode-error", description=str(error)))
            )
            self._on_malformed(error)
        else:
            engine.settle(ACCEPTED)
            future = None if id is None else self.waiting.get(id)
            if future is not None and not future.done():
                future.set_result(message)
        self.retire(delivery)
        self._connection.soon()


class RequestLinks(Opened):
    """Two links that carry requests to a node and its responses.

    `replies` says where responses go: ``"pair"`` to the other half of a pair (Link Pairing 1.0),
    ``"link"`` to a link from the node itself, whose name and target address are the reply-to,
    ``"dynamic"`` to a node that the peer makes. With `settled`, requests and responses are sent
    settled: then a request that is lost or refused gets no response, and nothing else tells of it.
    """

    def __init__(
        self,
        session: Session,
        address: str,
        replies: Literal["pair", "link", "dynamic"],
        *,
        name: str | None = None,
        credit: int = 10,
        settled: bool = False,
        timeout: Timeout = "default",
    ) -> None:
        if credit < 1:
            raise ValueError(f"credit {credit} leaves no room for a response")
        name = name or MadeUp(f"{'pair' if replies == 'pair' else 'requests'}-{uuid4()}")
        dynamic = replies == "dynamic"
        reply_address = f"{name}-responses" if replies == "pair" else None if dynamic else name
        properties = paired_properties() if replies == "pair" else None
        mode = SenderSettleMode.SETTLED if settled else SenderSettleMode.MIXED
        self.replies = replies
        self._settled = settled
        self._session = session
        self._requests = _Requests(
            session,
            address,
            reply_address,
            SenderOptions(name=name, snd_settle_mode=mode, properties=properties, timeout=timeout),
        )
        self._responses = Responses(
            session,
            None if dynamic else address,
            reply_address,
            ReceiverOptions(
                name=name,
                credit=credit,
                dynamic=dynamic,
                snd_settle_mode=mode,
                properties=properties,
                timeout=timeout,
            ),
        )

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str | None:
        """The node that receives the requests."""
        return self._requests.address

    @property
    def closed(self) -> bool:
        """Whether one of the links is over."""
        return self._requests.closed or self._responses.closed

    async def request(self, message: Sendable, *, timeout: Duration | None = None) -> Message:
        """Send a request and wait for the response, whose correlation-id is the message-id of the
        request.

        The client sets the reply-to, and the message-id if the message has none, without changing
        the message itself. Requests may overlap. Other values become messages as in `Sender.send`.

        Raises the errors of `Sender.send`, `TimeoutError`, `DecodeError` for a malformed response,
        and the error that ended the links.
        """
        self._responses._check()
        message = to_message(message, "request")
        properties = message.properties
        properties = Properties() if properties is None else copy.copy(properties)
        properties.reply_to = self._reply_to()
        if properties.message_id is None:
            properties.message_id = str(uuid4())
        id = properties.message_id
        waiting = self._responses.waiting
        if id in waiting:
            raise ValueError(f"a request with the message-id {id!r} waits already")
        request = copy.copy(message)
        request.properties = properties
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        waiting[id] = future
        try:
            async with deadline(timeout, self._no_response):
                await self._requests.send(request, settled=self._settled)
                return await future
        finally:
            if waiting.get(id) is future:
                del waiting[id]
            if future.done() and not future.cancelled():
                # The exception is retrieved, so that asyncio does not report it.
                future.exception()

    async def close(self) -> None:
        """Close both links. Waiting requests end with `LinkDetached`."""
        try:
            await self._requests.close()
        finally:
            await self._responses.close()

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    async def open(self) -> Self:
        """Attach both links. Raises `LinkDetached` when the peer refuses, `TimeoutError`, and
        `LocalProtocolError` when the opens do not allow for pairs."""
        # The link for responses is attached first: its credit must come before the first request
        # (Link Pairing 1.0 §2.2.2).
        await self._session.open_link(self._responses)
        try:
            await self._session.open_link(self._requests)
        except BaseException:
            await self._responses.close()
            raise
        return self

    def _no_response(self, within: str) -> str:
        """Return the text for a request that took too long."""
        requests = self._requests
        return f"no response came from {requests.place} {within}{requests._connection.delay}"

    def _reply_to(self) -> str | None:
        if self.replies == "pair":
            return ME
        # The dynamic node has another name when the connection has been restored.
        return self._responses.address if self.replies == "dynamic" else self._responses.name


class Pair(RequestLinks):
    """Two links that carry requests to a node and its responses. Made by `Connection.pair`."""

    def __init__(self, session: Session, address: str, name: str | None, credit: int) -> None:
        super().__init__(session, address, "pair", name=name, credit=credit)
