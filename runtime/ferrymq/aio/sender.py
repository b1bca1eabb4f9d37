"""Senders: messages out, outcomes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ferrymq.aio.link import Link
from ferrymq.aio.outcomes import error_of, is_outcome
from ferrymq.aio.termini import ANONYMOUS_RELAY, sender_target, target_lack
from ferrymq.aio.waiting import resolve
from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import DeliveryError, LinkDetached, PeerError
from ferrymq.message import Message
from ferrymq.options import SenderOptions
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq.aio.session import Session
    from ferrymq.aio.transaction import Transaction
    from ferrymq_types.unions import DeliveryState

# Output beyond this is written at once, so that the transport can say when it is full.
_WRITE_SIZE: Final = 65536


class Sender(Link[SenderLink]):
    """A link on which messages are sent. Made by `Connection.sender` or `Session.sender`."""

    def __init__(self, session: Session, address: str | None, options: SenderOptions) -> None:
        super().__init__(session, options.name, options.timeout)
        self._address = address
        self._options = options
        self._target = sender_target(address, options)
        # Sends take turns, so that one that waits for credit is not overtaken.
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._unsettled: set[OutgoingDelivery] = set()
        # Whether the peer wants its credit used up or given back.
        self._drain_wanted = False

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str | None:
        """The node messages go to; for a dynamic target, the name the peer gave it."""
        target = self.target
        return self._address if target is None or not self._options.dynamic else target.address

    @property
    def target(self) -> Target | None:
        """The target as the peer has it (AMQP 1.0 §3.5.4); None before it is attached."""
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
        """How many messages have been sent and have no outcome yet."""
        return len(self._unsettled)

    async def send(
        self,
        message: Message,
        *,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send one message and wait until the peer has accepted it.

        In a `transaction`, wait until the peer says that it will accept the message once that is
        committed (AMQP 1.0 §4.4.1).

        Waits for credit first. A message sent `settled` has no outcome: it is on its way when
        this returns. When the call is cancelled, or `TimeoutError` is raised, while the outcome
        is awaited, the message may or may not arrive.

        Raises `DeliveryRejected`, `DeliveryReleased` or `DeliveryModified` for the other
        outcomes; `LinkDetached`, `SessionEnded` or `ConnectionClosed` when there will be none;
        `EncodeError` for a value that has no encoding; `LocalProtocolError` when the message is
        larger than the peer takes.
        """
        payload = message.encode()
        if timeout is None:
            if self._waiting or not self._can_send():
                await self._wait()
            await self._send(payload, settled, transaction)
            return
        async with asyncio.timeout(timeout):
            if self._waiting or not self._can_send():
                await self._wait()
            await self._send(payload, settled, transaction)

    async def ready(self, *, timeout: float | None = None) -> None:
        """Wait until `send_nowait` may be called: there is credit and room for writing."""
        async with asyncio.timeout(timeout):
            await self._wait()

    def send_nowait(
        self,
        message: Message,
        *,
        settled: bool = False,
        transaction: Transaction | None = None,
    ) -> asyncio.Future[None]:
        """Send one message now; the future ends with its outcome as `send` would.

        For throughput: await `ready`, send, and await the futures later. Cancelling a future
        does not take the message back.

        Raises `LocalProtocolError` when there is no credit or the message is larger than the
        peer takes, `EncodeError`, and whatever ended the link.
        """
        return self._send(message.encode(), settled, transaction)

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send messages one after the other as credit allows, and wait for all their outcomes.

        Raises an `ExceptionGroup` of `DeliveryError`, each with a note that tells which message,
        when some were not accepted, and else as `send` does.
        """
        futures: list[asyncio.Future[None]] = []
        errors: list[DeliveryError] = []
        try:
            async with asyncio.timeout(timeout):
                for message in messages:
                    if self._waiting or not self._can_send():
                        await self._wait()
                    futures.append(self._send(message.encode(), settled, transaction))
                for index, future in enumerate(futures):
                    try:
                        await future
                    except DeliveryError as error:
                        error.add_note(f"message {index} of {len(futures)}, counted from 0")
                        errors.append(error)
        finally:
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    # Looked at, so that asyncio does not report it as overlooked.
                    future.exception()
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {len(futures)} were not accepted", errors)

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    def _create(self, session: EngineSession) -> SenderLink:
        options = self._options
        target = self._target
        if target.address is None and not target.dynamic:
            # An extension is used only with a peer that offers it (AMQP 1.0 §2.7.1).
            if ANONYMOUS_RELAY not in self._connection.remote_offered_capabilities:
                error = LinkDetached("the peer offers no ANONYMOUS-RELAY: give an address")
                self._end(error)
                raise error
        return session.attach_sender(
            self.name,
            source=Source(),
            target=target,
            snd_settle_mode=options.snd_settle_mode,
            rcv_settle_mode=options.rcv_settle_mode,
            properties=options.properties,
            desired_capabilities=options.desired_capabilities,
        )

    def _refused(self) -> bool:
        attach = None if self._engine is None else self._engine.remote_attach
        return attach is not None and attach.target is None

    def _lack(self) -> str | None:
        attach = None if self._engine is None else self._engine.remote_attach
        return target_lack(self._target, None if attach is None else attach.target)

    def _lost(self, error: PeerError) -> None:
        self._drain_wanted = False
        self._connection.polled.discard(self)
        unsettled, self._unsettled = self._unsettled, set()
        for delivery in unsettled:
            future = delivery.context
            if isinstance(future, asyncio.Future):
                resolve(future, error)

    def _restored(self) -> None:
        self._changed.wake()

    def _can_send(self) -> bool:
        engine = self._engine
        return (
            engine is not None
            and engine.usable
            and engine.credit > 0
            and engine.parked == 0
            and not self._connection.transport.paused
        )

    async def _wait(self) -> None:
        self._check()
        self._waiting += 1
        try:
            async with self._turn:
                self._connection.polled.add(self)
                while not self._can_send():
                    self._check()
                    await self._changed.wait()
        finally:
            self._waiting -= 1
            if self._drain_wanted:
                self._connection.soon()
            elif self._waiting == 0:
                self._connection.polled.discard(self)

    def poll(self) -> None:
        """Called after every pass while someone waits or the peer drains."""
        engine = self._engine
        if engine is None:
            return
        if self._can_send():
            self._changed.wake()
        if self._drain_wanted and engine.parked == 0 and self._waiting == 0:
            # Whoever waited for credit has had it; the rest goes back (AMQP 1.0 §2.6.7).
            self._drain_wanted = False
            self._connection.polled.discard(self)
            engine.drained()

    def _send(
        self, payload: bytes, settled: bool, transaction: Transaction | None
    ) -> asyncio.Future[None]:
        if transaction is None:
            return self._transfer(payload, settled, None)[1]
        delivery, future = self._transfer(payload, settled, transaction.state_for(self))
        if not delivery.settled:
            transaction.on_posted(delivery)
        return future

    def _transfer(
        self, payload: bytes, settled: bool, state: DeliveryState | None
    ) -> tuple[OutgoingDelivery, asyncio.Future[None]]:
        self._check()
        future = asyncio.get_running_loop().create_future()
        engine = self._engine
        if engine is None:
            raise AssertionError("a sender is attached before it is handed out")
        delivery = engine.send(payload, settled=settled, state=state)
        if delivery.settled:
            future.set_result(None)
        else:
            delivery.context = future
            self._unsettled.add(delivery)
        transport = self._connection.transport
        if len(transport.engine.output) < _WRITE_SIZE:
            transport.soon()
        else:
            transport.flush()
        return delivery, future

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_credit(self, engine: SenderLink) -> None:
        """The peer changed our credit; those who wait for it are woken after the pass."""
        if engine.drain:
            self._drain_wanted = True
            self._connection.polled.add(self)

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """The peer gave a delivery a state, or settled it."""
        state = delivery.remote_state
        if isinstance(state, TransactionalState):
            # Provisional until the transaction is discharged.
            state = state.outcome
            if not delivery.remote_settled and state is None:
                return
        elif not delivery.remote_settled and not is_outcome(state):
            return
        else:
            delivery.settle()
        self._unsettled.discard(delivery)
        future = delivery.context
        if isinstance(future, asyncio.Future) and not future.done():
            error = error_of(state)
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
