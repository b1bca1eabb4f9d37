"""Receivers: links on which messages arrive.

One module because a receiver is one object with one state: which messages are queued, which its
user holds, and the credit that follows from both.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import ref

from ferrymq.aio.arrivals import Arrivals
from ferrymq.aio.delivery import Delivery
from ferrymq.aio.inbox import Inbox
from ferrymq.aio.link import Link
from ferrymq.aio.opening import Iterated
from ferrymq.aio.outcomes import (
    FAILED,
    OUTCOMES,
    as_granted,
    is_outcome,
    outcome_after,
)
from ferrymq.aio.termini import (
    attach_properties,
    check_names,
    keeps_state,
    mode_lack,
    once_lack,
    receiver_source,
    settle_modes,
    source_for,
    source_lack,
    source_objection,
)
from ferrymq.aio.unseen import RepeatedWarning
from ferrymq.aio.waiting import deadline, resolve, running_loop
from ferrymq.arguments import OtherNames, names
from ferrymq.durations import Duration
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import AmqpError, LinkDetached, LocalProtocolError, PeerError, Scope
from ferrymq.options import ReceiverOptions
from ferrymq.unsettled import Unsettled
from ferrymq_types.messaging import (
    Accepted,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TerminusDurability,
)
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode

if TYPE_CHECKING:
    from ferrymq.aio.output_turn import OutputTurn
    from ferrymq.aio.session import Session
    from ferrymq.aio.transaction import Transaction
    from ferrymq_types.unions import Outcome

LOGGER: Final = logging.getLogger("ferrymq")


class Receiver(OtherNames, Iterated, Link[ReceiverLink]):
    """Link on which messages arrive. Made by `Connection.receiver` or `Session.receiver`.

    ``async for delivery in receiver`` ends when this side closes the receiver, and raises when the
    peer or the network ended it.

    The session keeps no reference to a receiver. When its user drops it, with the deliveries that
    came over it, it is collected and then closed, or detached if its terminus outlives the link.
    """

    held = False
    sends = False
    # Whether threads may take messages from the queue (`arrived`) without a call in the loop.
    shares_queue: ClassVar[bool] = True
    # The class of the messages that come.
    delivery_type: ClassVar[type[Delivery]] = Delivery
    _options: ReceiverOptions
    elsewhere: ClassVar[Mapping[str, str]] = names(
        ("send publish send_message", "a receiver receives: use connection.sender(address)"),
        ("get next_msg receive_message", "use receive(timeout=...)"),
        ("receive_messages fetch", "use receive_many(limit, timeout=...)"),
        ("consume subscribe iterator", "iterate over the receiver"),
        ("ack complete_message", "use accept() of the delivery"),
    )

    def __init__(self, session: Session, address: str | None, options: ReceiverOptions) -> None:
        super().__init__(session, options.name, options.timeout)
        check_names(options, session.connection.options)
        self._address = address
        self._options = options
        self._target = Target()
        self._source = receiver_source(address, options)
        # The source as this peer was asked for it.
        self._asked = self._source
        # The messages that have arrived, and what decides on the credit.
        self._arrivals = Arrivals(
            self._connection._loop,
            self._changed,
            0 if options.credit == "manual" else options.credit,
            options.renew == "settlement",
            options.mode == "copy",
            self._is_plain(),
            self.shares_queue,
        )
        # Deliveries that were dropped without an outcome, each with the number of its attachment,
        # and the warning about them.
        self._dropped: deque[tuple[IncomingDelivery, int]] = deque()
        self._drops: RepeatedWarning[str | None] | None = None
        # The warning about outcomes that were dropped.
        self._voids: RepeatedWarning[str | None] | None = None
        # In the blocking client other threads take from it at any time.
        self._queue: Final[deque[Delivery]] = self._arrivals.queue
        # How many calls wait for a message, and whose turn it is.
        self._receiving = 0
        self._turn = asyncio.Lock()
        self._draining: asyncio.Future[None] | None = None
        # Credit that the user has given while the link is down.
        self._owed = 0
        # Whether the credit was given in a transaction, with which it ends.
        self._acquires = False
        # The transaction that acquires messages.
        self._acquiring: Transaction | None = None
        # Whether this side ended the link.
        self.closed_here: bool = False
        # Deliveries whose outcome the sender has not confirmed yet.
        self.confirming: set[Delivery] = set()
        # Unsettled deliveries that survive the connection; None if the source does not keep them.
        self._inbox: Inbox | None = None
        if self._source.durable is TerminusDurability.UNSETTLED_STATE:
            self._arrivals.plain = False
            self._inbox = Inbox(self, options.unsettled)

    @classmethod
    def _is_plain(cls) -> bool:
        """Return whether messages and outcomes need no more than is done by `Arrivals`."""
        kind = cls.delivery_type
        return cls.on_delivery is Receiver.on_delivery and kind._begin is Delivery._begin

    def __del__(self) -> None:
        if self._known and self._failure is None and not self._connection.closed:
            what = f"the receiver {self.name!r} from {self._address!r} was dropped and not closed"
            self.dropped: bool = self._connection.left_behind(what, self._abandon)

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str | None:
        """The node messages come from; for a dynamic source, the name the peer gave it."""
        source = self.source
        return self._address if source is None or not self._options.dynamic else source.address

    @property
    def source(self) -> Source | None:
        """The source as the peer states it, with the filters it applies; None before it is
        attached.

        If the peer leaves out a requested filter, it does not apply it: then the link is not opened
        and `LinkDetached` is raised (AMQP 1.0 §3.5.3).
        """
        attach = None if self._engine is None else self._engine.remote_attach
        return None if attach is None else attach.source

    @property
    def gives_back(self) -> bool:
        """Whether this receiver of ``mode="copy"`` takes the messages and gives them back when the
        link ends, because the peer is not known to keep the messages of a browser.

        Then outcomes of deliveries are not sent, and other receivers do not get the messages
        meanwhile.
        """
        return self._arrivals.returns

    @property
    def queued(self) -> int:
        """How many messages have arrived and have not been taken."""
        return len(self._queue)

    @property
    def credit(self) -> int:
        """How many messages the peer may still send."""
        return 0 if self._engine is None else self._engine.credit

    def unsettled_deliveries(self) -> list[Unsettled]:
        """Return the deliveries that have arrived completely and are not settled on both sides,
        with the outcomes given.

        Stored and passed as `unsettled` to a receiver of the same name in another process, they are
        resumed there.
        """
        engine = self._engine
        if engine is None:
            return []
        found: dict[bytes, IncomingDelivery] = {}
        if engine.resumption is not None:
            found.update(engine.resumption.unsettled)
        found.update(engine.unsettled)
        for delivery in engine.session.incoming.unsettled.values():
            if delivery.link is engine:
                found[delivery.tag] = delivery
        return [_written_down(one) for one in found.values() if one.complete and not one.settled]

    async def resumed(self, *, timeout: Duration | None = None) -> dict[bytes, AmqpError | None]:
        """Wait until the outcomes of the deliveries passed as `unsettled` are final; return them by
        tag.

        None means that the outcome is final; an error means that the node has taken the delivery
        back.
        """
        inbox = self._inbox
        ends: dict[bytes, AmqpError | None] = {}
        async with deadline(timeout, self._not_confirmed):
            for delivery in [] if inbox is None else inbox.decided:
                try:
                    await delivery.confirmed()
                except AmqpError as error:
                    ends[delivery.tag] = error
                else:
                    ends[delivery.tag] = None
        return ends

    async def receive(self, *, timeout: Duration | None = None) -> Delivery:
        """Take the next message, waiting for it if need be.

        Raises `TimeoutError` when none comes in time, and `LinkDetached`, `SessionEnded` or
        `ConnectionClosed` when none will come.
        """
        if self._queue and not self._receiving and running_loop() is self._connection._loop:
            return self._take()
        return await self.wait_for_message(timeout)

    async def receive_many(self, limit: int, *, timeout: Duration | None = None) -> list[Delivery]:
        """Take up to `limit` messages: those that are there, or the next one when it comes.

        Raises as `receive` does.
        """
        if limit < 1:
            raise ValueError(f"limit {limit} is below 1")
        taken = [await self.receive(timeout=timeout)]
        while self._queue and len(taken) < limit:
            taken.append(self._take())
        return taken

    def add_credit(self, credit: int, *, transaction: Transaction | None = None) -> None:
        """Allow the peer to send `credit` more messages, for a receiver made with
        ``credit="manual"``.

        With a `transaction`, it acquires the messages that arrive until it is discharged: their
        outcomes belong to it without naming it, and a rollback makes the messages available again
        (AMQP 1.0 §4.4.3).
        """
        if credit < 0:
            raise ValueError(f"credit {credit} is negative")
        self._check()
        if transaction is not None:
            transaction.state_for(self)
            if self._acquiring is not transaction:
                if self._acquiring is not None:
                    self._acquiring.acquirers.discard(self)
                self._acquiring = transaction
                transaction.acquirers.add(self)
        self._acquires = self._acquiring is not None
        engine = self._engine
        if engine is None or not engine.usable:
            self._owed += credit
        else:
            engine.set_credit(engine.credit + credit, properties=self._flow_properties())
            self._connection.soon()

    async def drain(self, *, timeout: Duration | None = None) -> None:
        """Ask the peer to send its available messages at once and give back the other credit.

        Afterwards all of those messages are queued, none is in flight, and only `add_credit` gives
        credit (AMQP 1.0 §2.6.7). While the connection is being restored, waits for that.

        Raises `LocalProtocolError` if the peer is known not to answer.
        """
        peer = self._connection.peer
        if not peer.drains:
            raise LocalProtocolError(
                "amqp:not-implemented", f"{self.place}: {peer} does not answer a drain", Scope.LINK
            )
        async with deadline(timeout, self._not_drained):
            while self._drains():
                if self._draining is None:
                    await self._changed.wait()
                else:
                    await asyncio.shield(self._draining)

    def _drains(self) -> bool:
        """Ask for a drain if the link is attached; return whether there is credit to be given
        back."""
        self._check()
        self._arrivals.prefetch = 0
        engine = self._engine
        if engine is None or not engine.usable:
            return True
        if engine.credit == 0:
            return False
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_future()
            if self._acquiring is None:
                engine.drain_credit()
            else:
                engine.set_credit(engine.credit, drain=True, properties=self._flow_properties())
            self._connection.soon()
        return True

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        try:
            return await self.receive()
        except LinkDetached:
            if self.closed_here:
                raise StopAsyncIteration from None
            raise

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    @property
    def granted(self) -> list[str] | None:
        """The outcomes that the source grants; None for all outcomes."""
        return self._arrivals.granted

    @granted.setter
    def granted(self, outcomes: list[str] | None) -> None:
        self._arrivals.granted = outcomes

    async def wait_for_message(self, timeout: Duration | None) -> Delivery:
        """Take the next message when it is this call's turn; see `receive`."""
        self._connection.check_loop()
        if timeout is None:
            return await self._receive()
        async with deadline(timeout, self._no_message):
            return await self._receive()

    def arrived(self) -> Iterator[Delivery]:
        """Return an iterator that takes the messages that are queued, for any thread.

        It raises IndexError while none is queued. The caller marks what it takes as taken
        (`hand_out`). No other code runs between the taking and the end of `next`, so an
        exception from a signal loses no message.
        """
        return iter(self._queue.popleft, None) if self.shares_queue else iter(())

    def hand_out(self, taken: list[Delivery]) -> bool:
        """Mark messages that a thread has taken; return whether `renew` may have an effect."""
        return self._arrivals.hand_out(taken)

    def _no_message(self, within: str) -> str:
        """Return the text for a `receive` that took too long."""
        why = self._connection.delay
        if not why and not self._arrivals.prefetch and not self.credit:
            why = ": the receiver has no credit, and add_credit gives some"
        if (
            not why
            and self._arrivals.bounds
            and 0 < self._arrivals.prefetch <= self._arrivals.in_hand
        ):
            why = (
                f": all {self._arrivals.prefetch} credits are held by deliveries without an "
                "outcome: settle them, or raise credit"
            )
        return f"no message came from {self.place} {within}{why}"

    def _not_drained(self, within: str) -> str:
        return f"{self.place}: the peer did not answer the drain {within}{self._connection.delay}"

    def _not_confirmed(self, within: str) -> str:
        delay = self._connection.delay
        return f"{self.place}: the peer did not confirm every outcome {within}{delay}"

    def _abandon(self) -> None:
        """Close or detach the link whose user has dropped it."""
        engine = self._engine
        if engine is None or self._failure is not None or self._connection.closed:
            return
        # The weak references to this object are dead.
        engine.context = self
        leaving = self._begin_leave(not self._lasts, None)
        leaving.add_done_callback(self._left)

    def _use(self, engine: ReceiverLink, turn: OutputTurn) -> None:
        self._arrivals.begin(engine, turn)

    def _create(self, session: EngineSession) -> ReceiverLink:
        options = self._options
        inbox = self._inbox
        if inbox is not None and not self.resumes:
            inbox.forgo(session, self.name)
            self._say_unresumed("the node delivers unsettled messages again")
        earlier = self._engine
        if earlier is not None and not self._acquires:
            # Deliveries that are still to be resumed have credit of their own.
            resumption = earlier.resumption
            resumed = 0 if resumption is None else len(resumption.unsettled)
            self._owed += max(0, earlier.credit - resumed)
        snd_settle_mode, rcv_settle_mode = self._settle_modes()
        self._asked = source_for(self._connection.peer, self._source)
        return session.attach_receiver(
            self.name,
            source=self._asked,
            target=self._target,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            max_message_size=options.max_message_size,
            properties=attach_properties(self._source, options.properties),
            desired_capabilities=options.desired_capabilities,
            unsettled=None if inbox is None else inbox.to_resume(session, self.name, self._engine),
        )

    def _refused(self) -> bool:
        attach = None if self._engine is None else self._engine.remote_attach
        return attach is not None and attach.source is None

    def _lack(self) -> str | None:
        lack = source_lack(self._asked, self.source, self._arrivals.returns)
        attach = None if self._engine is None else self._engine.remote_attach
        if lack is None and self._options.exactly_once:
            # The receiver decides which side settles first.
            lack = self._no_resuming or once_lack(attach, self.source, sends=False)
        if lack is None:
            lack = mode_lack(self._settle_modes()[0], attach, sends=False)
        return lack

    def _objection(self) -> str | None:
        peer = self._connection.peer
        objection = source_objection(peer, source_for(peer, self._source))
        returned = self._options.mode == "copy" and not peer.keeps_copies
        if returned and objection is None and not self._arrivals.returns:
            what = f": {peer.returns}" if peer.returns else ""
            LOGGER.warning(
                "%s: %s does not keep the messages of a browser, so they are taken and given back"
                " when the link ends%s",
                self.place,
                peer,
                what,
            )
        self._arrivals.returns = returned
        return objection

    def _settle_modes(self) -> tuple[SenderSettleMode, ReceiverSettleMode]:
        """Return the modes to attach with. What is to be given back must come unsettled."""
        if self._arrivals.returns:
            return SenderSettleMode.UNSETTLED, ReceiverSettleMode.FIRST
        return settle_modes(self._options)

    @property
    def _asks_to_resume(self) -> bool:
        return self._engine is not None and self._engine.resumption is not None

    @property
    def _lasts(self) -> bool:
        return self._inbox is not None or keeps_state(self._source)

    @property
    def _partial(self) -> bool:
        return self._inbox is not None and self._inbox.partial

    def _before_close(self) -> None:
        self.closed_here = True
        self._give_back_dropped()
        self.release_queued()

    def release_queued(self) -> None:
        """Release the messages that the user did not take, and those that a browser gives back,
        before this side ends the link."""
        link = self._engine
        if self._arrivals.returns and link is not None:
            for engine in list(link.session.incoming.unsettled.values()):
                if engine.link is link and engine.complete:
                    link.set_aside(engine)
            link.release_set_aside()
        arrived = _emptied(self._queue)
        for delivery in arrived:
            delivery._release_now()
        self._queue.extend(one for one in arrived if one._engine.remote_settled)

    def give_back(self, error: BaseException) -> None:
        """Give back the messages that were taken and have no outcome, because an exception left the
        block of the receiver.

        A link that keeps unsettled deliveries at the peer keeps these as well.
        """
        self._give_back_dropped()
        link = self._engine
        if link is None or not link.usable or self._keeps or self._arrivals.copies:
            return
        outcome = self._unless_default(outcome_after(error))
        queued = {id(delivery._engine) for delivery in list(self._queue)}
        for engine in list(link.session.incoming.unsettled.values()):
            taken = engine.link is link and engine.complete and id(engine) not in queued
            if taken and engine.state is None and engine.remote_state is None:
                engine.settle(outcome)
                reference = engine.context
                delivery = reference() if isinstance(reference, ref) else None
                if isinstance(delivery, Delivery):
                    delivery._gone = True
                    self.retire(delivery)
        self._connection.soon()

    def on_dropped(self, delivery: Delivery) -> None:
        """Handle the finalizer of a delivery that was taken and has no outcome, in any thread."""
        live = delivery._hand == self._arrivals.attachment and self._failure is None
        if live and not self._keeps:
            self._dropped.append((delivery._engine, delivery._hand))
            self._connection.call_soon(self._give_back_dropped)

    def _give_back_dropped(self) -> None:
        """Give back the dropped deliveries as failed."""
        dropped = self._dropped
        if not dropped:
            return
        while dropped:
            engine, hand = dropped.popleft()
            if hand == self._arrivals.attachment:
                self._arrivals.in_hand -= 1
            if not self.has_live(engine) or engine.settled or engine.remote_settled:
                continue
            if is_outcome(engine.remote_state):
                # The sender has decided on the outcome.
                engine.settle(engine.remote_state)
                continue
            if isinstance(engine.remote_state, TransactionalState):
                # The end of the transaction that acquired the message decides.
                continue
            engine.settle(self._unless_default(FAILED))
            if self._drops is None:
                self._drops = RepeatedWarning(self._connection.call_soon, _say_dropped)
            self._drops.add(self.address)
        self.renew()
        self._connection.soon()

    def _unless_default(self, outcome: Outcome) -> Outcome | None:
        """Return the outcome of a message to which the user gave none; None stands for the default
        outcome of the source, if the user has chosen one."""
        if self._options.default_outcome is not None:
            return None
        return as_granted(outcome, self._arrivals.granted)

    @property
    def _keeps(self) -> bool:
        """Return whether the peer keeps unsettled deliveries when the link is lost."""
        return self._inbox is not None and self._inbox.keeping

    def _end(self, error: PeerError) -> None:
        super()._end(error)
        self._arrivals.over = True
        for warning in (self._drops, self._voids):
            if warning is not None:
                warning.flush()

    def _lost(self, error: PeerError) -> None:
        inbox = self._inbox
        if inbox is None or not inbox.keeping or self._failure is not None:
            self._arrivals.attachment += 1
            self._arrivals.in_hand = 0
            # Settled messages are ours already; the node delivers the others again.
            arrived = _emptied(self._queue)
            kept = [delivery for delivery in arrived if delivery._engine.remote_settled]
            self._queue.extend(kept)
            if not self._acquires:
                # The user did not receive these messages, and waits for as many.
                self._owed += len(arrived) - len(kept)
            for delivery in list(self.confirming):
                if self.redelivers:
                    # The node has the outcome, or delivers the message again.
                    delivery.drop_outcome()
                else:
                    delivery.lose(error)
            if inbox is not None:
                for delivery in inbox.decided:
                    delivery.lose(error)
        # A drain continues when the link is restored.
        resolve(self._draining, None if self._failure is None else error)
        self._draining = None

    def _restored(self) -> None:
        engine = self._engine
        inbox = self._inbox
        if engine is None:
            return
        source = self.source
        outcomes = None if source is None else source.outcomes
        if (
            source is not None
            and source.distribution_mode is not None
            and not self._arrivals.returns
        ):
            self._arrivals.copies = source.distribution_mode == "copy"
        unknown = self._connection.peer.unknown_outcomes
        if unknown:
            outcomes = [outcome for outcome in outcomes or OUTCOMES if outcome not in unknown]
        self.granted = None if not outcomes or set(outcomes) >= set(OUTCOMES) else outcomes
        if self._arrivals.prefetch:
            limit, queued = self._arrivals.limit()
            credit = max(0, limit - queued)
        else:
            # Some credit may have been given since the peer's attach came.
            credit = engine.credit + self._owed
        self._owed = 0
        self._acquires = self._acquires and self._acquiring is not None
        if inbox is not None:
            # Resumed deliveries use credit as well.
            credit += inbox.begin(engine, keeps_state(self.source) and self.resumes)
        if credit:
            engine.set_credit(credit, properties=self._flow_properties())
            self._connection.soon()
        self._changed.wake()
        self._end_round()

    def _end_round(self) -> None:
        """Attach again if the link was resumed with incomplete maps and the round is over."""
        engine = self._engine
        inbox = self._inbox
        if inbox is None or engine is None or self._round is not None:
            return
        if inbox.round_over(engine):
            if inbox.count_round():
                self._begin_round()
            else:
                engine.detach(closed=False)
                self._end(
                    LinkDetached(f"{self.place}: the link cannot be resumed: its maps stay partial")
                )

    def on_settled(self, delivery: Delivery) -> None:
        """Forget a delivery that is settled on both sides."""
        self.retire(delivery)
        inbox = self._inbox
        if inbox is not None and inbox.partial:
            inbox.on_settled(delivery)
            self._end_round()

    def on_given(self, delivery: Delivery) -> None:
        """Queue a delivery that an earlier process has received without giving it an outcome."""
        self._arrivals.add(delivery)

    def drop_queued(self, delivery: Delivery) -> None:
        """Drop a queued delivery that the node has taken back."""
        try:
            self._queue.remove(delivery)
        except ValueError:
            pass

    def queue_again(self, deliveries: list[Delivery]) -> None:
        """Queue deliveries that were taken but that the caller did not receive, from any thread:
        they come next again. The loop has to call `check_queued_again` afterwards."""
        for delivery in reversed(deliveries):
            delivery._taken = False
            self._queue.appendleft(delivery)

    def check_queued_again(self, deliveries: list[Delivery]) -> None:
        """Drop those of the deliveries queued again that the node delivers again."""
        for delivery in deliveries:
            engine = delivery._engine
            keeps = self._keeps and not delivery._gone
            if not (engine.remote_settled or keeps or self.has_live(engine)):
                self.drop_queued(delivery)
        self._changed.wake()

    def put_back(self, deliveries: list[Delivery]) -> None:
        """Put back deliveries that were taken but that the caller did not receive: they come next
        again. Those that the node delivers again are dropped."""
        self.queue_again(deliveries)
        self.check_queued_again(deliveries)

    def _flow_properties(self) -> dict[str, object] | None:
        acquiring = self._acquiring
        return None if acquiring is None else {"txn-id": acquiring.id}

    def stop_acquiring(self, transaction: Transaction, committed: bool) -> None:
        """Stop acquiring in a transaction that is over; after a rollback the messages are not
        ours."""
        if self._acquiring is transaction:
            self._acquiring = None
            engine = self._engine
            if engine is not None and engine.usable and engine.credit:
                # A transaction that was not discharged leaves its credit, which now belongs to
                # none.
                engine.set_credit(0)
        if not committed:
            arrived = _emptied(self._queue)
            self._queue.extend(one for one in arrived if one.transaction_id != transaction.id)

    def holds(self, engine: IncomingDelivery) -> bool:
        """Return whether the delivery can still be given an outcome: it came over this attachment,
        or the peer keeps it until the link is resumed."""
        return self._failure is None and (self._keeps or self.has_live(engine))

    @property
    def redelivers(self) -> bool:
        """Whether the user expects messages at least once: then the outcome of a delivery whose
        connection was lost is dropped, because the node delivers the message again."""
        recovery = self._connection.recovery
        return (
            recovery is not None
            and recovery.policy.resend
            and self._failure is None
            and not self._options.exactly_once
        )

    def on_outcome_dropped(self, delivery: Delivery) -> None:
        """Forget a delivery whose outcome was dropped, and warn if that has an effect."""
        self.retire(delivery)
        if not self._arrivals.copies:
            if self._voids is None:
                self._voids = RepeatedWarning(self._connection.call_soon, _say_void)
            self._voids.add(self.address)

    def has_live(self, engine: IncomingDelivery) -> bool:
        """Return whether the delivery belongs to the current attachment, so that frames can name
        it."""
        return self._arrivals.has_live(engine)

    async def _receive(self) -> Delivery:
        self._receiving += 1
        try:
            async with self._turn:
                while True:
                    try:
                        return self._take()
                    except IndexError:
                        # The queue is empty; a thread may have taken what woke this call.
                        self._check()
                        self.renew()
                    await self._changed.wait()
        finally:
            self._receiving -= 1

    def _take(self) -> Delivery:
        delivery: Delivery = self._arrivals.take()
        return delivery

    def renew(self) -> None:
        """Give credit if enough is free: see `Arrivals.renew`."""
        self._arrivals.renew()

    def retire(self, delivery: Delivery) -> None:
        """Give the credit of a delivery again that has its outcome, or was taken back."""
        self._arrivals.retire(delivery)

    def restore(self, delivery: Delivery) -> None:
        """Count a delivery again whose outcome was undone with a transaction."""
        if not self._arrivals.copies and (self._keeps or self.has_live(delivery._engine)):
            delivery._hand = self._arrivals.attachment
            self._arrivals.in_hand += 1

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_delivery(self, engine: IncomingDelivery) -> None:
        """Queue a message that arrived."""
        if self._failure is not None:
            return
        delivery = self.delivery_type(self, engine)
        engine.context = ref(delivery)
        self._arrivals.add(delivery)
        self._changed.wake()

    def on_drained(self) -> None:
        """Handle the end of a drain."""
        resolve(self._draining)
        self._draining = None


def _emptied(queue: deque[Delivery]) -> list[Delivery]:
    """Take all deliveries of a queue from which other threads may take, too."""
    taken: list[Delivery] = []
    try:
        while True:
            taken.append(queue.popleft())
    except IndexError:
        return taken


def _written_down(delivery: IncomingDelivery) -> Unsettled:
    state = delivery.state
    outcome = state if isinstance(state, Accepted | Rejected | Released | Modified) else None
    return Unsettled(delivery.tag, delivery.payload, outcome, delivery.message_format)


def _say_dropped(count: int, address: str | None) -> str:
    what = f"{count} deliveries" if count > 1 else "1 delivery"
    return (
        f"{what} from {address!r} dropped without an outcome, given back as failed: accept each"
        " delivery, or use 'async with delivery'"
    )


def _say_void(count: int, address: str | None) -> str:
    what = f"{count} outcomes" if count > 1 else "1 outcome"
    return (
        f"{what} of deliveries from {address!r} dropped: the connection they came over was lost,"
        " and the node delivers the messages again"
    )
