"""Deliveries: received messages and their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ferrymq.aio.arrivals import Arrival
from ferrymq.aio.outcomes import (
    ACCEPTED,
    RELEASED,
    as_granted,
    check_granted,
    is_outcome,
    outcome_after,
)
from ferrymq.aio.waiting import deadline, fresh, resolve, running_loop
from ferrymq.arguments import OtherNames, names
from ferrymq.durations import Duration
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.errors import ConnectionClosed, LocalProtocolError, PeerError, Scope
from ferrymq.message import Message
from ferrymq_types.messaging import Modified, Rejected
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.receiver import Receiver
    from ferrymq.aio.transaction import Transaction
    from ferrymq_types.unions import Outcome


class Delivery(OtherNames, Arrival):
    """Received message. Give it one outcome: `accept`, `reject`, `release` or `modify`.

    ``async with delivery`` accepts the message at the end of the block. If an exception leaves the
    block, it gives the message back as failed (`modify` with `delivery_failed`), or releases it if
    the program was told to stop: `asyncio.CancelledError`, `KeyboardInterrupt`, `SystemExit`,
    `GeneratorExit`. It does nothing if the message was given an outcome inside.

    A delivery that is dropped without an outcome is given back as failed.

    Each of these calls returns when the outcome is queued: it is written when the event loop next
    gets control. On a link in receiver-settle-mode second the call waits until the sender has
    confirmed the outcome (AMQP 1.0 §2.6.12). On a delivery that the sender has settled it does
    nothing. It raises `LinkDetached`, `SessionEnded` or `ConnectionClosed` when the delivery is
    lost, which means that the node delivers the message again, and `LocalProtocolError` for a
    second outcome.

    With `reconnect`, the loss of the connection does not end a loop over a receiver: the outcome of
    a delivery from before the loss is dropped, the call returns, `gone` is true, and a line in the
    log counts such outcomes. The node delivers the message again. With
    ``ReconnectPolicy(resend=False)``, and in a transaction, the call raises `ConnectionClosed`.

    On a link from a durable source, with `reconnect`, a delivery survives the loss of the
    connection. An outcome that is given meanwhile, or was on its way, is sent when the link has
    been resumed, and the call returns then. Only a delivery that the node has taken back is lost.

    An outcome given in a `transaction` is applied when the transaction is committed; when it is
    rolled back, the delivery has no outcome again (AMQP 1.0 §4.4.2).
    """

    __slots__ = ("__weakref__",)

    receiver: Receiver

    elsewhere: ClassVar[Mapping[str, str]] = names(
        ("ack complete acknowledge", "use accept()"),
        ("nack abandon", "use release(), or modify(delivery_failed=True)"),
        ("dead_letter term", "use reject()"),
        ("body data headers properties subject", "it is a field of delivery.message"),
    )

    def __del__(self) -> None:
        if self._hand and self._taken:
            self.receiver.on_dropped(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._given:
            return
        if error is None:
            await self.accept()
        else:
            self.give_back(error)

    def __repr__(self) -> str:
        state = "settled" if self.settled else "unsettled"
        return f"<delivery {self.tag.hex()} of {len(self.payload)} bytes, {state}>"

    @property
    def message(self) -> Message:
        """The message, decoded at the first use. Raises `DecodeError` if it is malformed."""
        message = self._message
        if message is None:
            types = self.receiver.session.connection.types
            message = Message.decode(self._engine.payload, types=types)
            self._message = message
        return message

    @property
    def payload(self) -> bytes:
        """The message as it was sent: its encoded sections."""
        return self._engine.payload

    @property
    def message_format(self) -> int:
        """The format of the payload; 0 is the sections of AMQP 1.0 (§3.2.16)."""
        return self._engine.message_format

    @property
    def tag(self) -> bytes:
        """The sender's name for the delivery, up to 32 bytes (AMQP 1.0 §2.6.12)."""
        return self._engine.tag

    @property
    def settled(self) -> bool:
        """Whether either side has settled the delivery."""
        return self._engine.settled or self._engine.remote_settled

    @property
    def gone(self) -> bool:
        """Whether the message is lost to this program, so that no outcome has an effect: its
        connection or link has ended, or the node has taken it back. The node delivers the message
        again."""
        if self._gone:
            return True
        return not (self._given or self.settled or self.receiver.holds(self._engine))

    async def accept(
        self, *, timeout: Duration | None = None, transaction: Transaction | None = None
    ) -> None:
        """Accept the message: it is processed, and the node may forget it (AMQP 1.0 §3.4.2)."""
        rest = self._give(ACCEPTED, timeout, transaction)
        if rest is not None:
            await rest

    async def reject(
        self,
        error: Error | str | None = None,
        description: str | None = None,
        *,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Reject the message as invalid (AMQP 1.0 §3.4.3); `error` may be the symbol of a
        condition."""
        if isinstance(error, str):
            error = Error(condition=error, description=description)
        elif error is not None and not isinstance(error, Error):
            raise TypeError(
                "reject takes a condition such as 'app:bad-order', or an Error, not "
                f"{type(error).__name__}: reject('app:bad-order', str(error))"
            )
        rest = self._give(Rejected(error=error), timeout, transaction)
        if rest is not None:
            await rest

    async def release(
        self, *, timeout: Duration | None = None, transaction: Transaction | None = None
    ) -> None:
        """Release the message, which was not and will not be processed (AMQP 1.0 §3.4.4)."""
        rest = self._give(RELEASED, timeout, transaction)
        if rest is not None:
            await rest

    async def modify(
        self,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: dict[str, object] | None = None,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Give the message back, changed (AMQP 1.0 §3.4.5).

        `delivery_failed` counts as an attempt, `undeliverable_here` keeps it from this link, and
        `message_annotations` are merged into the message's.
        """
        outcome = Modified(
            delivery_failed=delivery_failed,
            undeliverable_here=undeliverable_here,
            message_annotations=message_annotations,
        )
        rest = self._give(outcome, timeout, transaction)
        if rest is not None:
            await rest

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    def _give(
        self, outcome: Outcome, timeout: Duration | None, transaction: Transaction | None
    ) -> Coroutine[Any, Any, None] | None:
        """Give an outcome; return what is left to wait for, None in the usual case."""
        if transaction is None and self.settle_plainly(outcome):
            return None
        confirmed = self._begin(outcome, transaction)
        transport = self.receiver._connection._transport
        if confirmed is None and (transport is None or not transport.paused):
            return None
        return self._wait(confirmed, timeout)

    async def _wait(self, confirmed: asyncio.Future[None] | None, timeout: Duration | None) -> None:
        """Wait until the sender has confirmed the outcome, or the transport takes more output."""
        if confirmed is None:
            async with deadline(timeout, self._not_written):
                await self.receiver._connection.writable()
            return
        try:
            async with deadline(timeout, self._not_confirmed):
                await confirmed
        finally:
            self.receiver.confirming.discard(self)

    def _begin(
        self, outcome: Outcome, transaction: Transaction | None
    ) -> asyncio.Future[None] | None:
        """Give an outcome; return a future if it is final only when the sender has confirmed it.

        This runs for each message, and so makes few calls.
        """
        receiver = self.receiver
        connection = receiver._connection
        if running_loop() is not connection._loop:
            connection.check_loop()
        if self._given:
            raise self._second_outcome()
        if self._gone:
            raise lost(receiver._failure)
        engine = self._engine
        decided = engine.remote_state
        if decided is not None and is_outcome(decided) and type(decided) is not type(outcome):
            # The sender has decided on the outcome, which is final.
            engine.settle(decided)
            self._take_back()
            receiver.on_settled(self)
            raise lost(receiver._failure)
        if engine.settled or engine.remote_settled:
            self._given = True
            receiver.retire(self)
            return None
        live = receiver._failure is None and receiver.has_live(engine)
        if not live and not receiver.holds(engine):
            if (
                transaction is not None
                or self.transaction_id is not None
                or not receiver.redelivers
            ):
                raise lost(receiver._failure)
            self._given = True
            self.drop_outcome()
            return None
        if self._arrivals.returns:
            engine.link.set_aside(engine)
            self._given = True
            return None
        if self._arrivals.granted is not None:
            check_granted(outcome, self._arrivals.granted)
        if transaction is None and self.transaction_id is not None:
            transaction = receiver.session.transaction_of(self.transaction_id)
        if transaction is not None:
            engine.update(transaction.state_for(receiver, outcome))
            transaction.on_retired(self, outcome)
            self._given = True
            receiver.retire(self)
            connection.soon()
            return None
        if live:
            engine.settle(outcome)
            self._told = True
        else:
            # The link is down; the outcome is sent when it is resumed.
            engine.update(outcome)
        self._given = True
        receiver.retire(self)
        connection.soon()
        if self.settled:
            if receiver._inbox is not None:
                receiver.on_settled(self)
            return None
        # In receiver-settle-mode second the sender settles first.
        receiver.confirming.add(self)
        self._confirmed = asyncio.get_running_loop().create_future()
        return self._confirmed

    def settle_late(self, outcome: Outcome) -> None:
        """Give an outcome for which no caller waits any longer. If the delivery was lost meanwhile,
        the log says so, and the node delivers the message again."""
        try:
            self._begin(outcome, None)
        except PeerError:
            self._gone = True
            self.receiver.on_outcome_dropped(self)
        except LocalProtocolError:
            # Two threads have given it an outcome at the same time; the first one counts.
            pass

    def _second_outcome(self) -> LocalProtocolError:
        """Return the error for an outcome of a delivery that has one."""
        state = self._engine.state
        given = state.outcome if isinstance(state, TransactionalState) else state
        what = f" ({type(given).__name__.lower()})" if is_outcome(given) else ""
        place = self.receiver.place
        return LocalProtocolError(
            "amqp:illegal-state",
            f"a delivery from {place} has been given an outcome already{what}; it has only one",
            Scope.LINK,
        )

    def give_back(self, error: BaseException) -> None:
        """Give the message back because an exception ended the work on it, unless it has an
        outcome. The caller raises the exception, which matters more than an error met here."""
        if self._given:
            return
        receiver = self.receiver
        with suppress(Exception):
            outcome = as_granted(outcome_after(error), self._arrivals.granted)
            if outcome is None:
                self._settle_now(None)
                receiver._connection.soon()
                return
            confirmed = self._begin(outcome, None)
            if confirmed is not None:
                confirmed.add_done_callback(lambda _: receiver.confirming.discard(self))

    def _not_confirmed(self, within: str) -> str:
        """Return the text for an outcome whose confirmation took too long."""
        receiver = self.receiver
        delay = receiver._connection.delay
        return f"{receiver.place}: the peer did not confirm the outcome {within}{delay}"

    def _not_written(self, within: str) -> str:
        return (
            f"{self.receiver.place}: the outcome was not written {within}: the peer does not read"
        )

    def on_discharged(self, outcome: Outcome | None) -> None:
        """Handle the end of the transaction in which it was given an outcome; None if that
        failed."""
        engine = self._engine
        if outcome is not None:
            if not engine.remote_settled:
                engine.settle(outcome)
        elif not self.settled:
            self._given = False
            engine.state = None
            self.receiver.restore(self)

    def _release_now(self) -> None:
        """Release a delivery that the user never received."""
        if not self._given and not self.settled:
            self._settle_now(as_granted(RELEASED, self._arrivals.granted))

    def _settle_now(self, outcome: Outcome | None) -> None:
        """Settle with an outcome; None stands for the default outcome of the source."""
        self._given = True
        self._engine.settle(outcome)
        self.receiver.retire(self)

    def lose(self, error: PeerError) -> None:
        """Handle the loss of the link before the sender has confirmed the outcome."""
        resolve(self._confirmed, error)

    def drop_outcome(self) -> None:
        """Drop the outcome: the connection over which the delivery came was lost."""
        self._gone = True
        self.receiver.on_outcome_dropped(self)
        resolve(self._confirmed)

    def decide(self) -> None:
        """Restore the outcome that an earlier process has given the delivery, and may have sent."""
        self._given = True
        self._told = True
        self._confirmed = asyncio.get_running_loop().create_future()

    async def confirmed(self) -> None:
        """Wait until the outcome that an earlier process has given is final."""
        if self._confirmed is not None:
            await asyncio.shield(self._confirmed)

    def on_listed(self) -> None:
        """Handle a new attach of the link, whose unsettled map states the outcome."""
        self._told = self._told or self._listed
        self._listed = self._given

    def on_settlement(self) -> None:
        """Handle a state or a settlement of the sender."""
        engine = self._engine
        if engine.remote_settled:
            if engine.id < 0:
                self._on_left_out()
            elif engine.resumed and not (self._given and _agree(engine)):
                self._take_back()
            else:
                resolve(self._confirmed)
            self.receiver.on_settled(self)
        elif is_outcome(engine.remote_state) and engine.link.usable:
            # The state with which the sender resumes a delivery is final (AMQP 1.0 §3.4.6). If the
            # sender has decided on an outcome by itself, it waits for our confirmation (§2.6.12).
            agreed = self._given and _agree(engine)
            if agreed and not engine.resumed:
                # The sender confirms our outcome, and settles next.
                return
            engine.settle(engine.remote_state)
            if agreed:
                resolve(self._confirmed)
            else:
                self._take_back()
            self.receiver.on_settled(self)
        elif engine.resumed and self._given and engine.link.usable:
            # The outcome waited for a delivery-id, which is known now.
            if not engine.second and is_outcome(engine.state):
                engine.settle(engine.state)
                resolve(self._confirmed)
            self._told = True
            if engine.settled:
                self.receiver.on_settled(self)

    def on_aborted(self) -> None:
        """Handle an abort by the sender."""
        self._take_back()
        self.receiver.on_settled(self)

    def _on_left_out(self) -> None:
        """Handle a resumed link whose unsettled map at the sender lacks the delivery: the sender
        has settled it (AMQP 1.0 §2.6.13), because it knows our outcome or without one."""
        link = self.receiver._engine
        attach = None if link is None else link.remote_attach
        if self._given and self._told and attach is not None and attach.unsettled is not None:
            resolve(self._confirmed)
        else:
            self._take_back()

    def _take_back(self) -> None:
        """Mark the delivery as taken back by the node."""
        self._gone = True
        self.receiver.retire(self)
        self.receiver.drop_queued(self)
        resolve(self._confirmed, lost(None))


def _agree(engine: IncomingDelivery) -> bool:
    """Return whether the sender has settled with the outcome that was given here."""
    state = engine.remote_state
    return not is_outcome(state) or type(state) is type(engine.state)


def lost(error: PeerError | None) -> PeerError:
    """Return the error of a delivery of an earlier link, which can no longer be settled."""
    if error is not None:
        return fresh(error)
    return ConnectionClosed("the connection over which the delivery came was lost")
