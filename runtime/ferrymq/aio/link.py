"""What senders and receivers share: attaching, detaching, and how a link ends."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from ferrymq.aio.waiting import Signal, fresh, resolve
from ferrymq.engine.answers import expect_encodable
from ferrymq.engine.link import Link as EngineLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import AmqpError, ConnectionClosed, LinkDetached, PeerError
from ferrymq.options import Timeout
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.session import Session

L = TypeVar("L", bound=EngineLink)


class Link(ABC, Generic[L]):
    """One link of a session. `name` is its name; `session` the session it belongs to."""

    def __init__(self, session: Session, name: str, timeout: Timeout) -> None:
        self.session = session
        self.name = name
        self._connection = session.connection
        self._timeout = self._connection.options.timeout if timeout == "default" else timeout
        self._engine: L | None = None
        # Why the link is over; None while it lives, also while it is being restored.
        self._failure: PeerError | None = None
        self._attaching: asyncio.Future[None] | None = None
        self._detaching: asyncio.Future[None] | None = None
        self._changed = Signal()
        # Attaches the link again, in a further round of resuming it (AMQP 1.0 §2.6.13).
        self._round: asyncio.Task[None] | None = None

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._failure is not None

    @property
    def properties(self) -> dict[str, object]:
        """The properties in the peer's attach (AMQP 1.0 §2.7.3)."""
        attach = None if self._engine is None else self._engine.remote_attach
        return {} if attach is None or attach.properties is None else attach.properties

    @property
    def offered_capabilities(self) -> list[str]:
        """What the peer says it can do on this link (AMQP 1.0 §2.7.3)."""
        attach = None if self._engine is None else self._engine.remote_attach
        if attach is None or attach.offered_capabilities is None:
            return []
        return attach.offered_capabilities

    async def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the link and wait for the peer to do the same.

        A peer that does not answer within `timeout` is not waited for any longer; the link is
        closed all the same. Does nothing when it is over already.
        """
        await self._leave(True, error, timeout)

    async def detach(self, *, timeout: Timeout = "default") -> None:
        """End the link and leave its terminus at the peer as it is (AMQP 1.0 §2.6.4): a durable
        subscription goes on, and a link of the same name finds it again.

        For how long, the terminus' expiry policy says (§3.5.6). As for the rest, this is `close`.
        """
        await self._leave(False, None, timeout)

    async def _leave(self, closed: bool, error: Error | None, timeout: Timeout) -> None:
        expect_encodable(error)
        engine = self._engine
        ended = LinkDetached(f"link {self.name!r} was {'closed' if closed else 'detached'}")
        if self._failure is not None or engine is None:
            self._end(ended)
            return
        self._before_close()
        self._end(ended)
        if engine.local_detached or not engine.session.mapped:
            return
        engine.detach(closed=closed, error=error)
        self._detaching = asyncio.get_running_loop().create_future()
        self._connection.soon()
        try:
            async with asyncio.timeout(self._timeout if timeout == "default" else timeout):
                await self._detaching
        except TimeoutError:
            pass
        finally:
            self._detaching = None

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _create(self, session: EngineSession) -> L:
        """Attach an engine link for this one."""

    @abstractmethod
    def _refused(self) -> bool:
        """Whether the peer's attach has no terminus: its detach will tell why (§2.6.3)."""

    @abstractmethod
    def _lack(self) -> str | None:
        """What the peer's terminus lacks, None if it will do: that is for us to check (§2.6.3)."""

    @property
    def _lasts(self) -> bool:
        """Whether the terminus at the peer is to outlive the link: it is closed only on demand."""
        return False

    @property
    def _partial(self) -> bool:
        """Whether the link was resumed in part, and has to be attached again."""
        return False

    def _before_close(self) -> None:
        """Hand back what the user did not take."""

    def _lost(self, error: PeerError) -> None:
        """What is in flight is lost: fail those who wait for it."""

    def _restored(self) -> None:
        """The link is attached, for the first time or again."""

    async def _attach(self) -> None:
        """Attach, and wait until the peer has done so too.

        Raises `LinkDetached` if the peer refuses or has not what was asked for, `TimeoutError` if
        it does not answer; then and when cancelled, the link is detached again.
        """
        engine = self._create(self.session.engine)
        engine.context = self
        self._engine = engine
        self._attaching = asyncio.get_running_loop().create_future()
        self._connection.soon()
        try:
            async with asyncio.timeout(self._timeout):
                await self._attaching
            self._check()
            lack = self._lack()
            if lack is not None:
                reason = Error(condition="amqp:precondition-failed", description=lack)
                raise LinkDetached(f"link {self.name!r} was closed again: {lack}", reason, True)
        except BaseException as error:
            self._give_up(engine, error)
            raise
        finally:
            self._attaching = None
        self._restored()

    def _give_up(self, engine: L, error: BaseException) -> None:
        if not engine.local_detached and engine.session.mapped:
            reason = error.error if isinstance(error, LinkDetached) else None
            engine.detach(closed=not self._lasts, error=reason)
            self._connection.soon()
        if isinstance(error, LinkDetached):
            self._end(error)
        elif not isinstance(error, ConnectionClosed):
            self._end(LinkDetached(f"link {self.name!r} was never attached"))

    def _begin_round(self) -> None:
        """Detach and attach again, to resume what the maps had no room for."""
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
            self._end(LinkDetached(f"the peer does not let link {self.name!r} be resumed"))
        except AmqpError:
            # The link has ended with it, or the connection is gone and will be restored.
            pass
        finally:
            if self._round is asyncio.current_task():
                self._round = None

    def _check(self) -> None:
        """Raise what ended the link, if it is over."""
        if self._failure is not None:
            raise fresh(self._failure)

    def _end(self, error: PeerError) -> None:
        """The link is over for good."""
        if self._failure is None:
            self._failure = error
            self.session.links.pop(self, None)
            self._suspend(error)

    def _suspend(self, error: PeerError) -> None:
        """The link is gone, perhaps to be restored."""
        self._lost(error)
        resolve(self._attaching, error)
        resolve(self._detaching)
        self._changed.wake()

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_attach(self) -> None:
        """The peer has attached too, or refuses and will say why."""
        if not self._refused():
            resolve(self._attaching)

    def on_detach(self, closed: bool, error: Error | None) -> None:
        """The peer has detached: in answer to us, or first."""
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
        verb = "closed" if closed else "detached"
        if self._attaching is not None and self._refused():
            verb = "refused"
        self._end(LinkDetached(f"the peer {verb} link {self.name!r}", error, closed))
