"""Senders to streams whose partitions are on several brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ferrymq.aio.opening import Opened
from ferrymq.aio.waiting import all_accepted, all_of, deadline, give_up
from ferrymq.durations import Duration
from ferrymq.errors import AmqpError, LinkDetached, PeerError
from ferrymq.partitioning import (
    PARTITION,
    PARTITION_KEY,
    PARTITIONS_ON,
    parse_placement,
    partition_of_key,
)
from ferrymq.sendable import Sendable, check_messages, to_message
from ferrymq_codec.scalars import Timestamp

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.sender import Sender
    from ferrymq.aio.session import Session
    from ferrymq.aio.transaction import Transaction
    from ferrymq.message import Message
    from ferrymq.options import SenderOptions, Timeout

LOGGER: Final = logging.getLogger("ferrymq")

# The number of the link to the whole stream, whose partitions the broker chooses.
_WHOLE: Final = -1


class PartitionedSender(Opened):
    """Sender to a stream whose partitions may be on several brokers. Made by
    `Connection.partitioned_sender`.

    Each message goes to one partition: that of the message annotation ``x-opt-partition``; else the
    one of its key, which is the message annotation ``x-opt-partition-key`` or the property
    group-id; without either, partitions take turns. Messages with one key stay in the order of the
    calls. The links to partitions are attached when they are needed first. If the stream is on one
    broker, there is one link, and the broker chooses partitions in the same way.
    """

    def __init__(
        self, connection: Connection, address: str, options: SenderOptions, max_age: float | None
    ) -> None:
        self._connection = connection
        self._address = address
        self._options = options
        self._max_age = max_age
        # The URLs of the broker of each partition; None if the stream is on one broker.
        self._placement: list[tuple[str, ...]] | None = None
        # When the placement was read, by the clock of the loop.
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._senders: dict[int, Sender] = {}
        # Callers get the sender of a partition in turn, so that none overtakes an earlier one.
        self._turns: dict[int, asyncio.Lock] = {}
        self._next = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<partitioned sender to {self._address!r}{', closed' if self.closed else ''}>"

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> str:
        """The stream."""
        return self._address

    @property
    def partitions(self) -> int | None:
        """Number of partitions; None if the stream is on one broker, which chooses the
        partition."""
        return None if self._placement is None else len(self._placement)

    @property
    def placement(self) -> list[tuple[str, ...]] | None:
        """URLs of the broker of each partition, by number; None if the stream is on one broker."""
        return None if self._placement is None else list(self._placement)

    @property
    def closed(self) -> bool:
        """Whether the sender is over."""
        return self._closed or self._connection.closed

    async def send(
        self,
        message: Sendable,
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send one message to its partition, and wait until the broker has accepted it; see
        `Sender.send`.

        A `transaction` is on one broker: `LocalProtocolError` if the partition is on another one.

        Also raises ValueError if the message names a partition that does not exist, TypeError for a
        key that is no text and no bytes, and what connecting to another broker and attaching there
        raise.
        """
        ready = to_message(message, "send")
        async with deadline(timeout, self._not_accepted):
            sender = await self._sender_for(ready)
            await sender.send(ready, settled=settled, transaction=transaction)

    async def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        settled: bool = False,
        timeout: Duration | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Send messages one after the other as credit allows, each to its partition, and wait for
        all their outcomes.

        Raises an `ExceptionGroup` of `DeliveryError`, each with a note that tells which message,
        when some were not accepted, and else as `send` does.
        """
        check_messages(messages, "send_many")
        futures: list[asyncio.Future[None]] = []
        try:
            async with deadline(timeout, self._not_accepted):
                for message in messages:
                    ready = to_message(message, "send_many")
                    sender = await self._sender_for(ready)
                    await sender.ready()
                    futures.append(
                        sender.send_nowait(ready, settled=settled, transaction=transaction)
                    )
                await all_accepted(futures)
        finally:
            give_up(futures)

    async def close(self, *, timeout: Timeout = "default") -> None:
        """Close the links to all partitions; see `Sender.close`. Closing twice is harmless."""
        self._closed = True
        senders = list(self._senders.values())
        self._senders.clear()
        await all_of(sender.close(timeout=timeout) for sender in senders)

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    async def read_placement(self) -> None:
        """Ask where the partitions are, by attaching a link to the whole stream: a broker refuses
        that, and says where, if other brokers have some of them. Raises as `Connection.sender`."""
        try:
            whole = await self._connection.attach(
                self._address, lambda session, place: session.open_sender(place, self._options)
            )
        except LinkDetached as error:
            placement = _placement_in(error)
            if placement is None:
                raise
            self._placement = placement
        else:
            self._placement = None
            self._senders[_WHOLE] = whole
        self._read_at = asyncio.get_running_loop().time()

    async def _refresh(self) -> None:
        """Read the placement again if it is too old."""
        if self._max_age is None or self._placement is None:
            return
        loop = asyncio.get_running_loop()
        async with self._reading:
            if loop.time() - self._read_at < self._max_age:
                return
            # If the first broker cannot answer, the others still can take messages.
            self._read_at = loop.time()
            try:
                await self.read_placement()
            except (AmqpError, TimeoutError) as error:
                LOGGER.debug("%r: the placement could not be read again: %s", self, error)

    async def _sender_for(self, message: Message) -> Sender:
        """Return the attached sender of the partition of a message."""
        await self._refresh()
        while True:
            number = self._partition_of(message)
            turn = self._turns.setdefault(number, asyncio.Lock())
            async with turn:
                if self._closed:
                    raise LinkDetached(f"{self._address!r}: the sender was closed")
                sender = self._senders.get(number)
                if sender is not None and not sender.closed:
                    return sender
                if number != _WHOLE:
                    sender = self._senders[number] = await self._attach(number)
                    return sender
                # The stream may be on several brokers now.
                await self.read_placement()

    def _partition_of(self, message: Message) -> int:
        if self._placement is None:
            return _WHOLE
        count = len(self._placement)
        number = _chosen(message, count)
        if number is None:
            number = self._next % count
            self._next = number + 1
        return number

    async def _attach(self, number: int) -> Sender:
        name = self._options.name
        # The class of the name says whether the user has chosen it.
        options = replace(self._options, name=type(name)(f"{name}-{number}"))
        address = f"{self._address}::{number}"

        async def attach(session: Session, place: str) -> Sender:
            return await session.open_sender(place, options)

        redirects = self._connection.link_redirects
        if redirects is None or self._placement is None:
            return await self._connection.attach(address, attach)
        return await redirects.attach_at(self._placement[number], address, attach)

    def _not_accepted(self, within: str) -> str:
        return f"messages to {self._address!r} were not accepted {within}{self._connection.delay}"


def _placement_in(error: PeerError) -> list[tuple[str, ...]] | None:
    """Return the placement in the error for a link to a whole stream; None if it has none."""
    info = None if error.error is None else error.error.info
    entries = None if info is None else info.get(PARTITIONS_ON)
    if not isinstance(entries, list) or not entries:
        return None
    try:
        return parse_placement([str(entry) for entry in entries])
    except ValueError:
        return None


def _chosen(message: Message, partitions: int) -> int | None:
    """Return the partition that a message chooses, as the broker does; None if it does not."""
    annotations = message.message_annotations
    number = annotations.get(PARTITION)
    if number is not None:
        if isinstance(number, bool | Timestamp) or not isinstance(number, int):
            raise TypeError(f"{PARTITION} is an int, not {type(number).__name__}")
        if not 0 <= number < partitions:
            raise ValueError(
                f"{PARTITION} is {number}; the stream has the partitions 0 to {partitions - 1}"
            )
        return number
    key = annotations.get(PARTITION_KEY)
    if key is None:
        key = message.group_id
    if key is None:
        return None
    if isinstance(key, str):
        key = key.encode()
    if not isinstance(key, bytes):
        raise TypeError(f"{PARTITION_KEY} is a str or bytes, not {type(key).__name__}")
    return partition_of_key(key, partitions)
