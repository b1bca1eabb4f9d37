"""Connections: sessions and links over one transport.

One module because a connection is one object with one state: its transport, what is made from it,
and its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, Unpack

from ferrymq.aio.chunks import ChunkReader, OpeningChunkReader
from ferrymq.aio.dispatch import dispatch, session_error
from ferrymq.aio.fencing import read_fence
from ferrymq.aio.link_sessions import LinkSessions
from ferrymq.aio.management import ManagementClient, open_management
from ferrymq.aio.opening import Opened, Opening
from ferrymq.aio.partitioned_sender import PartitionedSender
from ferrymq.aio.plain_events import handle_plain
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.receiver_loop import OpeningReceiver
from ferrymq.aio.redirects import LINK_REDIRECT
from ferrymq.aio.request_reply import RequestReply
from ferrymq.aio.requests import Pair
from ferrymq.aio.sender import Sender
from ferrymq.aio.session import Session
from ferrymq.aio.transaction import OpeningTransaction, Transaction, declare
from ferrymq.aio.unseen import LoopCaller
from ferrymq.aio.waiting import Signal, deadline, fresh, resolve, running_loop, wrong_loop
from ferrymq.arguments import OtherNames, make_options, names
from ferrymq.durations import Duration, seconds
from ferrymq.engine.answers import expect_encodable
from ferrymq.errors import AmqpError, ConnectionClosed, LinkDetached
from ferrymq.fence import Committed, Fence
from ferrymq.management import ADDRESS, Replies
from ferrymq.options import (
    ChunkReaderArguments,
    ChunkReaderOptions,
    ConnectionOptions,
    ReceiverArguments,
    ReceiverOptions,
    SenderArguments,
    SenderOptions,
    Timeout,
    check_timeout,
)
from ferrymq.peers import Peer, recognise
from ferrymq.sendable import Sendable
from ferrymq_codec.described_types import DescribedTypes
from ferrymq_types.transport import Error, Open

if TYPE_CHECKING:
    from ferrymq.aio.link_redirects import LinkRedirects
    from ferrymq.aio.recovery import Recovery
    from ferrymq.aio.transport import EngineTransport
    from ferrymq.engine.events import BareEvent
    from ferrymq.message import Message
    from ferrymq.url import Url

LOGGER: Final = logging.getLogger("ferrymq")

R = TypeVar("R")
A = TypeVar("A", bound=str | None)


class Connection(OtherNames, Opened):
    """Connection to one container. Made by `connect`.

    Use it, and what is made from it, only in the event loop it was made in: a call from another
    loop or thread raises RuntimeError. When it is lost, every call that waits on it, or
    on its sessions and links, raises `ConnectionClosed`, unless it was made with `reconnect`.
    """

    elsewhere: ClassVar[Mapping[str, str]] = names(
        (
            "channel create_channel",
            "links need none: use connection.sender(address) and connection.receiver(address)",
        ),
        (
            "publish send send_message basic_publish get_queue_sender get_topic_sender",
            "use connection.sender(address)",
        ),
        (
            "subscribe consume receive basic_consume get_queue_receiver get_subscription_receiver",
            "use connection.receiver(address)",
        ),
        (
            "declare_queue queue_declare declare_exchange create_queue",
            "a broker of ferrymq makes queues when links use them; or use connection.management()",
        ),
        ("drain flush", "close() and send() wait for what is under way"),
        ("connect", "ferrymq.connect opens connections"),
    )

    def __init__(self, url: Url, options: ConnectionOptions) -> None:
        # The URL of the current transport, which changes when the broker moves.
        self.url = url
        self.options = options
        # Types of the user's own that are decoded into their classes.
        self.types: DescribedTypes | None = (
            None if options.types is None else DescribedTypes.of(options.types)
        )
        self.sessions: dict[Session, None] = {}
        # Senders whose `poll` must be called after each pass.
        self.polled: dict[Sender, None] = {}
        self.recovery: Recovery | None = None
        # The connections of links that the peer redirects; None if redirects are not followed.
        self.link_redirects: LinkRedirects | None = None
        self._transport: EngineTransport | None = None
        self._remote: Open | None = None
        self._peer = Peer()
        self._failure: ConnectionClosed | None = None
        self._closing = False
        # Whether the connection ended without an error of either side.
        self._clean = False
        # Done when the peer's open has come; its exception says why it will not come.
        self._opened: asyncio.Future[None] | None = None
        self._pid = os.getpid()
        # The event loop that the connection and all that is made from it belong to.
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # Calls functions in the loop, for finalizers.
        self.call_soon: LoopCaller = LoopCaller()
        self._writable = Signal()
        # Woken when the peer has detached a link, whose name is then free.
        self.freed: Signal = Signal()
        self._link_sessions = LinkSessions(self)
        self._requests: RequestReply | None = None

    def __del__(self) -> None:
        if self._transport is None or self._closing or self._failure is not None:
            return
        if self.left_behind(f"{self!r} was dropped and not closed", self._abandon):
            self._closing = True

    def __repr__(self) -> str:
        return f"<connection to {self.url}{', closed' if self.closed else ''}>"

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether the connection is over and will not be restored."""
        return self._failure is not None

    @property
    def container_id(self) -> str:
        """Our name towards the peer (AMQP 1.0 §2.4.1)."""
        return self.options.container_id

    @property
    def remote_container_id(self) -> str:
        """The peer's name (AMQP 1.0 §2.4.1)."""
        return "" if self._remote is None else self._remote.container_id

    @property
    def remote_properties(self) -> dict[str, object]:
        """The properties in the peer's open (AMQP 1.0 §2.7.1)."""
        remote = self._remote
        return {} if remote is None or remote.properties is None else remote.properties

    @property
    def peer(self) -> Peer:
        """Facts that are known about the broker, from the product in the properties of its open."""
        return self._peer

    @property
    def remote_offered_capabilities(self) -> list[str]:
        """Capabilities that the peer offers in its open (AMQP 1.0 §2.7.1)."""
        remote = self._remote
        if remote is None or remote.offered_capabilities is None:
            return []
        return remote.offered_capabilities

    def session(self, *, timeout: Timeout = "default") -> Opening[Session]:
        """Begin a new session; `timeout` is by default the connection's. Raises `ConnectionClosed`,
        `SessionEnded`, `TimeoutError`."""
        check_timeout(timeout)

        async def open() -> Session:
            async with deadline(self.within(timeout), self.not_in_time("did not begin a session")):
                return await self.open_session()

        return Opening(open, "connection.session()")

    def sender(self, address: str | None, **options: Unpack[SenderArguments]) -> Opening[Sender]:
        """Attach a sender in the connection's default session: `Session.sender`."""
        settings = make_options(SenderOptions, "sender", options)

        async def open() -> Sender:
            return await self.attach(
                address, lambda session, place: session.open_sender(place, settings)
            )

        return Opening(open, f"connection.sender({address!r})")

    def receiver(
        self, address: str | None, **options: Unpack[ReceiverArguments]
    ) -> OpeningReceiver:
        """Attach a receiver in the connection's default session: `Session.receiver`."""
        settings = make_options(ReceiverOptions, "receiver", options)

        async def open() -> Receiver:
            return await self.attach(
                address, lambda session, place: session.open_receiver(place, settings)
            )

        return OpeningReceiver(open, f"connection.receiver({address!r})")

    def chunk_reader(
        self, address: str, **options: Unpack[ChunkReaderArguments]
    ) -> OpeningChunkReader:
        """Read a partition of a stream in chunks, in the connection's default session:
        `Session.chunk_reader`.

        async for chunk in connection.chunk_reader("orders::2", start=1000, until=2000): ...
        """
        settings = make_options(ChunkReaderOptions, "chunk_reader", options)

        async def open() -> ChunkReader:
            return await self.attach(
                address, lambda session, place: session.open_chunk_reader(place, settings)
            )

        return OpeningChunkReader(open, f"connection.chunk_reader({address!r})")

    def partitioned_sender(
        self,
        address: str,
        *,
        placement_max_age: Duration | None = 300,
        **options: Unpack[SenderArguments],
    ) -> Opening[PartitionedSender]:
        """Open a sender to a stream whose partitions may be on several brokers.

        async with connection.partitioned_sender("orders") as sender:
            await sender.send(Message("...", group_id="customer-17"))

        The options are those of `sender`, for the link to each partition; a `name` is the beginning
        of the links' names. Options for one link alone (`dynamic`, `unsettled`) are a ValueError.
        The placement of the partitions is asked for again when it is older than
        `placement_max_age`, so that partitions that are added get messages; None: never.

        Raises as `sender`.
        """
        settings = make_options(SenderOptions, "partitioned_sender", options)
        if settings.dynamic or settings.unsettled is not None:
            raise ValueError("partitioned_sender takes neither dynamic nor unsettled")
        age = seconds(placement_max_age)

        async def open() -> PartitionedSender:
            sender = PartitionedSender(self, address, settings, age)
            await sender.read_placement()
            return sender

        return Opening(open, f"connection.partitioned_sender({address!r})")

    def pair(self, address: str, *, name: str | None = None, credit: int = 10) -> Opening[Pair]:
        """Attach a pair of links in the connection's default session: `Session.pair`."""

        async def open() -> Pair:
            return await self.with_session(
                lambda session: Pair(session, address, name, credit).open()
            )

        return Opening(open, f"connection.pair({address!r})")

    def management(
        self,
        address: str = ADDRESS,
        *,
        replies: Replies = "auto",
        timeout: Timeout = "default",
    ) -> Opening[ManagementClient]:
        """Attach a client of a management node in the connection's default session:
        `Session.management`.

        async with connection.management() as management:
            await management.create("queue", "orders", {"max-length": 1000})
        """
        check_timeout(timeout)

        async def open() -> ManagementClient:
            return await open_management(self, self, address, replies, timeout)

        return Opening(open, "connection.management()")

    def transaction(
        self, *, fence: Fence | None = None, timeout: Timeout = "default"
    ) -> OpeningTransaction:
        """Declare a transaction in the connection's default session: `Session.transaction`.

        async with connection.transaction() as txn:
            await sender.send(message, transaction=txn)
            await delivery.accept(transaction=txn)
        """

        check_timeout(timeout)

        async def open() -> Transaction:
            async with deadline(self.within(timeout), self.not_in_time("declared no transaction")):
                return await declare(await self._link_sessions.default(), fence)

        return OpeningTransaction(open, "connection.transaction()")

    async def request(
        self, address: str, message: Sendable, *, timeout: Timeout = "default"
    ) -> Message:
        """Send a request to an address and return the reply.

        reply = await connection.request("prices", "AAPL", timeout=5)

        Values that are no message become one as in `Sender.send`.

        The client sets the reply-to, and the message-id and the correlation-id if the message has
        none, without changing the message itself. The reply is the message whose correlation-id is
        one of these ids. Any number of requests may wait at the same time; they share one node for
        replies, which the peer makes at the first request.

        `timeout` is for all of it, by default the connection's. With `reconnect`, a request whose
        reply was lost with the connection is sent again, with the same message-id: the service may
        do it twice. `ReconnectPolicy.resend` decides.

        Raises `TimeoutError`, the errors of `sender` and of `Sender.send`, ValueError if a request
        with the same message-id waits already, and the error that ended the links; without
        `resend` `ConnectionClosed` when the connection is lost.
        """
        if self._requests is None:
            self._requests = RequestReply(self)
        return await self._requests.request(address, message, timeout)

    async def fence(
        self, group: str, member: str, *, target: str = "", timeout: Duration | None = None
    ) -> int | None:
        """Return the last sequence that a member of a group has committed at a target, None if
        there is none: see `Fence`. Raises as `committed`."""
        found = await self.committed(group, member, target=target, timeout=timeout)
        return None if found is None else found.sequence

    async def committed(
        self, group: str, member: str, *, target: str = "", timeout: Duration | None = None
    ) -> Committed | None:
        """Return the last sequence that a member of a group has committed at a target, with its
        digest; None if there is none: see `Fence`. If the peer has no fence for the target, return
        that of a writer without a target.

        Raises `TransactionError` if the peer cannot tell, `LinkDetached` if it has no management.
        """
        what = f"did not say what member {member!r} of group {group!r} has committed"
        async with deadline(timeout, self.not_in_time(what)):
            return await read_fence(self, group, member, target)

    async def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the connection, and wait at most `timeout` for the peer to do the same, by default
        the `close_timeout` of the connection; then close the transport.

        Queued output is written first, and messages that arrived and were not taken are released.
        Sends without an outcome raise `ConnectionClosed`. Closing twice is harmless. Connections of
        redirected links are closed at the same time, in the same way.
        """
        self.check_loop()
        expect_encodable(error)
        check_timeout(timeout)
        elsewhere: asyncio.Task[None] | None = None
        if self.link_redirects is not None and self.link_redirects.has_any:
            # A caller that is cancelled has closed these, too.
            elsewhere = asyncio.create_task(self.link_redirects.close(timeout))
        transport = self._transport
        patience = self.options.close_timeout if timeout == "default" else timeout
        try:
            async with asyncio.timeout(seconds(patience)):
                try:
                    if not self._closing and self._failure is None:
                        self._closing = True
                        self._clean = True
                        if self.recovery is None or not self.recovery.active:
                            await self.hand_over()
                finally:
                    self._close_now(transport, error)
                if self.recovery is not None:
                    await self.recovery.ended()
                if transport is not None:
                    await asyncio.shield(transport.ended)
        except TimeoutError:
            if transport is not None:
                transport.abort()
                await transport.ended
        if elsewhere is not None:
            await asyncio.shield(elsewhere)

    def _close_now(self, transport: EngineTransport | None, error: Error | None) -> None:
        """Send the close, and end every waiting call."""
        if self._failure is None:
            for session in self.sessions:
                session.release_queued()
            if transport is not None:
                transport.close(error)
            self._fail(ConnectionClosed(f"{self.url}: the connection was closed"))
        if self.recovery is not None:
            # By now every waiting call knows that the connection is closed.
            self.recovery.stop()

    async def wait_closed(self, *, timeout: Duration | None = None) -> None:
        """Wait until the connection is over.

        Raises `ConnectionClosed`, unless this side closed the connection, or the peer without an
        error.
        """
        self.check_loop()
        async with deadline(timeout, lambda within: f"{self!r} was not closed {within}"):
            await asyncio.shield(self._ended)
        if self._failure is not None and not self._clean:
            raise fresh(self._failure)

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    @property
    def transport(self) -> EngineTransport:
        """The current transport; an ended one if there is none."""
        transport = self._transport
        if transport is None:
            raise AssertionError("a connection is opened before it is handed out")
        return transport

    def within(self, timeout: Timeout) -> float | None:
        """Return the seconds that a call with this timeout has."""
        return seconds(self.options.timeout if timeout == "default" else timeout)

    def not_in_time(self, what: str) -> Callable[[str], str]:
        """Return the text of a `TimeoutError`: the peer has not done `what`."""
        return lambda within: f"broker {self.url} {what} {within}{self.delay}"

    @property
    def delay(self) -> str:
        """Why calls wait, to be appended to a text; empty if the connection is up."""
        restoring = self.recovery is not None and self.recovery.active
        return ": the connection is being restored" if restoring else ""

    def login_hint(self, error: Error | None) -> str:
        """Return what to append to a refusal: who the peer takes the client for, if that may be
        the reason and is known."""
        if error is None or error.condition != "amqp:unauthorized-access":
            return ""
        if self.url.username is not None:
            return f" (the user of the login is {self.url.username!r})"
        known = self.options.token is None and self.options.sasl in ("auto", None)
        return " (the login was without a user name)" if known else ""

    def soon(self) -> None:
        """Schedule a write of the pending output at the next turn of the loop."""
        if self._transport is not None:
            self._transport.soon()

    async def writable(self) -> None:
        """Wait until the transport accepts more output."""
        while self.transport.paused and self._failure is None:
            await self._writable.wait()

    async def hand_over(self) -> None:
        """Wait until the transport has all pending output, as far as the peer's windows allow.

        A peer that does not read is waited for as long as for its close.
        """
        transport = self._transport
        try:
            async with asyncio.timeout(seconds(self.options.close_timeout)):
                while (
                    transport is not None
                    and transport is self._transport
                    and transport.engine.holds_back
                    and not transport.ended.done()
                ):
                    await self._writable.wait()
        except TimeoutError:
            pass

    def start(self, transport: EngineTransport) -> asyncio.Future[None]:
        """Use a transport that is about to start.

        The future ends when the peer's open comes, or with an error: `AuthenticationError`,
        `TransportError`, `ConnectionClosed`, `RemoteProtocolError`.
        """
        self._transport = transport
        self._opened = asyncio.get_running_loop().create_future()
        return self._opened

    def check_loop(self) -> None:
        """Raise RuntimeError if the caller is not in the event loop of the connection."""
        if running_loop() is not self._loop:
            raise wrong_loop(repr(self), self._loop)

    def check(self) -> None:
        """Raise the error that ended the connection, if it is over, and RuntimeError outside its
        event loop."""
        self.check_loop()
        if self._failure is not None:
            raise fresh(self._failure)

    def left_behind(self, what: str, end: Callable[[], None]) -> bool:
        """Warn about an object that its user has dropped, from the thread that collects it, and let
        the loop call `end`; return whether the loop will."""
        if os.getpid() != self._pid:
            # The parent process ends the object.
            return False
        warnings.warn(what, ResourceWarning, stacklevel=3)
        return self.call_soon(end)

    def _abandon(self) -> None:
        """Close the connection whose user has dropped it."""
        transport = self._transport
        if transport is not None:
            transport.rescue()
            self._clean = True
            self._close_now(transport, None)

    def give_back(self, error: BaseException) -> None:
        """Give back the messages that were taken and have no outcome, because an exception left the
        block of the connection."""
        for session in self.sessions:
            session.give_back(error)
        if self.link_redirects is not None:
            self.link_redirects.give_back(error)

    def discard(self) -> None:
        """Note that the connection could not be opened, so that nobody has it to close it."""
        self._closing = True

    def give_up(self, error: ConnectionClosed) -> None:
        """End the connection, which could not be restored."""
        self._fail(error)

    async def connected(self) -> None:
        """Wait while the connection is being restored; return when it can be used."""
        self.check()
        if self.recovery is not None:
            await self.recovery.wait()

    @property
    def closing(self) -> bool:
        """Whether this side closes the connection."""
        return self._closing

    async def open_session(self, own: bool = False) -> Session:
        """Begin a session; an `own` one ends with the last of its links."""
        await self.connected()
        session = Session(self, own)
        self.sessions[session] = None
        try:
            await session.begin()
        except BaseException:
            self.sessions.pop(session, None)
            raise
        return session

    async def with_session(self, open: Callable[[Session], Awaitable[R]]) -> R:
        """Attach links by a function, in a session that the user has not chosen."""
        return await self._link_sessions.attach(open)

    async def attach(self, address: A, open: Callable[[Session, A | str], Awaitable[R]]) -> R:
        """Attach a link to an address by a function; where the peer redirects it, if it does."""
        try:
            return await self.with_session(lambda session: open(session, address))
        except LinkDetached as error:
            if self.link_redirects is None or error.condition != LINK_REDIRECT:
                raise
            return await self.link_redirects.follow(error, str(address or ""), open)

    @property
    def remote_channel_max(self) -> int:
        """The highest channel that the peer takes (AMQP 1.0 §2.7.1)."""
        return 0 if self._remote is None else self._remote.channel_max

    def _fail(self, error: ConnectionClosed) -> None:
        """End the connection finally."""
        if self._failure is None:
            self._failure = error
            for session in list(self.sessions):
                session._end(error)
            self._writable.wake()
            self.freed.wake()
            resolve(self._ended)

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_events(self, transport: EngineTransport, events: list[BareEvent]) -> None:
        """Handle events of an engine; ignore those of earlier transports."""
        number = 0
        count = len(events)
        # An event may end the use of the transport.
        while number < count and transport is self._transport:
            number = handle_plain(events, number)
            if number < count:
                dispatch(self, events[number])
                number += 1

    def on_pass(self) -> None:
        """Wake waiting calls: credit, the session's window or room for writing may have changed."""
        if self.polled:
            for sender in list(self.polled):
                sender.poll()
        self._writable.wake()

    def on_open(self, open: Open) -> None:
        """Handle the peer's open."""
        self._remote = open
        self._peer = recognise(open)
        self.transport.engine.channels.numbers.spread = self._peer.forgets_begins
        LOGGER.debug("%s: connected to container %r", self.url, open.container_id)
        resolve(self._opened)

    def on_close(self, error: Error | None) -> None:
        """Handle the peer's close."""
        engine = self.transport.engine
        engine.close()
        # The peer's close may answer ours, which told it its error.
        self._clean = error is None and engine.failure is None
        self._lost(engine.failure or ConnectionClosed("the peer closed the connection", error))

    def on_session_terminated(self, session: Session, error: AmqpError | None) -> None:
        """Handle the end of a session, alone or with the connection."""
        engine = self.transport.engine
        if engine.opened:
            session.on_end(session_error(error))
            return
        session.on_lost()
        if error is not None or engine.failure is not None:
            self._lost(error or engine.failure or ConnectionClosed("the connection was closed"))

    def on_terminated(self, error: AmqpError | None) -> None:
        """Handle the last event of the engine."""
        self._lost(error or ConnectionClosed("the connection was closed"))

    def _lost(self, error: AmqpError) -> None:
        """Handle the loss of a connection, or its failure to open; the first call states the
        reason."""
        if isinstance(error, ConnectionClosed):
            named = fresh(error)
            named.args = (f"{self.url}: {error}",)
            error = named
        opened = self._opened
        if opened is not None and not opened.done():
            # The caller of connect receives the error itself.
            if error.__cause__ is None:
                error.__cause__ = self.transport.cause
            opened.set_exception(error)
            return
        if self._failure is not None:
            return
        closed = self._closed(error)
        LOGGER.debug("%s", closed)
        if self.recovery is not None and not self._closing:
            self.recovery.start(closed)
        else:
            self._fail(closed)

    def _closed(self, error: AmqpError) -> ConnectionClosed:
        if isinstance(error, ConnectionClosed):
            closed = error
        else:
            closed = ConnectionClosed(f"{self.url}: the connection failed: {error}")
            closed.__cause__ = error
        if closed.__cause__ is None:
            closed.__cause__ = self.transport.cause
        return closed
