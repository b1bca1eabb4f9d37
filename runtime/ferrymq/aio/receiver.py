"""Receivers: credit out, messages in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

from ferrymq.aio.delivery import Delivery, lost
from ferrymq.aio.link import Link
from ferrymq.aio.opening import Opening
from ferrymq.aio.termini import receiver_source, source_lack
from ferrymq.aio.waiting import resolve
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import LinkDetached, PeerError
from ferrymq.options import ReceiverOptions
from ferrymq_types.messaging import Source, Target

if TYPE_CHECKING:
    from ferrymq.aio.session import Session
    from ferrymq.aio.transaction import Transaction


class Receiver(Link[ReceiverLink]):
    """A link on which messages arrive. Made by `Connection.receiver` or `Session.receiver`.

    ``async for delivery in receiver`` ends when the receiver is closed by this side, and raises
    when the peer or the network ended it.
    """

    def __init__(self, session: Session, address: str | None, options: ReceiverOptions) -> None:
        super().__init__(session, options.name, options.timeout)
        if options.credit < 0:
            raise ValueError(f"credit {options.credit} is negative")
        self._address = address
        self._options = options
        self._source = receiver_source(address, options)
        # How many messages may be under way or queued; 0 leaves credit to the user.
        self._prefetch = options.credit
        self._queue: deque[Delivery] = deque()
        self._turn = asyncio.Lock()
        self._draining: asyncio.Future[None] | None = None
        # The transaction that messages are acquired in.
        self._acquiring: Transaction | None = None
        # Whether it was this side that ended it.
        self.closed_here = False
        # Deliveries whose outcome the sender has yet to confirm.
        self.confirming: set[Delivery] = set()

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str | None:
        """The node messages come from; for a dynamic source, the name the peer gave it."""
        source = self.source
        return self._address if source is None or not self._options.dynamic else source.address

    @property
    def source(self) -> Source | None:
        """The source as the peer has it, with the filters it applies; None before it is attached.

        A peer that leaves out a filter that was asked for does not apply it: such a link is not
        opened, `LinkDetached` is raised (AMQP 1.0 §3.5.3).
        """
        attach = None if self._engine is None else self._engine.remote_attach
        return None if attach is None else attach.source

    @property
    def queued(self) -> int:
        """How many messages have arrived and have not been taken."""
        return len(self._queue)

    @property
    def credit(self) -> int:
        """How many messages the peer may still send."""
        return 0 if self._engine is None else self._engine.credit

    async def receive(self, *, timeout: float | None = None) -> Delivery:
        """Take the next message, waiting for it if need be.

        Raises `TimeoutError` when none comes in time, and `LinkDetached`, `SessionEnded` or
        `ConnectionClosed` when none will come.
        """
        if self._queue and not self._turn.locked():
            return self._take()
        if timeout is None:
            return await self._receive()
        async with asyncio.timeout(timeout):
            return await self._receive()

    async def receive_many(self, limit: int, *, timeout: float | None = None) -> list[Delivery]:
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
        """Allow the peer to send `credit` messages more, for a receiver made with ``credit=0``.

        In a `transaction`, what comes until that is discharged is acquired in it: outcomes belong
        to it without saying so, and a rollback makes the messages available again
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
        engine = self._engine
        if engine is not None:
            engine.set_credit(engine.credit + credit, properties=self._flow_properties())
            self._connection.soon()

    async def drain(self, *, timeout: float | None = None) -> None:
        """Have the peer send what it has at once and give back the rest of the credit.

        Afterwards all of those messages are queued, none is under way, and credit is given only
        by `add_credit` (AMQP 1.0 §2.6.7).
        """
        self._check()
        self._prefetch = 0
        engine = self._engine
        if engine is None or engine.credit == 0:
            return
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_future()
            if self._acquiring is None:
                engine.drain_credit()
            else:
                engine.set_credit(engine.credit, drain=True, properties=self._flow_properties())
            self._connection.soon()
        async with asyncio.timeout(timeout):
            await asyncio.shield(self._draining)

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

    def _create(self, session: EngineSession) -> ReceiverLink:
        options = self._options
        return session.attach_receiver(
            self.name,
            source=self._source,
            target=Target(),
            snd_settle_mode=options.snd_settle_mode,
            rcv_settle_mode=options.rcv_settle_mode,
            max_message_size=options.max_message_size,
            properties=options.properties,
            desired_capabilities=options.desired_capabilities,
        )

    def _refused(self) -> bool:
        attach = None if self._engine is None else self._engine.remote_attach
        return attach is not None and attach.source is None

    def _lack(self) -> str | None:
        return source_lack(self._source, self.source)

    def _before_close(self) -> None:
        self.closed_here = True
        self.release_queued()

    def release_queued(self) -> None:
        """Hand back the messages nobody took, before this side ends the link."""
        for delivery in self._queue:
            delivery._release_now()

    def _lost(self, error: PeerError) -> None:
        # Settled messages are ours already; the others the node will give to someone again.
        self._queue = deque(delivery for delivery in self._queue if delivery._engine.remote_settled)
        for delivery in list(self.confirming):
            delivery._lose(error)
        resolve(self._draining, error)
        self._draining = None

    def _restored(self) -> None:
        if self._prefetch and self._engine is not None:
            self._engine.set_credit(max(0, self._prefetch - len(self._queue)))
            self._connection.soon()

    def _flow_properties(self) -> dict[str, object] | None:
        acquiring = self._acquiring
        return None if acquiring is None else {"txn-id": acquiring.id}

    def stop_acquiring(self, transaction: Transaction, committed: bool) -> None:
        """The transaction is over; what was acquired in vain is not ours any longer."""
        if self._acquiring is transaction:
            self._acquiring = None
        if not committed:
            self._queue = deque(
                delivery for delivery in self._queue if delivery.transaction_id != transaction.id
            )

    def _check_holds(self, engine: IncomingDelivery) -> None:
        """Raise unless the delivery came over the link as it is now."""
        if self._failure is not None or engine.link is not self._engine or not engine.link.usable:
            raise lost(self._failure)

    async def _receive(self) -> Delivery:
        async with self._turn:
            while not self._queue:
                self._check()
                await self._changed.wait()
            return self._take()

    def _take(self) -> Delivery:
        delivery = self._queue.popleft()
        prefetch = self._prefetch
        engine = self._engine
        if prefetch and engine is not None and engine.usable:
            queued = len(self._queue)
            if (engine.credit + queued) * 2 <= prefetch:
                engine.set_credit(prefetch - queued)
                self._connection.soon()
        return delivery

    # ── Events ─────────────────────────────────────────────────────────────────────────────────

    def on_delivery(self, engine: IncomingDelivery) -> None:
        """A message came."""
        if self._failure is not None:
            return
        delivery = Delivery(self, engine)
        engine.context = delivery
        self._queue.append(delivery)
        self._changed.wake()

    def on_drained(self) -> None:
        """The peer has given back the credit."""
        resolve(self._draining)
        self._draining = None


class OpeningReceiver(Opening[Receiver]):
    """A receiver that is not attached yet; ``async for`` attaches, iterates and closes it.

    Leaving the loop early closes the receiver when the iterator is finalised, which for a loop in
    a coroutine is at once; ``async with`` says it explicitly.
    """

    __slots__ = ()

    def __aiter__(self) -> AsyncGenerator[Delivery, None]:
        return self._iterate()

    async def _iterate(self) -> AsyncGenerator[Delivery, None]:
        receiver = await self._open()
        try:
            async for delivery in receiver:
                yield delivery
        finally:
            await receiver.close()
