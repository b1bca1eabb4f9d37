"""Moves chosen messages out of a queue to other addresses, each exactly once.

A message is accepted in the queue and sent to its target in one AMQP transaction. The broker does
both or neither: even if a process is killed, every message is at exactly one of the two places. A
repeated run chooses again from the messages still in the queue. No state is kept elsewhere.

Spark chooses the messages; the driver moves them over one connection, as dead letters are few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import ferrymq
from ferrymq.aio.delivery import Delivery
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.sender import Sender
from ferrymq.errors import LinkDetached, TransactionRolledBack
from pyspark_ferrymq.errors import AmqpSourceError, AmqpWriteError
from pyspark_ferrymq.pipelines.sections import Sections

_PREFIX: Final = "x-opt-deadletter-"
SOURCE: Final = f"{_PREFIX}source"
_PATH: Final = f"{_PREFIX}path"
_TTL: Final = "x-opt-original-ttl"
# The messages in one transaction, and the messages requested at a time.
_TOGETHER: Final = 200


@dataclass(slots=True)
class Moved:
    """The result: numbers of moved messages by target, and of chosen messages not found."""

    targets: Counter[str] = field(default_factory=Counter)
    missing: int = 0


def fingerprint(raw: bytes) -> bytes:
    """Return a hash that identifies a message while it is in the queue.

    The hash leaves out the header, which counts deliveries. Messages that differ only in their
    headers have the same hash. Raises `DecodeError` for bytes that are not a message.
    """
    sections = Sections.split(raw)
    sections.header = None
    return blake2b(sections.join(), digest_size=16).digest()


def revived(raw: bytes) -> bytes:
    """Return the message to be sent again, with a delivery-count of 0 and its original ttl.

    The annotations with the reason stay. Only the path is removed: a person decided to send the
    message again, so it is not a loop.
    """
    sections = Sections.split(raw)
    sections.annotations.pop(_PATH, None)
    ttl = sections.annotations.pop(_TTL, None)
    header = sections.header
    if header is not None:
        header.delivery_count = 0
        header.first_acquirer = False
        if isinstance(ttl, int):
            header.ttl = ttl
    return sections.join()


def source_of(raw: bytes) -> str | None:
    """Return the queue a dead letter comes from; None if the message does not say."""
    source = Sections.split(raw).annotations.get(SOURCE)
    return str(source) if isinstance(source, str) else None


async def move(
    connection: ferrymq.Connection,
    queue: str,
    chosen: Counter[bytes],
    target: str | None,
    progress: Callable[[int], None] | None = None,
) -> Moved:
    """Move the messages with the fingerprints `chosen`, each as often as `chosen` counts it.

    They are moved to the address `target`, or, if `target` is None, each back to its original
    queue. Other messages are held while this runs, and then released unchanged. Raises
    `AmqpSourceError` if a target does not exist, and `AmqpWriteError` if a target refuses a
    message. In both cases messages that were moved before stay moved, and the others stay in the
    queue.
    """
    moved = Moved()
    left = Counter(chosen)
    senders: dict[str, Sender] = {}
    held: list[Delivery] = []
    receiver = await connection.receiver(queue, credit=0)
    try:
        while left.total():
            found = await _next(receiver)
            if not found:
                break
            batch: list[tuple[Delivery, str]] = []
            for delivery in found:
                held.append(delivery)
                if delivery.message_format:
                    # A message whose format is not AMQP's would arrive changed.
                    continue
                mark = fingerprint(delivery.payload)
                if left[mark]:
                    left[mark] -= 1
                    batch.append((delivery, target or _home(delivery, queue)))
            if batch:
                for _, address in batch:
                    if address not in senders:
                        senders[address] = await _sender(connection, address)
                await _commit(connection, senders, batch, queue)
                moved.targets.update(address for _, address in batch)
                if progress is not None:
                    progress(len(batch))
    finally:
        if not connection.closed and not receiver.closed:
            for delivery in held:
                if not delivery.settled:
                    await delivery.release()
            await receiver.close()
    moved.missing = left.total()
    return moved


async def _next(receiver: Receiver) -> list[Delivery]:
    """Return the next messages, up to a batch; none if the queue has no more."""
    receiver.add_credit(_TOGETHER)
    await receiver.drain()
    return await receiver.receive_many(receiver.queued) if receiver.queued else []


def _home(delivery: Delivery, queue: str) -> str:
    source = source_of(delivery.payload)
    if source is None:
        raise AmqpSourceError(
            f"a message in {queue!r} does not name its original queue ({SOURCE}); leave out such"
            " messages with --where 'source IS NOT NULL', or give --move-to ADDRESS"
        )
    return source


async def _sender(connection: ferrymq.Connection, address: str) -> Sender:
    try:
        return await connection.sender(address)
    except LinkDetached as error:
        said = error.error.description if error.error is not None else str(error)
        raise AmqpSourceError(f"nothing can be sent to {address!r}: {said}") from None


async def _commit(
    connection: ferrymq.Connection,
    senders: dict[str, Sender],
    batch: list[tuple[Delivery, str]],
    queue: str,
) -> None:
    try:
        async with connection.transaction() as transaction:
            for address, sender in senders.items():
                mine = [delivery for delivery, to in batch if to == address]
                errors = await sender.send_encoded(
                    [revived(delivery.payload) for delivery in mine], transaction=transaction
                )
                for error in errors.values():
                    raise AmqpWriteError(f"{address!r} refuses a message: {error}")
                for delivery in mine:
                    await delivery.accept(transaction=transaction)
    except TransactionRolledBack as error:
        raise AmqpWriteError(
            f"{len(batch)} messages stay in {queue!r}: they cannot be moved: {error}"
        ) from None
