"""Senders, receivers and deliveries for code that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar

from ferrymq import aio
from ferrymq.aio.arrivals import accept_late, release_late
from ferrymq.aio.outcomes import ACCEPTED, RELEASED
from ferrymq.aio.unseen import RepeatedWarning, SentFuture
from ferrymq.aio.waiting import check_accepted
from ferrymq.arguments import OtherNames
from ferrymq.blocking.face import Face, blocking
from ferrymq.blocking.portal import Portal
from ferrymq.blocking.transaction import Transaction, unwrap
from ferrymq.durations import Duration
from ferrymq.errors import ConnectionClosed, DeliveryError, LinkDetached
from ferrymq.message import Message
from ferrymq.options import Timeout
from ferrymq.sendable import Sendable, check_messages, to_message
from ferrymq.unsettled import Unsettled
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_types.unions import Outcome

L = TypeVar("L", bound=aio.Sender | aio.Receiver)


class _Link(Face[L]):
    """Common part of the blocking faces of senders and receivers."""

    @property
    def name(self) -> str:
        """Name of the link."""
        return self._behind.name

    @property
    def properties(self) -> dict[str, object]:
        """The properties in the peer's attach (AMQP 1.0 §2.7.3)."""
        return self._behind.properties

    @property
    def offered_capabilities(self) -> list[str]:
        """Capabilities that the peer offers on this link (AMQP 1.0 §2.7.3)."""
        return self._behind.offered_capabilities

    @property
    def credit(self) -> int:
        """Number of messages that may be sent on the link now."""
        return self._behind.credit

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._behind.closed

    def unsettled_deliveries(self) -> list[Unsettled]:
        """Return what is not settled on both sides; see `aio.Sender.unsettled_deliveries` and
        `aio.Receiver.unsettled_deliveries`."""
        return self._portal.call(self._behind.unsettled_deliveries)

    def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the link; see `aio.Sender.close`."""
        # A link made before a fork belongs to the parent process.
        if not self._behind.closed and not self._portal.foreign:
            self._portal.run(lambda: self._behind.close(error=error, timeout=timeout))

    def detach(self, *, timeout: Timeout = "default") -> None:
        """End the link and leave its terminus as it is; see `aio.Sender.detach`."""
        if not self._behind.closed and not self._portal.foreign:
            self._portal.run(lambda: self._behind.detach(timeout=timeout))


class _SentFuture(Future[None]):
    """Future of `Sender.send_nowait`. If its error was never looked at, `warning` counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.warning: RepeatedWarning[BaseException] | None = None
        self._seen = False

    def result(self, timeout: float | None = None) -> None:
        try:
            super().result(timeout)
        finally:
            self._seen = self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return super().exception(timeout)
        finally:
            self._seen = self.done()

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        self._seen = True
        super().add_done_callback(fn)

    def __del__(self) -> None:
        if not self._seen and self.warning is not None and self.done():
            error = super().exception()
            if error is not None:
                self.warning.add(error)


