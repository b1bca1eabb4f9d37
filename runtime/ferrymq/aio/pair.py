"""Pairs of links: requests out, responses back, without a node for them in between.

Request-Response Messaging with Link Pairing 1.0. Our open has to desire the capability, so connect
with ``desired_capabilities=[LINK_PAIR]``.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING
from uuid import uuid4

from ferrymq.aio.delivery import Delivery
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.sender import Sender
from ferrymq.aio.waiting import deadline, fresh
from ferrymq.engine.link_pair import expect_pairing
from ferrymq.engine.pairing import ME, paired_properties
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import LinkDetached, PeerError
from ferrymq.message import Message
from ferrymq.options import ReceiverOptions, SenderOptions
from ferrymq_types.messaging import Properties, Source, Target

if TYPE_CHECKING:
    from ferrymq.aio.session import Session
    from ferrymq_types.unions import MessageId


class _Requests(Sender):
    """The half on which requests go out, from an address that only the pair knows."""

    def __init__(
        self, session: Session, address: str, reply_address: str, options: SenderOptions
    ) -> None:
        super().__init__(session, address, options)
        self._source = Source(address=reply_address)

    def _create(self, session: EngineSession) -> SenderLink:
        expect_pairing(session.connection)
        return session.attach_sender(
            self.name,
            source=self._source,
            target=self._target,
            properties=paired_properties(self._options.properties),
        )


class _Responses(Receiver):
    """The half on which responses come in. A task of the pair reads them."""

    held = True

    def __init__(
        self, session: Session, address: str, reply_address: str, options: ReceiverOptions
    ) -> None:
        super().__init__(session, address, options)
        self._reply_target = Target(address=reply_address)
        self.waiting: dict[MessageId, asyncio.Future[Message]] = {}

    def _create(self, session: EngineSession) -> ReceiverLink:
        expect_pairing(session.connection)
        return session.attach_receiver(
            self.name,
            source=self._source,
            target=self._reply_target,
            properties=paired_properties(self._options.properties),
        )

    def _lost(self, error: PeerError) -> None:
        super()._lost(error)
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(fresh(error))
        self.waiting.clear()

    async def hand_out(self) -> None:
        """Give every response to the request it is for; one that is for none is dropped."""
        try:
            while True:
                await self._hand_out(await self.receive())
        except PeerError:
            # Who waits has been told by `_lost`.
            return

    async def _hand_out(self, delivery: Delivery) -> None:
        await delivery.accept()
        properties = delivery.message.properties
        id = None if properties is None else properties.correlation_id
        future = None if id is None else self.waiting.get(id)
        if future is not None and not future.done():
            future.set_result(delivery.message)


class Pair:
    """Two links that carry requests to a node and its responses. Made by `Connection.pair`."""

    def __init__(self, session: Session, address: str, name: str | None, credit: int) -> None:
        if credit < 1:
            raise ValueError(f"credit {credit} leaves no room for a response")
        name = name or f"pair-{uuid4()}"
        reply_address = f"{name}-responses"
        self._session = session
        self._requests = _Requests(session, address, reply_address, SenderOptions(name=name))
        self._responses = _Responses(
            session, address, reply_address, ReceiverOptions(name=name, credit=credit)
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str | None:
        """The node that requests go to."""
        return self._requests.address

    async def request(self, message: Message, *, timeout: float | None = None) -> Message:
        """Send a request and wait for the response with its message-id as correlation-id.

        The message is sent with reply-to ``$me``, and with a message-id of our own if it has none;
        it is not changed. Requests may overlap.

        Raises what `Sender.send` raises, `TimeoutError`, and whatever ended the pair.
        """
        if self._responses.closed:
            raise LinkDetached(f"pair {self._requests.name!r} is over")
        properties = message.properties
        properties = Properties() if properties is None else copy.copy(properties)
        properties.reply_to = ME
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
            async with deadline(timeout):
                await self._requests.send(request)
                return await future
        finally:
            if waiting.get(id) is future:
                del waiting[id]
            if future.done() and not future.cancelled():
                # Looked at, so that asyncio does not report it as overlooked.
                future.exception()

    async def open(self) -> Pair:
        """Attach both halves. Raises `LinkDetached` when the peer refuses, `TimeoutError`, and
        `LocalProtocolError` when the opens do not allow for pairs."""
        # Responses first: their credit comes before the first request (§2.2.2).
        await self._session.open_link(self._responses)
        try:
            await self._session.open_link(self._requests)
        except BaseException:
            await self._responses.close()
            raise
        self._task = asyncio.get_running_loop().create_task(self._responses.hand_out())
        return self

    async def close(self) -> None:
        """Close both links. Requests that wait end with `LinkDetached`."""
        try:
            await self._requests.close()
        finally:
            await self._responses.close()
        if self._task is not None:
            await self._task
            self._task = None
