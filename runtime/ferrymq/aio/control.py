"""Control links, on which transactions are declared and discharged (AMQP 1.0 §4.2–3)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from librt.strings import BytesWriter

from ferrymq.aio.outcomes import OUTCOMES, is_outcome
from ferrymq.aio.sender import Sender
from ferrymq.errors import AmqpError, PeerError, TransactionError
from ferrymq.options import SenderOptions
from ferrymq_types.messaging import AmqpValue, MessageAnnotations, Source
from ferrymq_types.transactions import Coordinator, Declare, Declared, Discharge

if TYPE_CHECKING:
    from ferrymq.aio.session import Session
    from ferrymq.aio.transaction import Transaction
    from ferrymq.engine.delivery import OutgoingDelivery
    from ferrymq.engine.sender import SenderLink
    from ferrymq.engine.session import Session as EngineSession
    from ferrymq_types.unions import DeliveryState

_LOCAL: Final = "amqp:local-transactions"
_MANY: Final = "amqp:multi-txns-per-ssn"


class Control(Sender):
    """The control link of a session. `transactions` are those that it has declared, by id."""

    # A transaction ends with its control link.
    resends = False

    def __init__(self, session: Session) -> None:
        super().__init__(session, None, SenderOptions(name=f"control-{uuid4()}"))
        self.transactions: dict[bytes, Transaction] = {}
        # Rollbacks for which no caller waits.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        """How error messages call the link."""
        return "the transaction coordinator"

    @property
    def capabilities(self) -> list[str]:
        """Capabilities of the peer's coordinator (AMQP 1.0 §4.5.7)."""
        attach = None if self._engine is None else self._engine.remote_attach
        target = None if attach is None else attach.target
        if not isinstance(target, Coordinator) or target.capabilities is None:
            return []
        return target.capabilities

    def expect_room(self) -> None:
        """Raise `TransactionError` if the peer's coordinator allows no further transaction now."""
        if self.transactions and _MANY not in self.capabilities:
            raise TransactionError(
                "the peer's coordinator allows one transaction at a time in a session: discharge "
                "the one that is open first"
            )

    async def declare(self) -> DeliveryState | None:
        """Ask the coordinator for a transaction and return its answer.

        If the caller is cancelled and the transaction is declared later, it is rolled back. It
        counts until then, so the next one waits for that. Raises `DeliveryRejected` for a refusal,
        and the error that ended the link, session or connection.
        """
        while self._tasks:
            await asyncio.wait(self._tasks)
        delivery, answered = await self.post(Declare())
        try:
            await answered
        except asyncio.CancelledError:
            late = asyncio.get_running_loop().create_future()
            if delivery.remote_settled or delivery.remote_state is not None:
                # The answer and the cancellation have crossed.
                late.set_result(None)
            else:
                delivery.context = late
            self._go_on(self._undo(delivery, late))
            raise
        return delivery.remote_state

    def roll_back(self, id: bytes) -> asyncio.Task[None]:
        """Roll a transaction back without waiting; the returned task ends when it is rolled back.

        If the peer does not answer the discharge within the connection's timeout, its control link
        is closed, which rolls back all transactions of the link (AMQP 1.0 §4.2).
        """
        return self._go_on(self._roll_back(id))

    def _go_on(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Finish work in the background, without the caller."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _undo(self, delivery: OutgoingDelivery, answered: asyncio.Future[None]) -> None:
        try:
            await answered
        except AmqpError:
            # A refusal, or the loss of the link.
            return
        if isinstance(delivery.remote_state, Declared):
            await self._roll_back(delivery.remote_state.txn_id)

    async def _roll_back(self, id: bytes) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                answered = (await self.post(Discharge(txn_id=id, fail=True)))[1]
            await answered
        except TimeoutError:
            await self.close(timeout=0)
        except AmqpError:
            # The coordinator, or the loss of the link, has rolled it back.
            pass

    async def post(
        self, body: Declare | Discharge, annotations: dict[str | int, object] | None = None
    ) -> tuple[OutgoingDelivery, asyncio.Future[None]]:
        """Send a message to the coordinator; the future ends with its answer. Raises as `request`
        does: then no message was sent."""
        writer = BytesWriter()
        if annotations:
            MessageAnnotations(annotations).encode(writer)
        AmqpValue(value=body).encode(writer)
        await self._wait()
        return self._transfer(writer.getvalue(), False, None)

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    def _create(self, session: EngineSession) -> SenderLink:
        # The source allows rejected: a refusal is then an answer, and does not end the link.
        return session.attach_sender(
            self.name,
            source=Source(outcomes=OUTCOMES),
            target=Coordinator(capabilities=[_LOCAL]),
        )

    def _lack(self) -> str | None:
        attach = None if self._engine is None else self._engine.remote_attach
        if attach is None:
            return None
        target = attach.target
        if not isinstance(target, Coordinator):
            return "the peer has no transaction coordinator"
        if _LOCAL not in self.capabilities:
            # The controller must verify the capabilities that it needs (AMQP 1.0 §4.5.1).
            return f"the peer's coordinator does not offer {_LOCAL}"
        return None

    def _lost(self, error: PeerError) -> None:
        super()._lost(error)
        for transaction in list(self.transactions.values()):
            transaction.lose(error)

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """Handle the coordinator's answer."""
        state = delivery.remote_state
        if not (delivery.remote_settled or is_outcome(state) or isinstance(state, Declared)):
            return
        if not isinstance(state, Declared):
            super().on_outcome(delivery)
            return
        delivery.settle()
        self._in_flight.deliveries.discard(delivery)
        future = delivery.context
        if isinstance(future, asyncio.Future) and not future.done():
            future.set_result(None)