class Sender(OtherNames, _Link[aio.Sender]):
    """A link on which messages are sent; the blocking face of `ferrymq.aio.Sender`."""

    elsewhere: ClassVar[Mapping[str, str]] = aio.Sender.elsewhere

    @property
    def address(self) -> str | None:
        """The node that receives the messages; for a dynamic target, the name the peer gave it."""
        return self._behind.address

    @property
    def target(self) -> Target | None:
        """The target as the peer states it (AMQP 1.0 §3.5.4)."""
        return self._behind.target

    @property
    def max_message_size(self) -> int | None:
        """The largest message that the peer accepts, in bytes; None means any (AMQP 1.0 §2.7.3)."""
        return self._behind.max_message_size

    @property
    def unsettled(self) -> int:
        """Number of messages that have been sent and have no outcome yet."""
        return self._behind.unsettled

    def send(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
        delivery_tag: bytes | None = None,
        hold: bool = False,
    ) -> None:
        """Send one message and wait until the peer has accepted it; see `aio.Sender.send`."""
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._behind.send(
                message,
                settled=settled,
                timeout=timeout,
                transaction=within,
                delivery_tag=delivery_tag,
                hold=hold,
            )
        )

    def settle(self, delivery_tag: bytes) -> None:
        """Settle a delivery whose outcome the application has stored; see `aio.Sender.settle`."""
        self._portal.call(lambda: self._behind.settle(delivery_tag))

    ready: Final = blocking(aio.Sender.ready)
    resumed: Final = blocking(aio.Sender.resumed)

    def send_nowait(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        transaction: Transaction | None = None,
        delivery_tag: bytes | None = None,
        hold: bool = False,
    ) -> Future[None]:
        """Send one message now; the future ends with its outcome; see `aio.Sender.send_nowait`.

        The future cannot be cancelled.
        """
        within = unwrap(transaction)
        future = _SentFuture()
        future.set_running_or_notify_cancel()

        def end(sent: asyncio.Future[None]) -> None:
            error = ConnectionClosed("no call waits") if sent.cancelled() else sent.exception()
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def send() -> None:
            sent = self._behind.send_nowait(
                message,
                settled=settled,
                transaction=within,
                delivery_tag=delivery_tag,
                hold=hold,
            )
            if isinstance(sent, SentFuture):
                future.warning = sent.warning
            sent.add_done_callback(end)

        self._portal.call(send)
        return future

    def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send messages without waiting in between; see `aio.Sender.send_many`.

        The iterable is read before the first message is sent.
        """
        check_messages(messages, "send_many")
        within = unwrap(transaction)
        if settled or self._behind.traces:
            ready = list(messages)
            self._portal.run(
                lambda: self._behind.send_many(
                    ready, settled=settled, timeout=timeout, transaction=within
                )
            )
            return
        # Encoded messages are no work for the garbage collector.
        payloads = [to_message(message, "send_many").encode() for message in messages]
        errors = self.send_encoded(payloads, timeout=timeout, transaction=transaction)
        check_accepted(errors, len(payloads))

    def send_encoded(
        self,
        payloads: Sequence[bytes],
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> dict[int, DeliveryError]:
        """Send many encoded messages, and wait for the outcomes; see `aio.Sender.send_encoded`."""
        within = unwrap(transaction)
        return self._portal.run(
            lambda: self._behind.send_encoded(
                payloads, settled=settled, timeout=timeout, transaction=within
            )
        )


class PartitionedSender(Face[aio.PartitionedSender]):
    """A sender to a stream whose partitions may be on several brokers; the blocking face of
    `ferrymq.aio.PartitionedSender`."""

    @property
    def address(self) -> str:
        """The stream."""
        return self._behind.address

    @property
    def partitions(self) -> int | None:
        """Number of partitions; see `aio.PartitionedSender.partitions`."""
        return self._behind.partitions

    @property
    def placement(self) -> list[tuple[str, ...]] | None:
        """URLs of the broker of each partition; see `aio.PartitionedSender.placement`."""
        return self._behind.placement

    @property
    def closed(self) -> bool:
        """Whether the sender is over."""
        return self._behind.closed

    def send(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send one message to its partition; see `aio.PartitionedSender.send`."""
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._behind.send(message, settled=settled, timeout=timeout, transaction=within)
        )

    def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send messages, each to its partition; see `aio.PartitionedSender.send_many`.

        The iterable is read before the first message is sent.
        """
        check_messages(messages, "send_many")
        ready = list(messages)
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._behind.send_many(
                ready, settled=settled, timeout=timeout, transaction=within
            )
        )

    def close(self, *, timeout: Timeout = "default") -> None:
        """Close the links to all partitions; see `aio.PartitionedSender.close`."""
        # A sender made before a fork belongs to the parent process.
        if not self._behind.closed and not self._portal.foreign:
            self._portal.run(lambda: self._behind.close(timeout=timeout))


class Receiver(OtherNames, _Link[aio.Receiver]):
    """A link on which messages arrive; the blocking face of `ferrymq.aio.Receiver`.

    ``for delivery in receiver`` ends when the receiver is closed by this side, from another
    thread for instance, and raises when the peer or the network ended it.
    """

    elsewhere: ClassVar[Mapping[str, str]] = aio.Receiver.elsewhere

    def __init__(self, portal: Portal, behind: aio.Receiver) -> None:
        super().__init__(portal, behind)
        # Takes what has arrived, without a call in the loop.
        self._arrived = behind.arrived()
        # Whether the loop was asked to give credit for such messages.
        self._renewing = False

    @property
    def address(self) -> str | None:
        """The node that sends the messages; for a dynamic source, the name the peer gave it."""
        return self._behind.address

    @property
    def source(self) -> Source | None:
        """The source as the peer states it (AMQP 1.0 §3.5.3)."""
        return self._behind.source

    @property
    def gives_back(self) -> bool:
        """Whether browsed messages are taken and given back; see `aio.Receiver.gives_back`."""
        return self._behind.gives_back

    @property
    def queued(self) -> int:
        """Number of messages that have arrived and have not been taken."""
        return self._behind.queued

    def receive(self, *, timeout: Duration | None = None) -> Delivery:
        """Take the next message, waiting for it if need be; see `aio.Receiver.receive`."""
        self._portal.check()
        taken: aio.Delivery | None = None
        try:
            # No signal is handled between a step of the iterator and the assignment.
            for taken in self._arrived:
                if self._behind.hand_out([taken]):
                    self._renew_soon()
                return Delivery(self, taken)
        except IndexError:
            pass
        except BaseException:
            if taken is not None:
                self._queue_again([taken])
            raise
        return self._wait_for_message(timeout)

    def receive_many(self, limit: int, *, timeout: Duration | None = None) -> list[Delivery]:
        """Take up to `limit` messages, at least one; see `aio.Receiver.receive_many`."""
        if limit < 1:
            raise ValueError(f"limit {limit} is below 1")
        self._portal.check()
        taken: list[aio.Delivery] = []
        try:
            self._take_arrived(taken, limit)
            if not taken:
                taken.append(self._wait_for_message(timeout)._delivery)
                self._take_arrived(taken, limit - 1)
            if self._behind.hand_out(taken):
                self._renew_soon()
            return [Delivery(self, delivery) for delivery in taken]
        except BaseException:
            self._queue_again(taken)
            raise

    def _take_arrived(self, taken: list[aio.Delivery], limit: int) -> None:
        """Append up to `limit` messages that have arrived."""
        try:
            # No signal is handled before all of them are in the list.
            taken.extend(islice(self._arrived, limit))
        except IndexError:
            pass

    def _renew_soon(self) -> None:
        """Have the loop give credit for messages that threads have taken."""
        if not self._renewing:
            self._renewing = True
            self._portal.batch.add(Receiver._renew, self)

    def _renew(self) -> None:
        self._renewing = False
        self._behind.renew()

    def _wait_for_message(self, timeout: Duration | None) -> Delivery:
        """Take the next message in the loop, when there was none."""

        async def take() -> Delivery:
            return Delivery(self, await self._behind.wait_for_message(timeout))

        return self._portal.run(take, lambda taken: self._behind.put_back([taken._delivery]))

    def _queue_again(self, taken: list[aio.Delivery]) -> None:
        """Put back messages that the interrupted caller did not receive: they come next."""
        self._behind.queue_again(taken)
        self._portal.soon(lambda: self._behind.check_queued_again(taken))

    def add_credit(self, credit: int, *, transaction: Transaction | None = None) -> None:
        """Allow the peer to send `credit` more messages; see `aio.Receiver.add_credit`."""
        within = unwrap(transaction)
        self._portal.call(lambda: self._behind.add_credit(credit, transaction=within))

    drain: Final = blocking(aio.Receiver.drain)
    resumed: Final = blocking(aio.Receiver.resumed)

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            try:
                delivery = self.receive()
            except LinkDetached:
                if self._behind.closed_here:
                    return
                raise
            yield delivery


class Delivery(OtherNames):
    """Received message; the blocking face of `ferrymq.aio.Delivery`.

    ``with delivery`` accepts the message at the end of the block; if an exception leaves the block,
    it gives the message back as failed, or releases it if the program was told to stop.
    """

    elsewhere: ClassVar[Mapping[str, str]] = aio.Delivery.elsewhere

    def __init__(self, receiver: Receiver, delivery: aio.Delivery) -> None:
        self.receiver = receiver
        self._delivery = delivery
        # Whether the loop was given an outcome that it will send.
        self._decided = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            if not self._decided and not self._delivery.given:
                self.accept()
        elif self._portal.usable:
            # The exception matters more than an error met here.
            with suppress(Exception):
                self._portal.call(lambda: self._delivery.give_back(error))

    def __repr__(self) -> str:
        return repr(self._delivery)

    @property
    def message(self) -> Message:
        """The message, decoded at the first use. Raises `DecodeError` if it is malformed."""
        return self._delivery.message

    @property
    def payload(self) -> bytes:
        """The message as it was sent: its encoded sections."""
        return self._delivery.payload

    @property
    def message_format(self) -> int:
        """The format of the payload; 0 is the sections of AMQP 1.0 (§3.2.16)."""
        return self._delivery.message_format

    @property
    def tag(self) -> bytes:
        """The sender's name for the delivery, up to 32 bytes (AMQP 1.0 §2.6.12)."""
        return self._delivery.tag

    @property
    def settled(self) -> bool:
        """Whether either side has settled the delivery."""
        delivery = self._delivery
        return delivery.settled or (self._decided and not delivery.gone)

    @property
    def transaction_id(self) -> bytes | None:
        """The transaction that acquired the message; see `aio.Receiver.add_credit`."""
        return self._delivery.transaction_id

    @property
    def gone(self) -> bool:
        """Whether the message is lost to this program; see `aio.Delivery.gone`."""
        return self._delivery.gone

    def accept(
        self, *, timeout: Duration | None = None, transaction: Transaction | None = None
    ) -> None:
        """Accept the message; see `aio.Delivery.accept`."""
        if transaction is None and self._settle_soon(ACCEPTED, accept_late):
            return
        within = unwrap(transaction)
        self._portal.run(lambda: self._delivery.accept(timeout=timeout, transaction=within))

    def reject(
        self,
        error: Error | str | None = None,
        description: str | None = None,
        *,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Reject the message as invalid; see `aio.Delivery.reject`."""
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._delivery.reject(error, description, timeout=timeout, transaction=within)
        )

    def release(
        self, *, timeout: Duration | None = None, transaction: Transaction | None = None
    ) -> None:
        """Release the message, which was not processed; see `aio.Delivery.release`."""
        if transaction is None and self._settle_soon(RELEASED, release_late):
            return
        within = unwrap(transaction)
        self._portal.run(lambda: self._delivery.release(timeout=timeout, transaction=within))

    def modify(
        self,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: dict[str, object] | None = None,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Give the message back, changed; see `aio.Delivery.modify`."""
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._delivery.modify(
                delivery_failed=delivery_failed,
                undeliverable_here=undeliverable_here,
                message_annotations=message_annotations,
                timeout=timeout,
                transaction=within,
            )
        )

    @property
    def _portal(self) -> Portal:
        return self.receiver._portal

    def _settle_soon(self, outcome: Outcome, settle: Callable[[aio.Delivery], None]) -> bool:
        """Leave an outcome to the loop, without waiting; return false if the caller has to wait."""
        delivery = self._delivery
        if self._decided or not delivery.settles_at_once(outcome):
            return False
        portal = self.receiver._portal
        portal.check()
        portal.batch.add(settle, delivery)
        self._decided = True
        return True
