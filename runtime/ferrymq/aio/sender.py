"""Senders: links on which messages are sent.

One module because a sender is one object with one state: what it sends, resends and resumes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from ferrymq.aio.in_flight import InFlight
from ferrymq.aio.link import Link
from ferrymq.aio.outbox import Outbox, SentDelivery
from ferrymq.aio.outcomes import error_of, is_outcome
from ferrymq.aio.resending import Resending
from ferrymq.aio.termini import (
    ANONYMOUS_RELAY,
    attach_properties,
    check_names,
    keeps_state,
    mode_lack,
    once_lack,
    sender_target,
    settle_modes,
    target_lack,
)
from ferrymq.aio.unseen import RepeatedWarning, SentFuture
from ferrymq.aio.waiting import all_accepted, deadline, give_up, resolve, running_loop
from ferrymq.arguments import OtherNames, names
from ferrymq.batches import BATCH_BYTES, BATCH_FORMAT, BATCHES, BatchBuilder
from ferrymq.durations import Duration
from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import (
    AmqpError,
    ConnectionClosed,
    DeliveryError,
    LinkDetached,
    LocalProtocolError,
    PeerError,
    Scope,
)
from ferrymq.options import SenderOptions
from ferrymq.sendable import Sendable, check_messages, to_message
from ferrymq.unsettled import Unsettled
from ferrymq_types.messaging import Source, Target, TerminusDurability
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.output_turn import OutputTurn
    from ferrymq.aio.session import Session
    from ferrymq.aio.transaction import Transaction
    from ferrymq_types.unions import DeliveryState

LOGGER: Final = logging.getLogger("ferrymq")
# Bytes of a frame that a batch leaves to the transfer.
_TRANSFER_BYTES: Final = 256


_Waiting: TypeAlias = tuple[
    asyncio.Future[None], bytes | None, bool, "Transaction | None", bytes | None, bool
]
"""Call that waits for its turn to send: a future, and the payload, `settled`, the transaction, the
tag and `hold` of the message.

