"""Sessions: groups of links within a connection (AMQP 1.0 §2.5)."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from weakref import ref

from ferrymq.aio.chunks import ChunkLink, ChunkReader, OpeningChunkReader
from ferrymq.aio.control import Control
from ferrymq.aio.link import Link, owner_of
from ferrymq.aio.management import ManagementClient, open_management
from ferrymq.aio.opening import Opened, Opening
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.receiver_loop import OpeningReceiver
from ferrymq.aio.requests import Pair
from ferrymq.aio.sender import Sender
from ferrymq.aio.session_errors import find_guilty, refusal
from ferrymq.aio.transaction import OpeningTransaction, Transaction, declare
from ferrymq.aio.waiting import Signal, deadline, fresh, resolve
from ferrymq.arguments import make_options
from ferrymq.engine.answers import expect_encodable
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import LinkDetached, PeerError, SessionEnded
from ferrymq.fence import Fence
from ferrymq.management import ADDRESS, Replies
from ferrymq.options import (
    ChunkReaderArguments,
    ChunkReaderOptions,
    ReceiverArguments,
    ReceiverOptions,
    SenderArguments,
    SenderOptions,
    Timeout,
    check_timeout,
)
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.reconnect import ReconnectPolicy


R = TypeVar("R")

# Seconds that the end of a link waits for the end of its session.
_END_TIMEOUT: Final = 1.0
# Seconds after which a session that was restored counts as steady: its pauses begin anew.
_STEADY: Final = 10.0


class Session(Opened):
    """Session of a connection. Made by `Connection.session`.

    With `own`, the client has made it for one link, or for few, and ends it with the last of them.
    """

    def __init__(self, connection: Connection, own: bool = False) -> None:
        self.connection = connection
        self._own = own
        # Calls that are about to attach links of an own session.
        self._users = 0
        # Links by weak reference; the value is the link where the session must keep it alive.
        self._links: dict[ref[Link[Any]], Link[Any] | None] = {}
        # Links that have ended on this side, and wait for the peer's detach.
        self.leaving: dict[Link[Any], None] = {}
        self._engine: EngineSession | None = None
        self._failure: PeerError | None = None
        self._beginning: asyncio.Future[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._control: Control | None = None
        self._control_turn = asyncio.Lock()
        # Whether the session is over at the peer, and will begin again.
        self._restoring = False
        # The task that restores the session.
        self._restorer: asyncio.Task[None] | None = None
        self._restored = Signal()
        # Why the peer has ended the session, until it begins again.
        self._ended_by: SessionEnded | None = None
        # The pauses before the session begins again, and when it did so last.
        self._pauses: Iterator[float] | None = None
        self._restored_at = 0.0

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self._failure is not None

    def sender(self, address: str | None, **options: Unpack[SenderArguments]) -> Opening[Sender]:
        """Attach a link that sends to `address`; see `SenderOptions`.

        None is the anonymous node, which routes each message by its `to` field, or with
        ``dynamic=True`` a new node. Raises `LinkDetached` when the peer refuses, `TimeoutError`
        when it does not answer.
        """
        settings = make_options(SenderOptions, "sender", options)
        return Opening(lambda: self.open_sender(address, settings), f"session.sender({address!r})")

    def receiver(
        self, address: str | None, **options: Unpack[ReceiverArguments]
    ) -> OpeningReceiver:
        """Attach a link that receives from `address`; see `ReceiverOptions`.

        Give None with ``dynamic=True`` to receive from a new node. Raises as `sender` does.
        """
        settings = make_options(ReceiverOptions, "receiver", options)
        return OpeningReceiver(
            lambda: self.open_receiver(address, settings), f"session.receiver({address!r})"
        )

    def chunk_reader(
        self, address: str, **options: Unpack[ChunkReaderArguments]
    ) -> OpeningChunkReader:
        """Read a partition of a stream (``STREAM::N``) in chunks; see `ChunkReaderOptions`.

        Raises `LinkDetached` when the peer refuses or sends no chunks, `TimeoutError` when it does
        not answer.
        """
        settings = make_options(ChunkReaderOptions, "chunk_reader", options)
        return OpeningChunkReader(
            lambda: self.open_chunk_reader(address, settings), f"session.chunk_reader({address!r})"
        )

    def pair(self, address: str, *, name: str | None = None, credit: int = 10) -> Opening[Pair]:
        """Attach a pair of links that carries requests to `address` and the responses back.

        `credit` is how many responses may be under way. Our open has to have desired
        `LINK_PAIR`, and the peer's to have offered it (Link Pairing 1.0 §2.1.1). Raises
        `LocalProtocolError` if not, and as `sender` does.
        """
        return Opening(
            lambda: Pair(self, address, name, credit).open(), f"session.pair({address!r})"
        )

    def management(
        self,
        address: str = ADDRESS,
        *,
        replies: Replies = "auto",
        timeout: Timeout = "default",
    ) -> Opening[ManagementClient]:
        """Attach a client of the management node `address`; see `ManagementClient`.

        `replies` says where responses go: over a ``"pair"`` of links, over a ``"link"`` from the
        node, or to a ``"dynamic"`` node. By default it is a pair if our open has desired
        `LINK_PAIR` and the peer's has offered it, else a link, else a dynamic node. `timeout` is
        for attaching and for each request, by default the connection's. Raises as `sender` does.
        """
        check_timeout(timeout)
        return Opening(
            lambda: open_management(self, self.connection, address, replies, timeout),
            "session.management()",
        )

    def transaction(
        self, *, fence: Fence | None = None, timeout: Timeout = "default"
    ) -> OpeningTransaction:
        """Declare a transaction, on the control link of the session; see `Transaction`.

        `fence` prevents its work from being committed twice, and reveals the result of a commit
        whose answer was lost. `timeout` is by default the connection's. Raises `TransactionError`
        if the peer declares no transaction, `LinkDetached` if it has no coordinator,
        `TimeoutError`.
        """
        check_timeout(timeout)

        async def open() -> Transaction:
            connection = self.connection
            what = connection.not_in_time("declared no transaction")
            async with deadline(connection.within(timeout), what):
                return await declare(self, fence)

        return OpeningTransaction(open, "session.transaction()")

    async def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """End the session with its links, and wait for the peer to do the same.

        If the peer does not answer within `timeout`, the call returns nevertheless.
        """
        self.connection.check_loop()
        engine = self._engine
        expect_encodable(error)
        if self._failure is not None or engine is None:
            self._end(self._ended_here())
            return
        if timeout == "default":
            timeout = self.connection.options.timeout
        try:
            async with deadline(timeout):
                try:
                    await self.connection.hand_over()
                finally:
                    ending = self._begin_close(engine, error)
                await ending
        except TimeoutError:
            pass
        finally:
            self._ending = None

    def _begin_close(self, engine: EngineSession, error: Error | None) -> asyncio.Future[None]:
        """End the session on this side; the future ends with the peer's answer, or when none can
        come."""
        ending = asyncio.get_running_loop().create_future()
        if self.closed:
            resolve(ending)
        else:
            self.release_queued()
            self._end(self._ended_here())
            if not engine.mapped:
                # The connection is being restored: no peer can answer an end.
                resolve(ending)
                return ending
            self._ending = ending
            engine.end(error)
            self.connection.soon()
        return ending

    def _ended_here(self) -> SessionEnded:
        return SessionEnded(f"{self.connection.url}: the session was ended on this side")

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    async def with_session(self, open: Callable[[Session], Awaitable[R]]) -> R:
        """Attach links by a function, in this session; see `Connection.with_session`."""
        return await open(self)

    async def for_links(self, open: Callable[[Session], Awaitable[R]]) -> R:
        """Attach links by a function; end an own session if it has none afterwards."""
        self._users += 1
        try:
            return await open(self)
        finally:
            self._users -= 1
            self.end_idle()

    @property
    def own(self) -> bool:
        """Whether the client has made the session for single links."""
        return self._own

    @property
    def load(self) -> int:
        """Number of links of the session, with those that are about to be attached."""
        return len(self._links) + self._users

    @property
    def idle(self) -> bool:
        """Whether the client may end the session, because none of its links is left."""
        left = not self._links and not self.leaving and not self._users
        return left and self._own and self._failure is None

    def end_idle(self) -> None:
        """End an own session that has no links any more, without waiting for the peer."""
        if self.idle:
            if self._engine is None:
                self._end(self._ended_here())
            else:
                self._begin_close(self._engine, None)

    async def ended_idle(self) -> None:
        """End an own session that has no links any more, and wait for the peer's answer; not for
        long, because RabbitMQ 3.10 leaves about one end in 200 unanswered when many come at
        once."""
        self.end_idle()
        if self._own and self.closed and self._ending is not None:
            await asyncio.wait([self._ending], timeout=_END_TIMEOUT)

    @property
    def links(self) -> list[Link[Any]]:
        """The links that are attached, or are to be attached again, in their order."""
        found = [held or reference() for reference, held in list(self._links.items())]
        return [link for link in found if link is not None]

    @property
    def engine(self) -> EngineSession:
        """The engine's session. Raises the error that ended it."""
        if self._failure is not None or self._engine is None:
            unbegun = SessionEnded(f"{self.connection.url}: the session has not begun")
            raise fresh(self._failure or self._ended_by or unbegun)
        return self._engine

    async def open_sender(self, address: str | None, options: SenderOptions) -> Sender:
        """Attach a sender."""
        sender = self._sender(address, options)
        await self.open_link(sender)
        return sender

    async def open_receiver(self, address: str | None, options: ReceiverOptions) -> Receiver:
        """Attach a receiver."""
        receiver = self._receiver(address, options)
        await self.open_link(receiver)
        return receiver

    def _sender(self, address: str | None, options: SenderOptions) -> Sender:
        if self.connection.options.tracer is None:
            return Sender(self, address, options)
        made: Sender = _traced().TracedSender(self, address, options)
        return made

    def _receiver(self, address: str | None, options: ReceiverOptions) -> Receiver:
        if self.connection.options.tracer is None:
            return Receiver(self, address, options)
        made: Receiver = _traced().TracedReceiver(self, address, options)
        return made

    async def open_chunk_reader(self, address: str, options: ChunkReaderOptions) -> ChunkReader:
        """Attach a reader of chunks."""
        link = ChunkLink(self, address, options)
        await self.open_link(link)
        return ChunkReader(link, options)

    async def open_link(self, link: Sender | Receiver) -> None:
        """Attach a link of this session; again, if another link ended the session meanwhile, and
        the session comes back."""
        while True:
            await self.connection.connected()
            await self._usable()
            await self._free(link)
            self._remember(link)
            try:
                await link._attach()
            except SessionEnded:
                self.forget(link)
                if not self.restoring or link.closed:
                    raise
            except BaseException:
                self.forget(link)
                raise
            else:
                return

    async def _usable(self) -> None:
        """Wait while the session is being restored; return at once for what the restoring itself
        calls."""
        while self._restoring and self._restorer is not asyncio.current_task():
            await self._restored.wait()

    def forget(self, link: Link[Any]) -> None:
        """Forget a link that is over or was never attached."""
        self._links.pop(ref(link), None)
        if self._own and self._failure is None:
            # The link may still have to be detached.
            asyncio.get_running_loop().call_soon(self.end_idle)

    def _remember(self, link: Link[Any]) -> None:
        links = self._links
        links[ref(link, lambda gone: links.pop(gone, None))] = link if link.held else None

    async def _free(self, link: Link[Any]) -> None:
        """Wait until the name of an earlier link is free, whose detach the peer has not answered
        yet. Raises the error that ends the connection, and `TimeoutError`."""
        key = (link.name, isinstance(link, Sender))
        async with deadline(link._timeout, lambda within: _not_free(link, within)):
            while True:
                before = self.engine.connection.channels.links.get(key)
                if before is None:
                    return
                owner = owner_of(before)
                # A link without an owner was dropped as well.
                left = owner is None or (
                    isinstance(owner, Link) and (owner.closed or owner.dropped)
                )
                if not before.local_detached and not left:
                    return
                await self.connection.freed.wait()

    async def control(self) -> Control:
        """Return the control link of the session; attach it if there is none."""
        self.connection.check_loop()
        async with self._control_turn:
            control = self._control
            if control is None or control.closed:
                control = Control(self)
                await self.open_link(control)
                self._control = control
            return control

    def transaction_of(self, id: bytes) -> Transaction | None:
        """Return the open transaction with this id, of any session of the connection."""
        for session in self.connection.sessions:
            control = session._control
            if control is not None and id in control.transactions:
                return control.transactions[id]
        return None

    async def begin(self) -> None:
        """Begin, or begin again, and wait until the peer has begun too."""
        engine = self.connection.transport.engine.begin()
        engine.context = self
        self._engine = engine
        self._ended_by = None
        self._beginning = asyncio.get_running_loop().create_future()
        self.connection.soon()
        try:
            what = self.connection.not_in_time("did not begin a session")
            async with deadline(self.connection.options.timeout, what):
                await self._beginning
            self._expect_begun()
        except BaseException:
            engine.end()
            self.connection.soon()
            raise
        finally:
            self._beginning = None

    def _expect_begun(self) -> None:
        """Raise the error by which the peer has ended the session since its begin."""
        ended = self._failure or self._ended_by
        if ended is not None:
            raise fresh(ended)

    def release_queued(self) -> None:
        """Release the messages that the user did not take, before this side ends the session."""
        for link in self.links:
            if isinstance(link, Receiver):
                link.release_queued()

    def give_back(self, error: BaseException) -> None:
        """Give back the messages that were taken and have no outcome, because an exception left the
        block of the session."""
        for link in self.links:
            if isinstance(link, Receiver):
                link.give_back(error)

    def _end(self, error: PeerError) -> None:
        """End the session and its links finally."""
        if self._failure is None:
            self._failure = error
            self.connection.sessions.pop(self, None)
            resolve(self._beginning, error)
            resolve(self._ending)
            self._forget_leaving()
            for link in self.links:
                link._end(error)
            self._restoring = False
            self._restored.wake()

    def pauses(self, policy: ReconnectPolicy) -> Iterator[float]:
        """Return the pauses before the next attempts to restore the session. One that ends again
        soon goes on with those of the time before, so that it neither keeps both sides busy nor is
        restored for ever."""
        if self._pauses is None:
            self._pauses = policy.pauses()
        return self._pauses

    async def restore(self) -> None:
        """Begin again, and attach the links again, one after the other: so a link that ends the
        session is known. A link that is refused has ended.

        Raises `SessionEnded` if the peer has ended the session again, the errors of `begin`, and
        `TimeoutError` if the peer has fallen silent.
        """
        self._restorer = asyncio.current_task()
        await self.begin()
        for link in self.links:
            if not link.closed:
                try:
                    await link._attach()
                except LinkDetached:
                    pass
                except TimeoutError:
                    if not link.closed:
                        raise
            self._expect_begun()
        self._restoring = False
        self._restored_at = asyncio.get_running_loop().time()
        self._restored.wake()
        self.end_idle()

    def give_up(self, error: PeerError) -> None:
        """End the session, which could not be restored."""
        self._end(error)

    def suspend(self, error: PeerError) -> None:
        """Suspend the session of a lost connection, or one that the peer has ended: it may be
        restored."""
        self._restoring = True
        resolve(self._beginning, error)
        self._forget_leaving()
        for link in self.links:
            link._suspend(error)

    def _forget_leaving(self) -> None:
        for link in self.leaving:
            link.on_lost()

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    @property
    def restoring(self) -> bool:
        """Whether the session is over at the peer, and will begin again."""
        return self._restoring

    def has(self, engine: EngineSession) -> bool:
        """Return whether this is the engine's session now, and not one that has ended."""
        return self._engine is engine

    def on_begin(self) -> None:
        """Handle the peer's begin."""
        if self._beginning is not None:
            resolve(self._beginning)
        elif self._engine is not None:
            # No call waits for the session any longer.
            self._engine.end()

    def on_end(self, error: SessionEnded) -> None:
        """Handle the end of the session on both sides.

        If the peer states an error, it is that of one link, if that link can be told. With a policy
        for reconnecting the other links are attached again in a new session.
        """
        if self._failure is None:
            connection = self.connection
            recovery = None if connection.closing else connection.recovery
            reason = error.error
            guilty = None if reason is None else find_guilty(self.links, reason, connection.peer)
            if guilty is not None and not (recovery is not None and guilty.forgo_resuming(error)):
                named = f"{connection.url}: the peer ended the session because of {guilty.place}"
                guilty._end(refusal(guilty, error))
                # Without that link the session is not expected to end again.
                self._pauses = None
                error = SessionEnded(named, reason)
            begun = self._restoring or self._beginning is None
            needed = not self._own or self._links or self._users
            if recovery is not None and reason is not None and begun and needed:
                now = asyncio.get_running_loop().time()
                if not self._restoring and now - self._restored_at > _STEADY:
                    self._pauses = None
                self._engine = None
                self._ended_by = error
                recovery.start_session(self, error)
            else:
                self._end(error)
        self.on_lost()

    def on_lost(self) -> None:
        """Handle the loss of the session: the peer answers no frame of it any more."""
        resolve(self._ending)
        self._forget_leaving()


def _not_free(link: Link[Any], within: str) -> str:
    return (
        f"{link.place}: an earlier link has the name {link.name!r}, and the peer has not detached "
        f"it {within}"
    )


def _traced() -> ModuleType:
    """Return the module of links with a tracer, which needs an extra."""
    return importlib.import_module("ferrymq.opentelemetry")
