"""Requests to any address and their replies, over one link for the replies of a connection.

The replies go to a node that the peer makes for the connection at the first request, and again
when the connection has been restored. A reply belongs to the request whose message-id or
correlation-id is its correlation-id.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ferrymq.aio.requests import Responses
from ferrymq.aio.sender import Sender
from ferrymq.errors import ConnectionClosed, DecodeError, SessionEnded
from ferrymq.message import Message
from ferrymq.options import MadeUp, ReceiverOptions, SenderOptions, Timeout, check_timeout
from ferrymq.sendable import Sendable, to_message
from ferrymq_types.messaging import Properties

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.session import Session
    from ferrymq_types.unions import MessageId

LOGGER: Final = logging.getLogger("ferrymq")

# Links for requests that stay attached while no request uses them.
_IDLE_LINKS: Final = 32


class _Replies(Responses):
    """Link on which the replies of all addresses come."""

    def _on_malformed(self, error: DecodeError) -> None:
        # Requests to other addresses wait too: one service must not make them fail.
        LOGGER.warning("%s: a reply was rejected: %s", self._connection.url, error)


class _RequestSender(Sender):
    """Link on which requests are sent."""

    # The request would name a node for the reply that is gone: `RequestReply` sends a new one.
    resends = False


async def _attach_replies(session: Session) -> _Replies:
    options = ReceiverOptions(name=MadeUp(f"replies-{uuid4()}"), dynamic=True)
    replies = _Replies(session, None, None, options)
    await session.open_link(replies)
    return replies


async def _attach_sender(session: Session, address: str) -> _RequestSender:
    sender = _RequestSender(session, address, SenderOptions(name=MadeUp(f"asks-{uuid4()}")))
    await session.open_link(sender)
    return sender


class _Link:
    """Link on which the requests to one address are sent. `users` is the number of requests that
    use it."""

    def __init__(self) -> None:
        self.users = 0
        self.sender: Sender | None = None
        # The first request attaches the link, while later ones wait.
        self.turn = asyncio.Lock()


class RequestReply:
    """The requests of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._replies: _Replies | None = None
        self._replies_turn = asyncio.Lock()
        # By address; those that were used last come last.
        self._links: dict[str, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        # Requests that are sent again since the last line about that in the log.
        self._again = 0

    async def request(self, address: str, message: Sendable, timeout: Timeout) -> Message:
        """Send a request and return the reply; see `Connection.request`."""
        check_timeout(timeout)
        message = to_message(message, "request")
        properties = message.properties
        properties = Properties() if properties is None else copy.copy(properties)
        if properties.message_id is None:
            properties.message_id = str(uuid4())
        if properties.correlation_id is None:
            # Some services copy the correlation-id, others the message-id.
            properties.correlation_id = properties.message_id
        request = copy.copy(message)
        request.properties = properties
        limit = self._connection.within(timeout)
        link = self._links.pop(address, None) or _Link()
        self._links[address] = link
        link.users += 1
        progress = _Progress()
        try:
            async with asyncio.timeout(limit) as bound:
                return await self._until_answered(link, address, request, properties, progress)
        except TimeoutError:
            if not bound.expired():
                # The connection's time for an attach is over.
                raise
            raise TimeoutError(f"{progress.lacks} {address!r} within {limit:g} s") from None
        finally:
            link.users -= 1
            self._close_idle()

    async def _until_answered(
        self,
        link: _Link,
        address: str,
        request: Message,
        properties: Properties,
        progress: _Progress,
    ) -> Message:
        connection = self._connection
        while True:
            progress.sent = progress.accepted = False
            try:
                return await self._ask(link, address, request, properties, progress)
            except (ConnectionClosed, SessionEnded):
                recovery = connection.recovery
                if connection.closed or recovery is None:
                    raise
                if progress.sent:
                    # The node for the reply is gone with the connection.
                    if not recovery.policy.resend:
                        raise
                    self._count_again()
                await connection.connected()

    async def _ask(
        self,
        link: _Link,
        address: str,
        request: Message,
        properties: Properties,
        progress: _Progress,
    ) -> Message:
        connection = self._connection
        while True:
            await connection.connected()
            replies = await self._reply_link()
            sender = await self._attached(link, address)
            await sender.ready()
            if replies.address is not None and not replies.closed:
                break
        # From here to the transfer nothing waits: the address of the node for the reply is current.
        properties.reply_to = replies.address
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        ids = self._wait_under(replies, properties, future)
        try:
            sent = sender.send_nowait(request)
            progress.sent = True
            try:
                await sent
                progress.accepted = True
                return await future
            finally:
                if not sent.cancel() and not sent.cancelled():
                    sent.exception()
        finally:
            for id in ids:
                if replies.waiting.get(id) is future:
                    del replies.waiting[id]
            if future.done() and not future.cancelled():
                # The exception is retrieved, so that asyncio does not report it.
                future.exception()

    def _wait_under(
        self, replies: _Replies, properties: Properties, future: asyncio.Future[Message]
    ) -> list[MessageId]:
        """Register a request under its ids, and return them. Raises ValueError if another request
        waits under its message-id."""
        id = properties.message_id
        assert id is not None, "every request has a message-id"
        if id in replies.waiting:
            raise ValueError(f"a request with the message-id {id!r} waits already")
        ids = [id]
        other = properties.correlation_id
        if other is not None and other != id and other not in replies.waiting:
            ids.append(other)
        for one in ids:
            replies.waiting[one] = future
        return ids

    async def _reply_link(self) -> _Replies:
        """Return the link for replies; attach it if there is none."""
        async with self._replies_turn:
            replies = self._replies
            if replies is None or replies.closed:
                replies = await self._connection.with_session(_attach_replies)
                self._replies = replies
            return replies

    async def _attached(self, link: _Link, address: str) -> Sender:
        """Return the sender of a link; attach it if there is none."""
        async with link.turn:
            sender = link.sender
            if sender is None or sender.closed:
                sender = await self._connection.with_session(
                    lambda session: _attach_sender(session, address)
                )
                link.sender = sender
            return sender

    def _close_idle(self) -> None:
        """Close the links that were not used for longest, if many are not used."""
        idle: list[str] = []
        for address, link in list(self._links.items()):
            if not link.users:
                if link.sender is None or link.sender.closed:
                    del self._links[address]
                else:
                    idle.append(address)
        for address in idle[: max(0, len(idle) - _IDLE_LINKS)]:
            sender = self._links.pop(address).sender
            if sender is not None:
                task = asyncio.get_running_loop().create_task(sender.close())
                self._closing.add(task)
                task.add_done_callback(self._on_closed)

    def _on_closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()

    def _count_again(self) -> None:
        if not self._again:
            # All requests that were lost with the connection are counted before that.
            asyncio.get_running_loop().call_soon(self._report_again)
        self._again += 1

    def _report_again(self) -> None:
        LOGGER.warning(
            "%s: %d requests had no reply when the connection was lost and are sent again: "
            "they may be answered twice, and the first reply is lost",
            self._connection.url,
            self._again,
        )
        self._again = 0


class _Progress:
    """How far a request has come."""

    def __init__(self) -> None:
        self.sent = False
        self.accepted = False

    @property
    def lacks(self) -> str:
        """The beginning of the error text of a time-out, which the address completes."""
        if self.accepted:
            return "no reply came from"
        if self.sent:
            return "no outcome and no reply came from"
        return "the request could not be sent: no credit came from"
