"""The producer of the traffic, which sends at full speed or at a rate, and counts messages."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import ferrymq
from ferrymq import Message
from ferrymq.aio.sender import Sender
from pyspark_ferrymq.traffic.ledger import Ledger
from pyspark_ferrymq.traffic.scenario import Traffic, TrafficEvent

# The highest number of messages without an outcome.
_ON_THEIR_WAY: Final = 1000
# The highest number of outcomes between two calls of `progress`.
_STRIDE: Final = 256


async def produce(
    connection: ferrymq.Connection,
    traffic: Traffic,
    progress: Callable[[int], None] | None = None,
) -> Ledger:
    """Send all messages, wait until each is accepted, and return their counts.

    With a `rate`, messages are sent at the times of the traffic's day. `progress` gets the number
    of newly accepted messages. The nodes must exist. Raises the client's errors: a `DeliveryError`
    for a message that was not accepted.
    """
    ledger = Ledger()
    senders: dict[str, Sender] = {}
    for place in traffic.places:
        senders[traffic.address(place)] = await connection.sender(traffic.address(place))
    window = _Window(progress)
    try:
        begun = time.monotonic()
        first: float | None = None
        for event in traffic.events():
            first = event.at if first is None else first
            if traffic.rate is not None:
                due = begun + (event.at - first) / traffic.speed
                if due > time.monotonic():
                    await window.collect()
                    await asyncio.sleep(due - time.monotonic())
            address = traffic.address(event.place)
            sender = senders[address]
            await sender.ready()
            await window.put(sender.send_nowait(message_of(event, _now())))
            ledger.enter(address, event)
        await window.empty()
    finally:
        window.forget()
        for sender in senders.values():
            if not sender.closed and not connection.closed:
                await sender.close()
    return ledger


def message_of(event: TrafficEvent, now: int) -> Message:
    """Return the message of an event that is sent at `now`, in milliseconds since 1970."""
    return Message(
        event.body,
        durable=True,
        message_id=event.message_id,
        subject=event.place.kind,
        content_type="application/json",
        creation_time=now - event.delay,
        group_id=event.key,
        application_properties={"schema": event.schema, "source": "ferrymq produce"},
    )


def _now() -> int:
    return time.time_ns() // 1_000_000


class _Window:
    """The messages without an outcome."""

    def __init__(self, progress: Callable[[int], None] | None) -> None:
        self._pending: deque[asyncio.Future[None]] = deque()
        self._progress = progress
        self._accepted = 0

    async def put(self, future: asyncio.Future[None]) -> None:
        """Add a message; wait for the oldest outcome if there are many."""
        self._pending.append(future)
        if len(self._pending) >= _ON_THEIR_WAY:
            await self._first()
        if self._pending and self._pending[0].done():
            await self.collect()

    async def collect(self) -> None:
        """Count the oldest messages that have an outcome."""
        while self._pending and self._pending[0].done():
            await self._first()
        self._tell()

    async def empty(self) -> None:
        """Wait for all outcomes."""
        while self._pending:
            await self._first()
        self._tell()

    def forget(self) -> None:
        """Drop all messages, ignoring their outcomes."""
        for future in self._pending:
            if not future.cancel() and not future.cancelled():
                # Retrieved, so that asyncio does not report the exception as unhandled.
                future.exception()

    async def _first(self) -> None:
        await self._pending[0]
        self._pending.popleft()
        self._accepted += 1
        if self._accepted >= _STRIDE:
            self._tell()

    def _tell(self) -> None:
        if self._progress is not None and self._accepted:
            self._progress(self._accepted)
        self._accepted = 0
