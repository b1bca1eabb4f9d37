"""Common part of senders and receivers: attaching, detaching, and the end of a link."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar
from weakref import ref

from ferrymq.aio.opening import Opened
from ferrymq.aio.termini import NEW_TERMINUS
from ferrymq.aio.waiting import Signal, deadline, fresh, resolve
from ferrymq.engine.answers import expect_encodable
from ferrymq.engine.link import Link as EngineLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import (
    AmqpError,
    ConnectionClosed,
    LinkDetached,
    PeerError,
    SessionEnded,
    TransportError,
)
from ferrymq.options import MadeUp, ReceiverOptions, SenderOptions, Timeout
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.output_turn import OutputTurn
    from ferrymq.aio.session import Session

LOGGER: Final = logging.getLogger("ferrymq")

# Characters of an address that an error message shows, at most.
_SHOWN: Final = 200

L = TypeVar("L", bound=EngineLink)


class Link(ABC, Opened, Generic[L]):
    """Link of a session. `name` is its name; `session` the session it belongs to.

    `held` says whether the session keeps a reference to the link when its user has none.
    """

    held: ClassVar[bool] = True
    sends: ClassVar[bool]
    _options: SenderOptions | ReceiverOptions

    def __init__(self, session: Session, name: str, timeout: Timeout) -> None:
        self.session = session
        self.name: str = str(name)
        # Whether the user has chosen the name, and knows the link by it.
        self._named = not isinstance(name, MadeUp)
        self._connection = session.connection
        self._timeout = self._connection.within(timeout)
        self._engine: L | None = None
        # Why the link is over; None while it lives or is being restored.
        self._failure: PeerError | None = None
        self._attaching: asyncio.Future[None] | None = None
        self._detaching: asyncio.Future[None] | None = None
        # Whether its user has dropped the link: it will be closed.
        self.dropped = False
        self._changed = Signal()
        # Whether the link was attached before; whether an attach was given up before its answer.
        self._known = False
        self._forgone = False
        # Whether the peer has refused to resume the link.
        self._unresumable = False
        self._said_unresumed = False
        # Task that attaches the link again, in a further round of resuming (AMQP 1.0 §2.6.13).
        self._round: asyncio.Task[None] | None = None

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._failure is not None

    @property
    @abstractmethod
    def address(self) -> str | None:
        """The node of the link at the peer."""

    @property
    def properties(self) -> dict[str, object]:
        """The properties in the peer's attach (AMQP 1.0 §2.7.3)."""
        attach = None if self._engine is None else self._engine.remote_attach
        return {} if attach is None or attach.properties is None else attach.properties

    @property
    def offered_capabilities(self) -> list[str]:
        """Capabilities that the peer offers on this link (AMQP 1.0 §2.7.3)."""
        attach = None if self._engine is None else self._engine.remote_attach
        if attach is None or attach.offered_capabilities is None:
            return []
        return attach.offered_capabilities

    async def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the link and wait for the peer to do the same.

        If the peer does not answer within `timeout`, the call returns and the link is closed
        nevertheless. Does nothing when the link is over already.
        """
        await self._leave(True, error, timeout)

    async def detach(self, *, timeout: Timeout = "default") -> None:
        """End the link and leave its terminus at the peer as it is (AMQP 1.0 §2.6.4): a durable
        subscription continues, and a later link of the same name finds it.

        The expiry policy of the terminus decides how long it is kept (§3.5.6). Otherwise this is
        `close`.
        """
        await self._leave(False, None, timeout)

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    @property
    def place(self) -> str:
        """How error messages call the link: by its address, and by its name if that was chosen."""
        address = self.address
        if address is not None:
            place = repr(address if len(address) <= _SHOWN else f"{address[:_SHOWN]}…")
        else:
            place = "a dynamic node" if self._options.dynamic else "the anonymous node"
        return f"{place} (link {self.name!r})" if self._named else place

    @property
    def attaching(self) -> bool:
        """Whether the peer has not answered the attach yet."""
        return self._attaching is not None and not self._attaching.done()

    @property
    def new(self) -> bool:
        """Whether the link was never attached before."""
        return not self._known

    @property
    def in_flight(self) -> bool:
        """Whether messages were sent that have no outcome yet."""
        return False

    @property
    def _asks_to_resume(self) -> bool:
        """Whether our attach asked the peer to resume the link."""
        return False

    @property
    def _no_resuming(self) -> str | None:
        """Reason why nothing can be resumed at the peer; None if it may be."""
        return None if self.resumes else f"{self._connection.peer} resumes no links"

    def _say_unresumed(self, instead: str) -> None:
        """Log once that a durable link is not resumed after a loss, and what happens instead."""
        if not self._said_unresumed:
            self._said_unresumed = True
            LOGGER.warning(
                "%s: %s is attached anew after a loss, because %s resumes no links: %s",
                self._connection.url,
                self.place,
                self._connection.peer,
                instead,
            )

    @property
    def resumes(self) -> bool:
        """Whether the peer may resume the link with its unsettled deliveries."""
        return self._connection.peer.resumes and not self._unresumable

    def forgo_resuming(self, error: PeerError) -> bool:
        """Attach without resuming from now on, if the peer has answered by this error that it does
        not resume links; return whether that is so."""
        if (
            not self.attaching
            or not self._asks_to_resume
            or error.condition != "amqp:not-implemented"
        ):
            return False
        self._unresumable = True
        return True

    async def _leave(self, closed: bool, error: Error | None, timeout: Timeout) -> None:
        self._connection.check_loop()
        expect_encodable(error)
        if self._failure is None and self._engine is not None:
            try:
                async with deadline(self._timeout if timeout == "default" else timeout):
                    try:
                        await self._before_leave()
                    finally:
                        detaching = self._begin_leave(closed, error)
                    await detaching
                    self.session.leaving.pop(self, None)
                    await self.session.ended_idle()
            except TimeoutError:
                pass
            finally:
                self._detaching = None
                self.session.leaving.pop(self, None)
                self.session.end_idle()
        else:
            self._end_left(closed)

    async def take_back(self) -> None:
        """End a link that no caller received, with the terminus that its attach has made."""
        await self._leave(self._made or not self._lasts, None, "default")

    def _begin_leave(self, closed: bool, error: Error | None) -> asyncio.Future[None]:
        """End the link on this side. The future ends with the peer's answer, or with the error that
        the link was lost with."""
        detaching = self._detaching = asyncio.get_running_loop().create_future()
        engine = self._engine
        if self._failure is None:
            self._before_close()
        self._end_left(closed)
        if engine is None or engine.local_detached or not engine.session.mapped:
            resolve(detaching)
        else:
            # The end of the link has ended all waiting calls except this one.
            detaching = self._detaching = asyncio.get_running_loop().create_future()
            self.session.leaving[self] = None
            engine.detach(closed=closed, error=error)
            self._connection.soon()
        return detaching

    def _left(self, _: object) -> None:
        """Forget the link that this side has ended and for which no call waits."""
        self.session.leaving.pop(self, None)
        self.session.end_idle()

    def _end_left(self, closed: bool) -> None:
        verb = "closed" if closed else "detached"
        self._end(LinkDetached(f"{self.place}: the link was {verb} on this side"))

    @abstractmethod
    def _create(self, session: EngineSession) -> L:
        """Attach an engine link for this one."""

    @abstractmethod
    def _use(self, engine: L, turn: OutputTurn) -> None:
        """Use a new attachment, whose output is written at this turn."""

    def _objection(self) -> str | None:
        """Return why the peer must not be asked for this link, None if there is no reason."""
        return None

    @abstractmethod
    def _refused(self) -> bool:
        """Return whether the peer's attach has no terminus: its detach will state the reason
        (§2.6.3)."""

    @abstractmethod
    def _lack(self) -> str | None:
        """Return what the peer's terminus lacks, None if it is sufficient: we have to check that
        (§2.6.3)."""

    @property
    def _lasts(self) -> bool:
        """Return whether the terminus at the peer outlives the link: then it is closed only on
        demand."""
        return False

    @property
    def _partial(self) -> bool:
        """Return whether the link was resumed in part, and has to be attached again."""
        return False

    @property
    def _made(self) -> bool:
        """Return whether the peer says that the attach has made the terminus."""
        return self.properties.get(NEW_TERMINUS) is True

    async def _before_leave(self) -> None:
        """Wait for output that must reach the peer before the link ends."""

    def _before_close(self) -> None:
        """Release the messages that the user did not take."""

    def _lost(self, error: PeerError) -> None:
        """Fail the calls that wait for deliveries in flight, which are lost."""

    def _restored(self) -> None:
        """Handle an attach that is complete, the first or a later one."""

    async def _attach(self) -> None:
        """Attach, and wait until the peer has attached too.

        Raises `LinkDetached` if the peer refuses or its terminus is not as requested,
        `TimeoutError` if it does not answer; then, and when cancelled, the link is detached again.
        Raises the errors of the `authorize` of the connection.
        """
        objection = self._objection()
        if objection is not None:
            reason = Error(condition="amqp:not-implemented", description=objection)
            self._end(LinkDetached(self.place, reason))
            self._check()
        await self._authorize()
        engine = self._create(self.session.engine)
        engine.context = self if self.held else ref(self)
        self._engine = engine
        self._use(engine, self._connection.transport.turn)
        self._attaching = asyncio.get_running_loop().create_future()
        self._connection.soon()
        heard = self._connection.transport.engine.last_received
        try:
            async with deadline(self._timeout, self._unanswered):
                await self._attaching
            self._check()
            lack = self._lack()
            if lack is not None:
                reason = Error(condition="amqp:precondition-failed", description=lack)
                raise LinkDetached(self.place, reason, True)
        except BaseException as error:
            if not (isinstance(error, TimeoutError) and self._comes_back(heard)):
                self._give_up(engine, error)
            raise
        finally:
            self._attaching = None
        self._known = True
        self._restored()

    async def _authorize(self) -> None:
        """Call the `authorize` of the connection, if it has one, for the address of the link."""
        authorize = self._connection.options.authorize
        address = self.address
        if authorize is None or address is None or self._options.dynamic:
            return
        try:
            async with deadline(self._timeout, self._unauthorized):
                await authorize(self.session, address)
            self._check()
        except LinkDetached as error:
            self._end(error)
            raise
        except TimeoutError:
            self._end(LinkDetached(f"{self.place}: the link was never attached"))
            raise
        except (AmqpError, OSError):
            raise
        except Exception as error:
            # If a connection is being restored, that goes on with the next attempt.
            text = f"{self.place}: authorize raised {type(error).__name__}"
            raise TransportError(text) from error

    def _unauthorized(self, within: str) -> str:
        return f"{self.place}: the link was not authorized {within}"

    def _unanswered(self, within: str) -> str:
        return f"{self.place}: the peer did not answer the attach {within}"

    def _comes_back(self, heard: float) -> bool:
        """Return whether the link will be restored in another connection: the present one is being
        restored, and the peer has said nothing since `heard`. So it is not this link's fault."""
        recovery = self._connection.recovery
        return (
            self._known
            and recovery is not None
            and recovery.active
            and self._failure is None
            and self._connection.transport.engine.last_received == heard
        )

    def _give_up(self, engine: L, error: BaseException) -> None:
        refused = isinstance(error, LinkDetached)
        if (
            self._lasts
            and not refused
            and engine.remote_attach is None
            and not engine.local_detached
            and engine.session.mapped
        ):
            # The answer may say whether the terminus existed before.
            self._forgone = True
            engine.context = self
        else:
            self._take_back(engine, error.error if isinstance(error, LinkDetached) else None)
        comes_back = isinstance(error, SessionEnded) and self.session.restoring
        if isinstance(error, LinkDetached):
            self._end(error)
        elif not isinstance(error, ConnectionClosed) and not comes_back:
            self._end(LinkDetached(f"{self.place}: the link was never attached"))

    def _take_back(self, engine: L, reason: Error | None) -> None:
        """End an attach that is given up. A terminus that existed before is left as it is."""
        if engine.local_detached or not engine.session.mapped:
            return
        made = not self._known and self._made
        engine.detach(closed=made or not self._lasts, error=reason)
        self._connection.soon()

    def _begin_round(self) -> None:
        """Detach and attach again, to resume the deliveries that had no room in the maps."""
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._run_round())

    async def _run_round(self) -> None:
        try:
            engine = self._engine
            if engine is None:
                return
            if not engine.local_detached:
                self._detaching = asyncio.get_running_loop().create_future()
                engine.detach(closed=False)
                self._connection.soon()
                try:
                    async with asyncio.timeout(self._timeout):
                        await self._detaching
                finally:
                    self._detaching = None
            if self._failure is None and engine is self._engine and engine.session.mapped:
                self._round = None
                await self._attach()
        except TimeoutError:
            self._end(LinkDetached(f"{self.place}: the peer does not let the link be resumed"))
        except AmqpError:
            # The link has ended, or the connection is lost and will be restored.
            pass
        finally:
            if self._round is asyncio.current_task():
                self._round = None

    def _check(self) -> None:
        """Raise the error that ended the link, if it is over, and RuntimeError outside its event
        loop."""
        self._connection.check_loop()
        if self._failure is not None:
            raise fresh(self._failure)

    def _end(self, error: PeerError) -> None:
        """End the link finally."""
        if self._failure is None:
            self._failure = error
            self.session.forget(self)
            self._suspend(error)

    def _suspend(self, error: PeerError) -> None:
        """Suspend the link, which may be restored."""
        self._lost(error)
        resolve(self._attaching, error)
        resolve(self._detaching)
        self._changed.wake()

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_attach(self) -> None:
        """Handle the peer's attach, which may be a refusal whose reason follows."""
        if self._refused():
            return
        if self._forgone and self._engine is not None:
            self._take_back(self._engine, None)
        resolve(self._attaching)

    def on_lost(self) -> None:
        """Handle the loss of the session: the peer answers no detach any more."""
        resolve(self._detaching)

    def on_detach(self, closed: bool, error: Error | None) -> None:
        """Handle the peer's detach: an answer to ours, or its own."""
        if self._detaching is not None:
            resolve(self._detaching)
            return
        engine = self._engine
        again = not closed and error is None and self._partial and self._failure is None
        if engine is not None and not engine.local_detached:
            engine.detach(closed=closed)
        if again:
            self._begin_round()
            return
        if self._attaching is not None and self._refused():
            description = None if error is None else error.description
            hint = self._connection.peer.lack(description) or self._connection.login_hint(error)
            place = self.place if error is not None else f"{self.place}: the peer refused the link"
            self._end(LinkDetached(place, error, closed, hint))
        else:
            verb = "closed" if closed else "detached"
            self._end(LinkDetached(f"{self.place}: the peer {verb} the link", error, closed))


def owner_of(engine: EngineLink) -> object:
    """Return the client's object of an engine link; None if it no longer exists."""
    context = engine.context
    return context() if isinstance(context, ref) else context
