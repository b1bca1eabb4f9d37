"""Transactions, as their controller has them (AMQP 1.0, part 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from ferrymq.aio.control import Control
from ferrymq.aio.fencing import refusal, was_committed
from ferrymq.aio.outcomes import ACCEPTED
from ferrymq.aio.waiting import fresh
from ferrymq.errors import (
    AmqpError,
    ConnectionClosed,
    DeliveryRejected,
    LinkDetached,
    LocalProtocolError,
    PeerError,
    Scope,
    SessionEnded,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from ferrymq.fence import Digest, Fence
from ferrymq_types.messaging import Accepted
from ferrymq_types.transactions import Declare, Declared, Discharge, TransactionalState

if TYPE_CHECKING:
    from ferrymq.aio.delivery import Delivery
    from ferrymq.aio.link import Link
    from ferrymq.aio.receiver import Receiver
    from ferrymq.aio.sender import Sender
    from ferrymq.aio.session import Session
    from ferrymq.engine.delivery import OutgoingDelivery
    from ferrymq.message import Message
    from ferrymq_types.transport import Error
    from ferrymq_types.unions import Outcome

_MULTI_SESSION: Final = "amqp:multi-ssns-per-txn"


class _State(Enum):
    OPEN = "open"
    ENDING = "being discharged"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


class Transaction:
    """Work that is done as a whole or not at all. Made by `Connection.transaction`.

    Name it in `Sender.send`, in `Delivery.accept` and its like, and in `Receiver.add_credit`; then
    `commit` or `rollback` it. ``async with`` does the first at the end of the block, and the second
    if an exception leaves it.
    """

    def __init__(self, control: Control, id: bytes, fence: Fence | None = None) -> None:
        self.id = id
        self.fence = fence
        self.session = control.session
        self._control = control
        self._state = _State.OPEN
        # Why the peer rolled it back, as far as it told.
        self._reason: PeerError | None = None
        self._posted: list[OutgoingDelivery] = []
        self._retired: dict[Delivery, Outcome] = {}
        self.acquirers: set[Receiver] = set()
        control.transactions[id] = self

    def __repr__(self) -> str:
        return f"<transaction {self.id.hex()}, {self._state.value}>"

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def active(self) -> bool:
        """Whether work may be added to it."""
        return self._state is _State.OPEN and self._reason is None

    async def send(
        self,
        sender: Sender,
        message: Message,
        *,
        settled: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Send a message that exists once the transaction is committed: `Sender.send`."""
        await sender.send(message, settled=settled, timeout=timeout, transaction=self)

    async def commit(self, *, digest: Digest | None = None, timeout: float | None = None) -> None:
        """Do all of it; when this returns, it has been done.

        `digest` is what its fence remembers of the rows that were written: `FenceMismatch`, a
        `TransactionRolledBack`, is raised if the sequence was committed with another one.

        Raises `TransactionRolledBack` when the peer could not, and nothing was done; `FencePassed`
        is one of these. Raises `TransactionInDoubt` when the connection or session was lost before
        the answer came, and `TimeoutError` when it did not come in time: it may have been done or
        not. With a fence, and a connection that is restored, the peer is asked then, and nothing is
        left in doubt. Raises `LocalProtocolError` for a transaction that has ended.
        """
        await self._discharge(False, timeout, digest)

    async def rollback(self, *, timeout: float | None = None) -> None:
        """Do none of it. Deliveries that were given an outcome in it have none again.

        Does nothing if the peer has rolled it back already. Raises as `commit` does.
        """
        await self._discharge(True, timeout)

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._state is not _State.OPEN:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.rollback(timeout=self.session.connection.options.timeout)
        except (AmqpError, TimeoutError):
            # Without an answer it is rolled back as well, with its link or its time. What left the
            # block matters more.
            pass

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    def state_for(self, link: Link[Any], outcome: Outcome | None = None) -> TransactionalState:
        """What ties a delivery of the link to the transaction.

        Raises `TransactionRolledBack` or `LocalProtocolError` if that cannot be.
        """
        self.check()
        session = link.session
        if session is not self.session and (
            session.connection is not self.session.connection
            or _MULTI_SESSION not in self._control.capabilities
        ):
            raise LocalProtocolError(
                "amqp:not-allowed",
                f"link {link.name!r} is not of the session that the transaction was declared in",
                Scope.LINK,
            )
        return TransactionalState(txn_id=self.id, outcome=outcome)

    def check(self) -> None:
        """Raise unless work may be added."""
        if self._reason is not None:
            raise _rolled_back(self._reason)
        if self._state is not _State.OPEN:
            raise LocalProtocolError(
                "amqp:illegal-state", f"the transaction is {self._state.value}", Scope.LINK
            )

    def on_posted(self, delivery: OutgoingDelivery) -> None:
        """A message has been sent in it."""
        self._posted.append(delivery)

    def on_retired(self, delivery: Delivery, outcome: Outcome) -> None:
        """A delivery has been given an outcome in it."""
        self._retired[delivery] = outcome

    def lose(self, error: PeerError) -> None:
        """The control link is gone, and the transaction with it."""
        if self._reason is None:
            self._reason = error
        if self._state is _State.OPEN:
            self._end(False)

    async def _discharge(
        self, fail: bool, timeout: float | None, digest: Digest | None = None
    ) -> None:
        if self._state is _State.OPEN and self._reason is not None:
            self._state = _State.ROLLED_BACK
            if not fail:
                raise _rolled_back(self._reason)
            return
        if fail and self._state is _State.ROLLED_BACK:
            return
        self.check()
        self._state = _State.ENDING
        try:
            async with asyncio.timeout(timeout):
                try:
                    delivery, answered = await self._ask(fail, digest)
                except (ConnectionClosed, SessionEnded) as lost:
                    # It was lost before there was a discharge.
                    self._end(False)
                    if fail:
                        raise
                    raise _rolled_back(lost) from lost
                try:
                    await answered
                except (ConnectionClosed, SessionEnded) as lost:
                    self._end(False)
                    if fail:
                        raise
                    await self._find_out(lost, digest)
                    return
                if not fail and not isinstance(delivery.remote_state, Accepted):
                    self._end(False)
                    raise TransactionInDoubt(
                        f"the peer answered the commit with {delivery.remote_state}, it was done "
                        f"or not"
                    )
        except DeliveryRejected as refused:
            self._end(False)
            if not fail:
                raise _rolled_back_by(refused.error) from None
        except LinkDetached as detached:
            self._end(False)
            if not fail:
                raise _rolled_back(detached) from detached
        except BaseException:
            self._end(False)
            raise
        else:
            self._end(not fail)

    async def _ask(
        self, fail: bool, digest: Digest | None
    ) -> tuple[OutgoingDelivery, asyncio.Future[None]]:
        """Send the discharge; the future ends with the answer."""
        for receiver in list(self.acquirers):
            # What comes after the discharge would be in no transaction (§4.4.3).
            if not receiver.closed:
                await receiver.drain()
        annotations = None if self.fence is None or fail else self.fence.annotations(digest)
        discharge = Discharge(txn_id=self.id, fail=fail)
        return await self._control.post(discharge, annotations)

    async def _find_out(self, lost: PeerError, digest: Digest | None) -> None:
        """The answer to a commit was lost. Returns if it was done."""
        committed = None
        if self.fence is not None:
            committed = await was_committed(self.session.connection, self.fence, digest)
        if committed is None:
            raise TransactionInDoubt(
                f"the answer to the commit was lost, it was done or not: {lost}", lost.error
            ) from lost
        if not committed:
            raise _rolled_back(lost) from lost
        self._state = _State.COMMITTED

    def _end(self, committed: bool) -> None:
        """The transaction is over: settle what the peer has not."""
        if self._state in (_State.COMMITTED, _State.ROLLED_BACK):
            return
        self._state = _State.COMMITTED if committed else _State.ROLLED_BACK
        self._control.transactions.pop(self.id, None)
        for posted in self._posted:
            if not posted.remote_settled:
                posted.link.settle(posted, ACCEPTED if committed else None)
        for delivery, outcome in self._retired.items():
            delivery.on_discharged(outcome if committed else None)
        for receiver in self.acquirers:
            receiver.stop_acquiring(self, committed)
        self._posted = []
        self._retired = {}
        self.acquirers = set()
        self.session.connection.soon()


