"""Transactions on the controller's side (AMQP 1.0, part 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from ferrymq.aio.control import Control
from ferrymq.aio.fencing import refusal, was_committed
from ferrymq.aio.opening import Unopened
from ferrymq.aio.outcomes import ACCEPTED
from ferrymq.aio.waiting import deadline, fresh
from ferrymq.durations import Duration
from ferrymq.errors import (
    AmqpError,
    DeliveryRejected,
    LinkDetached,
    LocalProtocolError,
    PeerError,
    Scope,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from ferrymq.fence import Digest, Fence
from ferrymq_types.messaging import Accepted
from ferrymq_types.transactions import Declared, Discharge, TransactionalState

if TYPE_CHECKING:
    from ferrymq.aio.delivery import Delivery
    from ferrymq.aio.link import Link
    from ferrymq.aio.receiver import Receiver
    from ferrymq.aio.sender import Sender
    from ferrymq.aio.session import Session
    from ferrymq.engine.delivery import OutgoingDelivery
    from ferrymq.sendable import Sendable
    from ferrymq_types.transport import Error
    from ferrymq_types.unions import Outcome

_MULTI_SESSION: Final = "amqp:multi-ssns-per-txn"


class _State(Enum):
    OPEN = "open"
    ENDING = "being discharged"
    IN_DOUBT = "in doubt"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


class Transaction:
    """Work that is done as a whole or not at all. Made by `Connection.transaction`.

    Name the transaction in `Sender.send`, in `Delivery.accept` and the other outcomes, and in
    `Receiver.add_credit`; then call `commit` or `rollback`. ``async with`` commits at the end of
    the block, and rolls back if an exception leaves the block.
    """

    def __init__(self, control: Control, id: bytes, fence: Fence | None = None) -> None:
        self.id = id
        self.fence = fence
        self.session: Session = control.session
        self._control = control
        self._state = _State.OPEN
        # The peer's reason for rolling the transaction back, if it gave one.
        self._reason: PeerError | None = None
        # The delivery of the discharge, once it is sent.
        self._answer: OutgoingDelivery | None = None
        # Done when the transaction has ended, or its end can no longer be known.
        self._over: asyncio.Future[None] | None = None
        # Whether a caller has left before the end: the next caller may ask for the result.
        self._left = False
        # Why it was not committed, or is in doubt; an error that was met meanwhile.
        self._failure: TransactionError | None = None
        self._lost: PeerError | None = None
        self._digest: Digest | None = None
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
        message: Sendable,
        *,
        settled: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Send a message that exists once the transaction is committed: `Sender.send`."""
        await sender.send(message, settled=settled, timeout=timeout, transaction=self)

    async def commit(
        self, *, digest: Digest | None = None, timeout: Duration | None = None
    ) -> None:
        """Commit the work; when this call returns, all of it is done.

        `digest` describes the written rows and is stored with the fence: `FenceMismatch`, a
        `TransactionRolledBack`, is raised if the sequence was committed with another digest.

        Raises `TransactionRolledBack` when the peer could not commit, and no work was done;
        `FencePassed` is a subclass of it. Raises `TransactionInDoubt` when the connection or
        session was lost before the answer came: all of the work was done, or none. With a fence,
        and a connection that is restored, the client then asks the peer. Raises
        `LocalProtocolError` for a transaction that has ended.

        A call that is cancelled, or raises `TimeoutError`, before the discharge was sent rolls the
        transaction back. Afterwards the transaction is in doubt until the answer comes: call
        `commit` or `rollback` again to wait for the answer and learn the result.
        """
        await self._discharge(False, timeout, digest)

    async def rollback(self, *, timeout: Duration | None = None) -> None:
        """Roll the work back. Deliveries that were given an outcome in it have none again.

        Does nothing if the transaction is rolled back already. The discharge is sent even if the
        call is cancelled or raises `TimeoutError`. After a `commit` without an answer, waits for
        that answer: raises `LocalProtocolError` if the transaction was committed, and
        `TransactionInDoubt` if no answer can come any more. Raises `ConnectionClosed` or
        `SessionEnded` if the connection or session was lost meanwhile, and the transaction with it.
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
            # The rollback is on its way or not needed. The exception that left the block matters
            # more.
            pass

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    def state_for(self, link: Link[Any], outcome: Outcome | None = None) -> TransactionalState:
        """Return the delivery state that makes a delivery of the link part of the transaction.

        Raises `TransactionRolledBack` or `LocalProtocolError` if that is not possible.
        """
        self.check()
        session = link.session
        if session is not self.session and (
            session.connection is not self.session.connection
            or _MULTI_SESSION not in self._control.capabilities
        ):
            other = "session"
            if session.connection is not self.session.connection:
                other = f"connection, to {session.connection.url},"
            raise LocalProtocolError(
                "amqp:not-allowed",
                f"{link.place}: the link is of another {other} than the transaction",
                Scope.LINK,
            )
        return TransactionalState(txn_id=self.id, outcome=outcome)

    def check(self) -> None:
        """Raise unless work may be added."""
        if self._reason is not None:
            raise _rolled_back(self._reason)
        if self._state is not _State.OPEN:
            raise LocalProtocolError(
                "amqp:illegal-state",
                f"the transaction is {self._state.value}: declare another with "
                "connection.transaction()",
                Scope.LINK,
            )

    def on_posted(self, delivery: OutgoingDelivery) -> None:
        """Record a message that was sent in the transaction."""
        self._posted.append(delivery)

    def on_retired(self, delivery: Delivery, outcome: Outcome) -> None:
        """Record a delivery that was given an outcome in the transaction."""
        self._retired[delivery] = outcome

    def lose(self, error: PeerError) -> None:
        """End the transaction because its control link is lost."""
        if self._reason is None:
            self._reason = error
        if self._state is _State.OPEN:
            self._end(_State.ROLLED_BACK)

    async def _discharge(
        self, fail: bool, timeout: Duration | None, digest: Digest | None = None
    ) -> None:
        self.session.connection.check_loop()
        if self._state is _State.OPEN and self._reason is not None:
            self._state = _State.ROLLED_BACK
            if not fail:
                raise _rolled_back(self._reason)
            return
        if fail and self._state is _State.ROLLED_BACK:
            return
        first = not self._left and self._state is not _State.IN_DOUBT
        if first:
            self.check()
            self._state = _State.ENDING
            self._over = asyncio.get_running_loop().create_future()
            self._digest = digest
        try:
            what = self.session.connection.not_in_time(
                f"did not answer the {'rollback' if fail else 'commit'} of a transaction"
            )
            async with deadline(timeout, what):
                if first:
                    await self._ask(fail)
                if self._over is not None:
                    await asyncio.shield(self._over)
                await self._tell(fail)
        except BaseException as error:
            self._leave(error)
            raise

    async def _ask(self, fail: bool) -> None:
        """Send the discharge. An earlier loss has ended the transaction."""
        await self._drain()
        annotations = None if self.fence is None or fail else self.fence.annotations(self._digest)
        discharge = Discharge(txn_id=self.id, fail=fail)
        try:
            self._answer, answered = await self._control.post(discharge, annotations)
        except PeerError as lost:
            self._rolled_back_with(lost)
        else:
            answered.add_done_callback(lambda done: self._on_answer(fail, done.exception()))

    async def _drain(self) -> None:
        """Drain the credit with which messages are acquired: messages that come after the discharge
        would be in no transaction (AMQP 1.0 §4.4.3)."""
        for receiver in list(self.acquirers):
            try:
                await receiver.drain()
            except PeerError:
                # A link that has ended has no credit.
                pass

    def _leave(self, error: BaseException) -> None:
        """End the transaction in the background, because the caller of the discharge no longer
        waits."""
        if isinstance(error, AmqpError) or self._left:
            return
        self._left = True
        if self._state is not _State.ENDING:
            return
        if self._answer is None:
            task = self._control.roll_back(self.id)
            task.add_done_callback(lambda _: self._end(_State.ROLLED_BACK))
        else:
            self._state = _State.IN_DOUBT

    def _on_answer(self, fail: bool, error: BaseException | None) -> None:
        """Handle the peer's answer to the discharge, or its loss."""
        state = None if self._answer is None else self._answer.remote_state
        if isinstance(error, DeliveryRejected):
            self._failure = _rolled_back_by(error.error)
            self._end(_State.ROLLED_BACK)
        elif isinstance(error, LinkDetached) or (fail and isinstance(error, PeerError)):
            self._rolled_back_with(error)
        elif isinstance(error, PeerError):
            self._lost = error
            self._failure = TransactionInDoubt(
                f"the answer to the commit was lost, it was done or not: {error}", error.error
            )
            self._failure.__cause__ = error
            self._end(_State.IN_DOUBT)
        elif fail or (error is None and isinstance(state, Accepted)):
            self._end(_State.ROLLED_BACK if fail else _State.COMMITTED)
        else:
            self._failure = TransactionInDoubt(
                f"the peer answered the commit with {state}, it was done or not"
            )
            self._end(_State.IN_DOUBT)

    def _rolled_back_with(self, lost: PeerError) -> None:
        self._lost = None if isinstance(lost, LinkDetached) else lost
        self._failure = _rolled_back(lost)
        self._end(_State.ROLLED_BACK)

    async def _tell(self, fail: bool) -> None:
        """Return if the transaction has ended as requested, otherwise raise how it has ended."""
        if self._state is _State.IN_DOUBT and self._lost is not None and self.fence is not None:
            await self._find_out(self.fence, self._lost)
        if self._state is _State.COMMITTED:
            if fail:
                self.check()
        elif self._state is _State.IN_DOUBT or not fail:
            raise fresh(self._failure or TransactionRolledBack("the transaction was rolled back"))
        elif self._lost is not None:
            raise fresh(self._lost)

    async def _find_out(self, fence: Fence, lost: PeerError) -> None:
        """Ask the peer for the fence of a commit whose answer was lost."""
        try:
            committed = await was_committed(self.session.connection, fence, self._digest)
        except TransactionRolledBack as passed:
            self._failure = passed
            committed = False
        else:
            if committed is False:
                self._failure = _rolled_back(lost)
        if committed is not None:
            self._state = _State.COMMITTED if committed else _State.ROLLED_BACK
            self._lost = None

    def _end(self, state: _State) -> None:
        """End the transaction: settle the deliveries that the peer has not settled."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        if self.id not in self._control.transactions:
            return
        self._control.transactions.pop(self.id)
        self._state = state
        committed = state is _State.COMMITTED
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


class OpeningTransaction(Unopened[Transaction]):
    """Awaitable that declares a transaction; in ``async with``, it also discharges it."""

    __slots__ = ("_opened",)

    def __init__(self, open: Callable[[], Coroutine[Any, Any, Transaction]], call: str) -> None:
        super().__init__(open, call)
        self._opened: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        self._opened = await self.open()
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
    """Declare a transaction. Raises `TransactionError` if the peer declares none."""
    control = await session.control()
    control.expect_room()
    try:
        state = await control.declare()
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