With a payload, the message is sent when it is its turn, and the future is done with the outcome:
the caller is woken only once. Without, which is a call of `_wait`, the future is done when it is
its turn. There may be thousands, and a plain tuple is made in no time.
"""


class Sender(OtherNames, Link[SenderLink]):
    """Link on which messages are sent. Made by `Connection.sender` or `Session.sender`.

    `resends` says whether the policy for reconnecting applies, by which messages are sent again.
    """

    sends = True
    resends: ClassVar[bool] = True
    # Whether each message has a span, for which it has to be there when it is sent.
    traces: ClassVar[bool] = False
    _options: SenderOptions
    elsewhere: ClassVar[Mapping[str, str]] = names(
        ("receive recv get consume", "a sender sends: use connection.receiver(address)"),
        ("publish send_message send_messages basic_publish", "use send or send_many"),
    )

    def __init__(self, session: Session, address: str | None, options: SenderOptions) -> None:
        super().__init__(session, options.name, options.timeout)
        check_names(options, session.connection.options)
        self._address = address
        self._options = options
        self._source = Source()
        self._target = sender_target(address, options)
        # Unsettled deliveries that survive the connection; None if the target does not keep them.
        self._outbox: Outbox | None = None
        if self._target.durable is TerminusDurability.UNSETTLED_STATE:
            self._outbox = Outbox(options.unsettled)
        # Messages that are sent again after a loss; None if none are.
        self._resending: Resending | None = None
        recovery = self._connection.recovery
        if self.resends and not options.exactly_once:
            if recovery is not None and recovery.policy.resend:
                self._resending = Resending()
        # Sends are in turn, so that none overtakes an earlier one that waits for credit: the calls
        # that wait, in order, and whether one of `_wait` was let go on and has not run yet.
        self._line: deque[_Waiting] = deque()
        self._going = False
        # Number of messages that waiting calls will send, as far as it is known.
        self._available = 0
        # The unsettled deliveries, and how many calls are in the line or were let go on.
        plain = self._outbox is None and type(self).on_outcome is Sender.on_outcome
        self._in_flight = InFlight(self._connection._loop, plain)
        if self._resending is not None:
            resending = self._resending
            self._in_flight.keep_payloads(resending.in_flight, resending.tags, resending.todo)
        # Messages sent settled that the transport does not have completely yet, oldest first.
        self._unsent: deque[tuple[OutgoingDelivery, asyncio.Future[None]]] = deque()
        # Whether the peer has asked for a drain.
        self._drain_wanted = False
        # The warning about errors of `send_nowait` that nobody looked at.
        self._unseen: RepeatedWarning[BaseException] | None = None

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str | None:
        """The node messages go to; for a dynamic target, the name the peer gave it."""
        target = self.target
        return self._address if target is None or not self._options.dynamic else target.address

    @property
    def target(self) -> Target | None:
        """The target as the peer states it (AMQP 1.0 §3.5.4); None before it is attached."""
        attach = None if self._engine is None else self._engine.remote_attach
        target = None if attach is None else attach.target
        return target if isinstance(target, Target) else None

    @property
    def max_message_size(self) -> int | None:
        """The largest message the peer takes, in bytes; None means any (AMQP 1.0 §2.7.3)."""
        size = 0 if self._engine is None else self._engine.remote_max_message_size
        return size or None

    @property
    def credit(self) -> int:
        """How many messages the peer allows now."""
        return 0 if self._engine is None else self._engine.credit

    @property
    def unsettled(self) -> int:
        """Number of messages that were sent and have no outcome yet."""
        return len(self._in_flight.deliveries) + self._again

    def unsettled_deliveries(self) -> list[Unsettled]:
        """Return the deliveries of a durable link that are not settled finally, in the order of
        sending.

        Stored and passed as `unsettled` to a sender of the same name in another process, they are
        resumed there. The call still works when the link has ended.
        """
        return [] if self._outbox is None else self._outbox.unsettled()

    async def resumed(self, *, timeout: Duration | None = None) -> dict[bytes, AmqpError | None]:
        """Wait for the outcomes of the deliveries passed as `unsettled`, and return them by tag.

        None means accepted; an error is the one that `send` would have raised. Each delivery stays
        unsettled until `settle` is called for it.
        """
        outbox = self._outbox
        ends: dict[bytes, AmqpError | None] = {}
        async with deadline(timeout, self._no_outcomes):
            for sent in [] if outbox is None else outbox.given:
                try:
                    await asyncio.shield(sent.future)
                except AmqpError as error:
                    ends[sent.tag] = error
                else:
                    ends[sent.tag] = None
        return ends

    def settle(self, delivery_tag: bytes) -> None:
        """Settle a delivery sent with `hold`, or passed as `unsettled`, whose outcome the
        application has stored: the peer may forget it too, and the tag is free (AMQP 1.0 §2.6.12).

        Does nothing for a delivery passed as `unsettled` that the peer has forgotten. Raises
        `LocalProtocolError` if there is no such delivery, or if it has no outcome yet.
        """
        outbox = self._outbox
        self._connection.check_loop()
        if outbox is not None and outbox.was_forgotten(delivery_tag):
            return
        sent = None if outbox is None else outbox.entries.get(delivery_tag)
        if outbox is None or sent is None or not sent.future.done():
            raise LocalProtocolError(
                "amqp:illegal-state",
                f"{self.place}: there is no delivery {delivery_tag!r} with an outcome",
                Scope.LINK,
            )
        outbox.settle(self._engine, sent)
        if outbox.busy:
            self._connection.polled[self] = None
        self._connection.soon()

    async def send(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
        delivery_tag: bytes | None = None,
        hold: bool = False,
    ) -> None:
        """Send one message and wait until the peer has accepted it.

        Bytes, a str, dict or list become a message with that body.

        In a `transaction`, wait until the peer says that it will accept the message when the
        transaction is committed (AMQP 1.0 §4.4.1).

        `delivery_tag` names the delivery: up to 32 bytes, unique among unsettled deliveries; by
        default it is generated. With `hold`, on a link to a durable target, the peer keeps the
        delivery until `settle` is called, so that the application can store the outcome first.

        Waits for credit first. A message sent `settled` has no outcome: the call returns when the
        transport has all of it. When the call is cancelled, or raises `TimeoutError`, while it
        waits for the outcome, the message may or may not arrive.

        Raises `DeliveryRejected`, `DeliveryReleased` or `DeliveryModified` for the other outcomes;
        `LinkDetached`, `SessionEnded` or `ConnectionClosed` when no outcome will come
        (`ReconnectPolicy` says what becomes of a send when the connection is lost); `EncodeError`
        for a value that has no encoding; `LocalProtocolError` when the message is larger than the
        peer accepts; `TypeError` for anything that is no message.
        """
        # Thousands of calls may wait: the objects of a message would cost memory and time in
        # garbage collections, so none of them keeps its message.
        if (
            timeout is None
            and transaction is None
            and delivery_tag is None
            and not (settled or hold)
        ):
            future = self._in_flight.send(message)
            if future is not None:
                del message
                await future
                return
        payload = to_message(message, "send").encode()
        del message
        if timeout is None:
            if not self._in_flight.waiting and self._can_send():
                if transaction is None and delivery_tag is None and not hold:
                    await self._transfer(payload, settled, None)[1]
                else:
                    await self._send(payload, settled, transaction, delivery_tag, hold)
                return
            loop = self._connection._loop
            if self._failure is not None or running_loop() is not loop:
                self._check()
            future = loop.create_future()
            call = (future, payload, settled, transaction, delivery_tag, hold)
            self._line.append(call)
            self._begin_wait()
            try:
                await future
            except BaseException:
                self._leave_line(call)
                raise
            return
        async with deadline(timeout, self._not_ready) as limit:
            if self._in_flight.waiting or not self._can_send():
                await self._wait()
            limit.what = self._not_written if settled else self._no_outcome
            await self._send(payload, settled, transaction, delivery_tag, hold)

    async def ready(self, *, timeout: Duration | None = None) -> None:
        """Wait until `send_nowait` may be called: the sender has credit and room for writing."""
        async with deadline(timeout, self._not_ready):
            await self._wait()

    def send_nowait(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        transaction: Transaction | None = None,
        delivery_tag: bytes | None = None,
        hold: bool = False,
    ) -> asyncio.Future[None]:
        """Send one message now; the future ends with its outcome as `send` would.

        For high throughput, await `ready`, send, and await the futures later. Cancelling a future
        does not cancel the message. Errors of futures that are dropped without a look at them are
        counted in the log.

        Raises `LocalProtocolError` when there is no credit or the message is larger than the peer
        accepts, `EncodeError`, `TypeError` as `send`, and the error that ended the link.
        """
        self._connection.check_loop()
        payload = to_message(message, "send_nowait").encode()
        future = SentFuture(loop=self._connection._loop)
        future.warning = self._unseen or self._watch()
        return self._send(payload, settled, transaction, delivery_tag, hold, future=future)

    async def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send messages one after the other as credit allows, and wait for all their outcomes.

        Raises an `ExceptionGroup` of `DeliveryError`, each with a note that tells which message,
        when some were not accepted, and else as `send` does.
        """
        check_messages(messages, "send_many")
        futures: list[asyncio.Future[None]] = []
        try:
            async with deadline(timeout, self._not_ready) as limit:
                for message in messages:
                    if self._in_flight.waiting or not self._can_send():
                        left = len(messages) - len(futures) if isinstance(messages, Sized) else 1
                        await self._wait(left)
                    payload = to_message(message, "send_many").encode()
                    futures.append(self._send(payload, settled, transaction, None, False))
                limit.what = self._not_written if settled else self._no_outcomes
                await all_accepted(futures)
        finally:
            give_up(futures)

    async def send_encoded(
        self,
        payloads: Sequence[bytes],
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> dict[int, DeliveryError]:
        """Send many encoded messages, and wait for the outcomes.

        Returns the errors of the messages that were not accepted, by their index in `payloads`.
        With `settled` only the last message has an outcome; if it is accepted in a `transaction`,
        the peer has accepted all messages before it. It is rejected in a transaction that can no
        longer be committed; the broker of ferrymq then names, in the info of the error, the first
        ``message`` of the transaction that it refused, counted from 0. If the link has asked for
        batches (`properties` with ``ferrymq:batches``) and the broker has granted them, messages of
        a transaction that are sent settled share transfers.

        Raises as `send` does, except for outcomes.
        """
        self._connection.check_loop()
        if not payloads:
            return {}
        last = len(payloads) - 1
        errors: dict[int, DeliveryError] = {}
        futures: list[asyncio.Future[None]] = []
        sent = 0
        try:
            async with deadline(timeout, self._not_ready) as limit:
                while sent <= last:
                    if self._in_flight.waiting or not self._can_send():
                        await self._wait(len(payloads) - sent)
                    if settled and sent < last and not self._never_settled():
                        sent = self._send_settled(payloads, sent, last, transaction)
                    else:
                        # The last one of a batch that is sent settled says that all have arrived:
                        # sent again alone, it would be wrong.
                        futures.append(
                            self._send(
                                payloads[sent], False, transaction, None, False, again=not settled
                            )
                        )
                        sent += 1
                limit.what = self._no_outcomes
                for number, future in enumerate(futures, sent - len(futures)):
                    try:
                        await future
                    except DeliveryError as error:
                        errors[number] = error
        finally:
            give_up(futures)
        return errors

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    def _not_ready(self, within: str) -> str:
        """Return the text for a send that waited too long for credit, or for room for writing."""
        engine = self._engine
        delay = self._connection.delay
        if not delay and engine is not None and engine.usable and engine.credit:
            return f"no message could be written to {self.place} {within}: the peer does not read"
        return f"no credit from {self.place} {within}{delay}"

    def _not_written(self, within: str) -> str:
        return f"the message to {self.place} was not written {within}{self._connection.delay}"

    def _no_outcome(self, within: str) -> str:
        """Return the text for a message that was sent, and whose outcome took too long."""
        return (
            f"the outcome of the message to {self.place} did not come {within}"
            f"{self._connection.delay}"
        )

    def _no_outcomes(self, within: str) -> str:
        return (
            f"the outcomes of {self.unsettled} messages to {self.place} did not come {within}"
            f"{self._connection.delay}"
        )

    def _watch(self) -> RepeatedWarning[BaseException]:
        """Make the warning about errors of `send_nowait` that nobody looked at."""
        address = self.address

        def say(count: int, first: BaseException) -> str:
            what = f"{count} messages" if count > 1 else "1 message"
            return (
                f"{what} to {address!r} not accepted, and nobody looked at the future of"
                f" send_nowait; the first: {type(first).__name__}: {first}"
            )

        self._unseen = RepeatedWarning(self._connection.call_soon, say)
        return self._unseen

    def _end(self, error: PeerError) -> None:
        super()._end(error)
        self._in_flight.end()
        if self._unseen is not None:
            self._unseen.flush()

    def _never_settled(self) -> bool:
        return self._engine is not None and self._engine.never_settled

    def _send_settled(
        self, payloads: Sequence[bytes], first: int, end: int, transaction: Transaction | None
    ) -> int:
        """Send from `first` on, before `end`, as far as credit and the transport allow; return the
        position reached."""
        engine = self._engine
        if engine is None:
            raise AssertionError("a sender is attached before it is handed out")
        state = None if transaction is None else transaction.state_for(self)
        transport = self._connection.transport
        if state is not None and self.properties.get(BATCHES) is True:
            return self._send_batches(list(payloads), first, end, state)
        end = min(end, first + engine.credit)
        number = first
        while number < end and engine.parked == 0 and not transport.paused:
            engine.send(payloads[number], settled=True, state=state)
            number += 1
            transport.write_soon()
        return number

    def _send_batches(
        self, payloads: list[bytes], first: int, end: int, state: DeliveryState
    ) -> int:
        """As `_send_settled`, many messages in a transfer."""
        engine = self._engine
        assert engine is not None
        transport = self._connection.transport
        limit = min(BATCH_BYTES, engine.session.connection.remote_max_frame_size) - _TRANSFER_BYTES
        if engine.remote_max_message_size:
            limit = min(limit, engine.remote_max_message_size)
        builder = BatchBuilder(limit)
        number = first
        while number < end and engine.credit > 0 and engine.parked == 0 and not transport.paused:
            after = builder.end_of(payloads, number, end)
            if after == number + 1:
                engine.send(payloads[number], settled=True, state=state)
            else:
                batch = builder.build(payloads, number, after)
                engine.send(batch, settled=True, state=state, message_format=BATCH_FORMAT)
            number = after
            transport.write_soon()
        return number

    def _use(self, engine: SenderLink, turn: OutputTurn) -> None:
        self._in_flight.begin(engine, turn)

    def _create(self, session: EngineSession) -> SenderLink:
        options = self._options
        target = self._target
        if target.address is None and not target.dynamic:
            # A client may use an extension only if the peer offers it (AMQP 1.0 §2.7.1).
            if ANONYMOUS_RELAY not in self._connection.remote_offered_capabilities:
                error = LinkDetached(
                    f"{self.place}: the peer offers no ANONYMOUS-RELAY: give an address"
                )
                self._end(error)
                raise error
        outbox = self._outbox
        if outbox is not None and not self.resumes:
            outbox.forgo()
            again = self._resending is not None
            self._say_unresumed(f"what is in doubt then {'is sent again' if again else 'fails'}")
        earlier = self._engine
        snd_settle_mode, rcv_settle_mode = settle_modes(options)
        engine = session.attach_sender(
            self.name,
            source=self._source,
            target=target,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            properties=attach_properties(target, options.properties),
            desired_capabilities=options.desired_capabilities,
            unsettled=None if outbox is None else outbox.to_resume(session, self.name),
        )
        engine.count_available = self._count_available
        if outbox is not None and earlier is not None:
            engine.continue_tags(earlier)
        return engine

    def _refused(self) -> bool:
        attach = None if self._engine is None else self._engine.remote_attach
        return attach is not None and attach.target is None

    @property
    def in_flight(self) -> bool:
        """Whether messages were sent that have no outcome yet."""
        return bool(self._in_flight.deliveries)

    @property
    def _asks_to_resume(self) -> bool:
        return self._engine is not None and self._engine.resumption is not None

    def _lack(self) -> str | None:
        attach = None if self._engine is None else self._engine.remote_attach
        lack = target_lack(self._target, None if attach is None else attach.target)
        if lack is None and self._options.exactly_once:
            lack = self._no_resuming or once_lack(attach, self.target)
        if lack is None:
            lack = mode_lack(settle_modes(self._options)[0], attach, sends=True)
        return lack

    @property
    def _lasts(self) -> bool:
        return self._outbox is not None or keeps_state(self._target)

    @property
    def _partial(self) -> bool:
        return self._outbox is not None and self._outbox.partial

    def _lost(self, error: PeerError) -> None:
        self._drain_wanted = False
        if self._failure is not None:
            while self._line:
                call = self._line.popleft()
                resolve(call[0], error)
                if call[1] is not None:
                    self._end_wait()
        if not self._in_flight.waiting:
            # Calls that wait for credit wait for that of the next attachment.
            self._connection.polled.pop(self, None)
        unsettled, self._in_flight.deliveries = self._in_flight.deliveries, set()
        outbox = self._outbox
        resending = self._resending
        if outbox is not None:
            outbox.suspend()
            if self._failure is not None:
                outbox.fail(error)
            elif outbox.keeping:
                # These deliveries are resumed, except those of transactions, which have ended.
                self._in_flight.deliveries = {d for d in unsettled if outbox.has(d)}
                unsettled -= self._in_flight.deliveries
            elif resending is not None:
                unsettled -= resending.take_over(outbox)
        if resending is not None:
            if self._failure is None:
                unsettled -= resending.lose()
            else:
                resending.fail(error)
        for delivery in unsettled:
            future = delivery.context
            if isinstance(future, asyncio.Future):
                # The engine keeps the delivery; it must not keep a future that was dropped.
                delivery.context = None
                resolve(future, error)
        while self._unsent:
            resolve(self._unsent.popleft()[1], error)

    async def _before_leave(self) -> None:
        if self._engine is not None and self._engine.parked > 0:
            # Messages sent settled must be handed to the transport, as their callers expect.
            await self._connection.hand_over()

    def _restored(self) -> None:
        outbox = self._outbox
        engine = self._engine
        if outbox is not None and engine is not None:
            keeps = keeps_state(self.target) and self.resumes
            if not keeps:
                outbox.forgo()
            if not keeps or not outbox.begin(engine):
                # The peer no longer has the target, nor the deliveries that had arrived there.
                if self._resending is not None:
                    self._resending.take_over(outbox)
                outbox.fail(
                    ConnectionClosed("the peer has forgotten what had arrived over the link")
                )
                outbox.entries.clear()
            self._in_flight.deliveries = outbox.undecided()
            if outbox.busy:
                self._connection.polled[self] = None
                self._resume(engine, outbox)
        if engine is not None and self._again:
            LOGGER.warning(
                "%s: %d messages to %r had no outcome when the link was lost and are sent "
                "again: some may arrive twice, unless the node knows them by their message-ids",
                self._connection.url,
                self._again,
                self.address,
            )
            self._connection.polled[self] = None
            self._send_again()
        self._advance()

    @property
    def _again(self) -> int:
        """Number of messages that are still to be sent again."""
        return 0 if self._resending is None else len(self._resending.todo)

    def _send_again(self) -> None:
        """Send messages that are in doubt, as credit and the transport allow."""
        resending = self._resending
        while resending is not None and resending.todo and self._has_room():
            payload, tag, future = resending.todo.popleft()
            if future.done():
                continue
            try:
                self._transfer(payload, False, None, tag, future=future)
            except AmqpError as error:
                # The peer may accept only smaller messages now.
                resolve(future, error)

    def _resume(self, engine: SenderLink, outbox: Outbox) -> None:
        """Continue resuming, and begin another round when this one can make no more progress."""
        outbox.proceed(engine)
        if not outbox.busy:
            self._in_flight.deliveries = outbox.undecided()
        if outbox.round_over(engine):
            if outbox.progresses(engine):
                self._connection.polled.pop(self, None)
                self._begin_round()
            elif not outbox.holding:
                engine.detach(closed=False)
                self._end(
                    LinkDetached(f"{self.place}: the link cannot be resumed: its maps stay partial")
                )
        if self._connection.transport.has_output:
            # No further write is scheduled otherwise: this is called after every pass and would
            # repeat forever.
            self._connection.soon()

    @property
    def _busy(self) -> bool:
        """Whether earlier messages come first, which are resumed or sent again."""
        return bool(self._again) or (self._outbox is not None and self._outbox.busy)

    def _can_send(self) -> bool:
        outbox = self._outbox
        resending = self._resending
        engine = self._engine
        transport = self._connection._transport
        # As in `_has_room`, without a call for each message.
        return (
            (outbox is None or not outbox.busy)
            and (resending is None or not resending.todo)
            and engine is not None
            and engine.usable
            and engine.credit > 0
            and engine.parked == 0
            and transport is not None
            and not transport.paused
        )

    def _has_room(self) -> bool:
        engine = self._engine
        transport = self._connection._transport
        return (
            engine is not None
            and engine.usable
            and engine.credit > 0
            and engine.parked == 0
            and transport is not None
            and not transport.paused
        )

    def _count_available(self) -> int:
        """Return the number of messages that wait for credit (AMQP 1.0 §2.6.7)."""
        resumed = 0 if self._outbox is None else self._outbox.waiting
        return self._available + resumed + self._again

    async def _wait(self, messages: int = 1) -> None:
        """Wait until a message can be sent and all earlier calls have sent theirs."""
        self._check()
        self._begin_wait(messages)
        # Whether `_advance` waits for this call.
        going = False
        try:
            waits = self._in_flight.waiting > 1 or not self._can_send()
            while waits:
                future = self._connection._loop.create_future()
                call = (future, None, False, None, None, False)
                if going:
                    # Something has changed before this call could send.
                    self._line.appendleft(call)
                    going = self._going = False
                else:
                    self._line.append(call)
                try:
                    await future
                finally:
                    going = future.done() and not future.cancelled()
                    if not going and call in self._line:
                        self._line.remove(call)
                self._check()
                waits = not self._can_send()
        finally:
            if going:
                self._going = False
            self._end_wait(messages)
            if self._line:
                # The caller first sends its message.
                self._connection._loop.call_soon(self._advance)

    def _begin_wait(self, messages: int = 1) -> None:
        """Count a call that waits to send."""
        self._in_flight.waiting += 1
        self._available += messages
        self._connection.polled[self] = None

    def _end_wait(self, messages: int = 1) -> None:
        """Count a call that no longer waits to send."""
        self._in_flight.waiting -= 1
        self._available -= messages
        self._review_waits()

    def _review_waits(self) -> None:
        """Look whether calls still wait, because one no longer does."""
        if self._drain_wanted:
            self._connection.soon()
        elif not self._wants_poll():
            self._connection.polled.pop(self, None)

    def _leave_line(self, call: _Waiting) -> None:
        """Handle the end of a call that sends when it is its turn."""
        if call in self._line:
            self._line.remove(call)
            self._end_wait()

    def _advance(self) -> None:
        """Send the messages of waiting calls, and let calls of `_wait` go on, one after the other,
        as far as credit and the transport allow."""
        if self._attaching is not None:
            # The attach may say that the peer has forgotten the link.
            return
        line = self._line
        if len(line) > 1:
            self._in_flight.alone = False
        ended = False
        while line and not self._going and self._can_send():
            future, payload, settled, transaction, tag, hold = line.popleft()
            if payload is None:
                if not future.done():
                    self._going = True
                    future.set_result(None)
                continue
            # A call that was cancelled just now has not run yet.
            if not future.done():
                try:
                    if transaction is not None or tag is not None or hold:
                        self._send(payload, settled, transaction, tag, hold, future=future)
                    elif settled or not self._in_flight.send_waiting(payload, future):
                        self._transfer(payload, settled, None, future=future)
                except Exception as error:
                    future.set_exception(error)
            self._in_flight.waiting -= 1
            self._available -= 1
            ended = True
        if ended:
            self._review_waits()

    def _wants_poll(self) -> bool:
        """Return whether a call waits for `poll`."""
        return self._in_flight.waiting > 0 or self._drain_wanted or bool(self._unsent) or self._busy

    def poll(self) -> None:
        """Send waiting messages after a pass, while calls wait or the peer drains."""
        engine = self._engine
        if engine is None:
            return
        outbox = self._outbox
        if outbox is not None and outbox.busy and self._attaching is None:
            self._resume(engine, outbox)
        if self._again and self._attaching is None:
            self._send_again()
            if not self._wants_poll():
                self._connection.polled.pop(self, None)
        unsent = self._unsent
        if unsent:
            while unsent and unsent[0][0].sent:
                resolve(unsent.popleft()[1])
            if not self._wants_poll():
                self._connection.polled.pop(self, None)
        self._advance()
        if self._drain_wanted and engine.parked == 0 and self._in_flight.waiting + self._again == 0:
            # Calls that waited for credit have used it; the rest is given back (AMQP 1.0 §2.6.7).
            self._drain_wanted = False
            self._connection.polled.pop(self, None)
            engine.drained()

    def _send(
        self,
        payload: bytes,
        settled: bool,
        transaction: Transaction | None,
        tag: bytes | None,
        hold: bool,
        again: bool = True,
        future: asyncio.Future[None] | None = None,
    ) -> asyncio.Future[None]:
        if (self._outbox is not None or self._resending is not None) and self._busy:
            self._check()
            raise LocalProtocolError(
                "amqp:illegal-state", f"link {self.name!r} is being resumed", Scope.LINK
            )
        if tag is not None and not isinstance(tag, bytes):
            raise TypeError(f"a delivery-tag is bytes, not {type(tag).__name__}")
        if hold and (self._outbox is None or settled or transaction is not None):
            raise ValueError("hold is for unsettled messages to a durable target")
        if transaction is None:
            return self._transfer(payload, settled, None, tag, hold, again, future)[1]
        state = transaction.state_for(self)
        delivery, future = self._transfer(payload, settled, state, tag, False, True, future)
        if not delivery.settled:
            transaction.on_posted(delivery)
        return future

    def _transfer(
        self,
        payload: bytes,
        settled: bool,
        state: DeliveryState | None,
        tag: bytes | None = None,
        hold: bool = False,
        again: bool = True,
        future: asyncio.Future[None] | None = None,
    ) -> tuple[OutgoingDelivery, asyncio.Future[None]]:
        connection = self._connection
        if self._failure is not None or running_loop() is not connection._loop:
            self._check()
        if future is None:
            future = connection._loop.create_future()
        engine = self._engine
        if engine is None:
            raise AssertionError("a sender is attached before it is handed out")
        delivery = engine.send(payload, settled=settled, state=state, tag=tag)
        alone = False
        if delivery.settled:
            if delivery.sent:
                future.set_result(None)
            else:
                self._unsent.append((delivery, future))
                connection.polled[self] = None
        else:
            delivery.context = future
            alone = self._in_flight.add(delivery)
            if state is not None:
                pass
            elif self._outbox is not None:
                self._outbox.entries[delivery.tag] = SentDelivery(
                    delivery.tag, payload, future, hold, delivery
                )
            elif self._resending is not None and again:
                self._resending.in_flight[delivery] = payload
                if tag is not None:
                    self._resending.tags[delivery] = tag
        transport = connection._transport
        if transport is not None:
            transport.write_soon(alone)
        return delivery, future

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_credit(self, engine: SenderLink) -> None:
        """Handle new credit of the peer; waiting calls are woken after the pass."""
        if engine.drain:
            self._drain_wanted = True
            self._connection.polled[self] = None

    def _fail_for_transaction(self, delivery: OutgoingDelivery) -> None:
        """End the link: the peer named a transaction that the delivery is not part of."""
        error = Error(
            condition="amqp:illegal-state",
            description=f"the outcome of delivery {delivery.id} names a transaction that the "
            f"delivery is not part of",
        )
        if self._engine is not None:
            self._engine.detach(closed=True, error=error)
        self._end(LinkDetached(self.place, error))
        self._connection.soon()

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """Handle a state or a settlement of the peer for a delivery."""
        state = delivery.remote_state
        if self._in_flight.end_accepted(delivery):
            return
        if isinstance(state, TransactionalState):
            posted = delivery.state
            if not isinstance(posted, TransactionalState) or posted.txn_id != state.txn_id:
                self._fail_for_transaction(delivery)
                return
            # The outcome is provisional until the transaction is discharged.
            state = state.outcome
            if not delivery.remote_settled and state is None:
                return
        elif not delivery.remote_settled and not is_outcome(state):
            return
        elif self._outbox is not None and self._outbox.on_outcome(delivery, state):
            self._in_flight.deliveries.discard(delivery)
            if self._outbox.busy:
                self._connection.polled[self] = None
            return
        else:
            delivery.settle()
        self._in_flight.deliveries.discard(delivery)
        if self._resending is not None:
            self._resending.forget(delivery)
        future = delivery.context
        if isinstance(future, asyncio.Future) and not future.done():
            error = error_of(state)
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