class OpeningTransaction:
    """Awaited, it declares a transaction; in ``async with``, it also discharges it."""

    __slots__ = ("_open", "_opened")

    def __init__(self, open: Callable[[], Coroutine[Any, Any, Transaction]]) -> None:
        self._open = open
        self._opened: Transaction | None = None

    def open(self) -> Coroutine[Any, Any, Transaction]:
        """A coroutine that declares it, for those who cannot await."""
        return self._open()

    def __await__(self) -> Generator[Any, None, Transaction]:
        return self._open().__await__()

    async def __aenter__(self) -> Transaction:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opened = self._opened
        self._opened = None
        if opened is not None:
            await opened.__aexit__(kind, error, traceback)


async def declare(session: Session, fence: Fence | None = None) -> Transaction:
    """A new transaction. Raises `TransactionError` if the peer declares none."""
    control = await session.control()
    control.expect_room()
    try:
        state = await control.request(Declare())
    except DeliveryRejected as refused:
        raise TransactionError(
            f"the peer declares no transaction: {refused}", refused.error
        ) from None
    if not isinstance(state, Declared):
        raise TransactionError(f"the peer answered a declare with {state}")
    return Transaction(control, state.txn_id, fence)


def _rolled_back(reason: PeerError) -> TransactionRolledBack:
    error = TransactionRolledBack(f"the transaction was rolled back: {reason}", reason.error)
    error.__cause__ = fresh(reason)
    return error


def _rolled_back_by(error: Error | None) -> TransactionRolledBack:
    if error is None:
        return TransactionRolledBack("the peer did not commit the transaction")
    passed = refusal(error)
    if passed is not None:
        return passed
    text = error.condition if error.description is None else error.description
    return TransactionRolledBack(f"{error.condition}: {text}", error)
