"""Messages of a sender that are in doubt after a loss and are sent again: see `ReconnectPolicy`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from ferrymq.aio.outbox import Outbox
from ferrymq.aio.waiting import resolve
from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.errors import AmqpError


class InDoubt(NamedTuple):
    """Message that the peer may have or not. `tag` is the user's name for the delivery."""

    payload: bytes
    tag: bytes | None
    future: asyncio.Future[None]


class Resending:
    """The messages of one sender that have no outcome, in the order of the sends.

    `in_flight` has their payloads, which the garbage collector does not visit; the `context` of a
    delivery is its future. `tags` are those that the user has given. `todo` has the messages that
    are sent again on the current attachment, before any new message.
    """

    def __init__(self) -> None:
        self.in_flight: dict[OutgoingDelivery, bytes] = {}
        self.tags: dict[OutgoingDelivery, bytes] = {}
        self.todo: deque[InDoubt] = deque()

    def forget(self, delivery: OutgoingDelivery) -> None:
        """Forget a delivery, because it has an outcome."""
        self.in_flight.pop(delivery, None)
        if self.tags:
            self.tags.pop(delivery, None)

    def lose(self) -> set[OutgoingDelivery]:
        """Put the messages in flight first in `todo`, and return their deliveries."""
        lost = set(self.in_flight)
        again: list[InDoubt] = []
        for delivery, payload in self.in_flight.items():
            future = delivery.context
            # A message whose caller has left is in doubt for good: nobody waits for it any longer.
            if isinstance(future, asyncio.Future) and not future.done():
                again.append(InDoubt(payload, self.tags.get(delivery), future))
        self.todo.extendleft(reversed(again))
        self.in_flight.clear()
        self.tags.clear()
        return lost

    def take_over(self, outbox: Outbox) -> set[OutgoingDelivery]:
        """Put deliveries that cannot be resumed first in `todo`, and return them. Those that the
        application settles itself stay in the outbox."""
        entries = [
            entry for entry in outbox.entries.values() if not entry.held and not entry.future.done()
        ]
        again = [InDoubt(entry.payload, entry.tag, entry.future) for entry in entries]
        self.todo.extendleft(reversed(again))
        for entry in entries:
            outbox.finish(entry)
        return {entry.delivery for entry in entries if entry.delivery is not None}

    def fail(self, error: AmqpError) -> None:
        """Fail all messages: the link has ended."""
        for one in self.todo:
            resolve(one.future, error)
        self.todo.clear()
        self.in_flight.clear()
        self.tags.clear()
