"""Senders, receivers and deliveries for code that blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from ferrymq import aio
from ferrymq.blocking.portal import Portal
from ferrymq.blocking.transaction import Transaction, unwrap
from ferrymq.errors import AmqpError, DeliveryError, LinkDetached
from ferrymq.message import Message
from ferrymq.options import Timeout
from ferrymq.unsettled import Unsettled
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Error


class Sender:
    """A link on which messages are sent; the blocking face of `ferrymq.aio.Sender`."""

    def __init__(self, portal: Portal, sender: aio.Sender) -> None:
        self._portal = portal
        self._sender = sender

    @property
    def name(self) -> str:
        """Name of the link."""
        return self._sender.name

    @property
    def address(self) -> str | None:
        """The node messages go to; for a dynamic target, the name the peer gave it."""
        return self._sender.address

    @property
    def target(self) -> Target | None:
        """The target as the peer has it (AMQP 1.0 §3.5.4)."""
        return self._sender.target

    @property
    def max_message_size(self) -> int | None:
        """The largest message the peer takes, in bytes; None means any (AMQP 1.0 §2.7.3)."""
        return self._sender.max_message_size

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._sender.closed

    def send(
        self,
        message: Message,
        *,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        delivery_tag: bytes | None = None,
        hold: bool = False,
    ) -> None:
        """Send one message and wait until the peer has accepted it; see `aio.Sender.send`."""
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._sender.send(
                message,
                settled=settled,
                timeout=timeout,
                transaction=within,
                delivery_tag=delivery_tag,
                hold=hold,
            )
        )

    def settle(self, delivery_tag: bytes) -> None:
        """The outcome of a delivery has been written down; see `aio.Sender.settle`."""
        self._portal.call(lambda: self._sender.settle(delivery_tag))

    def resumed(self, *, timeout: float | None = None) -> dict[bytes, AmqpError | None]:
        """The outcomes of what was given as `unsettled`; see `aio.Sender.resumed`."""
        return self._portal.run(lambda: self._sender.resumed(timeout=timeout))

    def unsettled_deliveries(self) -> list[Unsettled]:
        """What has no settled end; see `aio.Sender.unsettled_deliveries`."""
        return self._portal.call(self._sender.unsettled_deliveries)

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send messages without waiting in between; see `aio.Sender.send_many`.

        The iterable is read before the first message is sent.
        """
        ready = list(messages)
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._sender.send_many(
                ready, settled=settled, timeout=timeout, transaction=within
            )
        )

    def send_encoded(
        self,
        payloads: Sequence[bytes],
        *,
        settled: bool = False,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> dict[int, DeliveryError]:
        """Send many encoded messages, and wait for the outcomes; see `aio.Sender.send_encoded`."""
        within = unwrap(transaction)
        return self._portal.run(
            lambda: self._sender.send_encoded(
                payloads, settled=settled, timeout=timeout, transaction=within
            )
        )

    def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the link; see `aio.Sender.close`."""
        # A link made before a fork is the parent's to end.
        if not self._sender.closed and not self._portal.foreign:
            self._portal.run(lambda: self._sender.close(error=error, timeout=timeout))

    def detach(self, *, timeout: Timeout = "default") -> None:
        """End the link and leave its terminus as it is; see `aio.Sender.detach`."""
        # A link made before a fork is the parent's to end.
        if not self._sender.closed and not self._portal.foreign:
            self._portal.run(lambda: self._sender.detach(timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Receiver:
    """A link on which messages arrive; the blocking face of `ferrymq.aio.Receiver`.

    ``for delivery in receiver`` ends when the receiver is closed by this side, from another
    thread for instance, and raises when the peer or the network ended it.
    """

    def __init__(self, portal: Portal, receiver: aio.Receiver) -> None:
        self._portal = portal
        self._receiver = receiver

    @property
    def name(self) -> str:
        """Name of the link."""
        return self._receiver.name

    @property
    def address(self) -> str | None:
        """The node messages come from; for a dynamic source, the name the peer gave it."""
        return self._receiver.address

    @property
    def source(self) -> Source | None:
        """The source as the peer has it (AMQP 1.0 §3.5.3)."""
        return self._receiver.source

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._receiver.closed

    def receive(self, *, timeout: float | None = None) -> Delivery:
        """Take the next message, waiting for it if need be; see `aio.Receiver.receive`."""

        async def take() -> Delivery:
            return Delivery(self, await self._receiver.receive(timeout=timeout))

        return self._portal.run(take, lambda taken: self._put_back([taken]))

    def receive_many(self, limit: int, *, timeout: float | None = None) -> list[Delivery]:
        """Take up to `limit` messages, at least one; see `aio.Receiver.receive_many`."""

        async def take() -> list[Delivery]:
            taken = await self._receiver.receive_many(limit, timeout=timeout)
            return [Delivery(self, delivery) for delivery in taken]

        return self._portal.run(take, self._put_back)

    def _put_back(self, taken: list[Delivery]) -> None:
        """Messages that the caller was interrupted before it had come next."""
        self._receiver.put_back([delivery._delivery for delivery in taken])

    def resumed(self, *, timeout: float | None = None) -> dict[bytes, AmqpError | None]:
        """Wait until the outcomes given as `unsettled` are final; see `aio.Receiver.resumed`."""
        return self._portal.run(lambda: self._receiver.resumed(timeout=timeout))

    def unsettled_deliveries(self) -> list[Unsettled]:
        """What is not settled on both sides; see `aio.Receiver.unsettled_deliveries`."""
        return self._portal.call(self._receiver.unsettled_deliveries)

    def add_credit(self, credit: int, *, transaction: Transaction | None = None) -> None:
        """Allow the peer to send `credit` messages more; see `aio.Receiver.add_credit`."""
        within = unwrap(transaction)
        self._portal.call(lambda: self._receiver.add_credit(credit, transaction=within))

    def drain(self, *, timeout: float | None = None) -> None:
        """Have the peer send what it has and give back the credit; see `aio.Receiver.drain`."""
        self._portal.run(lambda: self._receiver.drain(timeout=timeout))

    def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the link; see `aio.Receiver.close`."""
        if not self._receiver.closed and not self._portal.foreign:
            self._portal.run(lambda: self._receiver.close(error=error, timeout=timeout))

    def detach(self, *, timeout: Timeout = "default") -> None:
        """End the link and leave its terminus as it is; see `aio.Receiver.detach`."""
        if not self._receiver.closed and not self._portal.foreign:
            self._portal.run(lambda: self._receiver.detach(timeout=timeout))

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            try:
                delivery = self.receive()
            except LinkDetached:
                if self._receiver.closed_here:
                    return
                raise
            yield delivery

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Delivery:
    """One message received; the blocking face of `ferrymq.aio.Delivery`."""

    def __init__(self, receiver: Receiver, delivery: aio.Delivery) -> None:
        self.receiver = receiver
        self._delivery = delivery

    def __repr__(self) -> str:
        return repr(self._delivery)

    @property
    def message(self) -> Message:
        """The message, decoded when first asked for. Raises `DecodeError` if it is malformed."""
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
        """Whether nothing remains to be done."""
        return self._delivery.settled

    def accept(
        self, *, timeout: float | None = None, transaction: Transaction | None = None
    ) -> None:
        """The message is processed; see `aio.Delivery.accept`."""
        within = unwrap(transaction)
        self._portal.run(lambda: self._delivery.accept(timeout=timeout, transaction=within))

    def reject(
        self,
        error: Error | str | None = None,
        description: str | None = None,
        *,
        timeout: float | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """The message is invalid; see `aio.Delivery.reject`."""
        within = unwrap(transaction)
        self._portal.run(
            lambda: self._delivery.reject(error, description, timeout=timeout, transaction=within)
        )

    def release(
        self, *, timeout: float | None = None, transaction: Transaction | None = None
    ) -> None:
        """The message was not looked at; see `aio.Delivery.release`."""
        within = unwrap(transaction)
        self._portal.run(lambda: self._delivery.release(timeout=timeout, transaction=within))

    def modify(
        self,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: dict[str, object] | None = None,
        timeout: float | None = None,
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
