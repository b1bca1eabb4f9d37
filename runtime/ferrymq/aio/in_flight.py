"""Messages in flight: those that a sender has sent and that have no outcome yet.

The usual message and the usual outcome pass here, in few calls. All others are the sender's.
"""

from __future__ import annotations

import asyncio
from asyncio import InvalidStateError
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.sendable import to_message
from ferrymq_types.messaging import Accepted

if TYPE_CHECKING:
    from ferrymq.aio.output_turn import OutputTurn
    from ferrymq.engine.sender import SenderLink
    from ferrymq.sendable import Sendable

_FUTURE: Final = asyncio.Future
_running_loop: Final = asyncio._get_running_loop


@final
class InFlight:
    """The unsettled deliveries of one sender. The `context` of a delivery is the future of its
    outcome.

    `plain` says whether the usual outcome needs no more than is done here. `waiting` is the number
    of calls that wait for their turn: no message may overtake theirs.
    """

    __slots__ = (
        "deliveries",
        "waiting",
        "alone",
        "plain",
        "_loop",
        "_usual",
        "_link",
        "_turn",
        "_payloads",
        "_tags",
        "_todo",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, plain: bool) -> None:
        self.deliveries: set[OutgoingDelivery] = set()
        self.waiting: int = 0
        # Whether messages are sent one after the other, each after the outcome of the one before.
        self.alone: bool = True
        self.plain: bool = plain
        self._loop: asyncio.AbstractEventLoop = loop
        # Whether its futures are those of asyncio. Without the argument `loop` such a future takes
        # the loop that runs in this thread: that is quicker than to look for the loop first.
        self._usual: bool = type(loop).create_future is asyncio.BaseEventLoop.create_future
        self._link: SenderLink | None = None
        self._turn: OutputTurn | None = None
        # What is sent again after a loss: `ferrymq.aio.resending`.
        self._payloads: dict[OutgoingDelivery, bytes] | None = None
        self._tags: dict[OutgoingDelivery, bytes] | None = None
        self._todo: deque[Any] | None = None

    def keep_payloads(
        self,
        payloads: dict[OutgoingDelivery, bytes],
        tags: dict[OutgoingDelivery, bytes],
        todo: deque[Any],
    ) -> None:
        """Keep what has no outcome in the maps of `ferrymq.aio.resending`."""
        self._payloads = payloads
        self._tags = tags
        self._todo = todo

    def begin(self, link: SenderLink, turn: OutputTurn) -> None:
        """Use a new attachment of the link."""
        if self.plain:
            self._link = link
            self._turn = turn

    def end(self) -> None:
        """Send nothing any more, because the link is over."""
        self._link = None

    def send(self, message: Sendable) -> asyncio.Future[None] | None:
        """Send a message if that needs nothing but credit and room for writing, which are there.
        Return the future of its outcome; None if nothing was sent.

        Raises `TypeError` for anything that is no message, `EncodeError`, and `LocalProtocolError`
        when the message is larger than the peer accepts.
        """
        if self.waiting != 0 or not self._ready():
            return None
        future = self._new_future()
        if future is not None:
            self._send(to_message(message, "send").encode(), future)
        return future

    def send_waiting(self, payload: bytes, future: asyncio.Future[None]) -> bool:
        """Send the message of a call that has waited for its turn, as `send` does; return whether
        it was sent."""
        ready = self._ready()
        if ready:
            self._send(payload, future)
        return ready

    def _ready(self) -> bool:
        """Return whether a usual message can be sent now."""
        link = self._link
        turn = self._turn
        return (
            link is not None
            and turn is not None
            and link.usable
            and link.credit > 0
            and link.parked == 0
            and not link.always_settled
            and not turn.paused
            and not self._todo
        )

    def _send(self, payload: bytes, future: asyncio.Future[None]) -> None:
        link = self._link
        turn = self._turn
        assert link is not None and turn is not None
        delivery = link.send(payload)
        delivery.context = future
        alone = self.add(delivery)
        if self._payloads is not None:
            self._payloads[delivery] = payload
        turn.write_soon(alone)

    def _new_future(self) -> asyncio.Future[None] | None:
        """Make a future of the loop; None if the loop does not run in this thread."""
        if self._usual:
            try:
                future: asyncio.Future[None] = _FUTURE()
            except RuntimeError:
                return None
            return future if future.get_loop() is self._loop else None
        return self._loop.create_future() if _running_loop() is self._loop else None

    def add(self, delivery: OutgoingDelivery) -> bool:
        """Add a delivery that was sent. Return whether it is sent alone, and so should be written
        at once. If another one joins it before its outcome has come, the next ones are gathered
        again."""
        deliveries = self.deliveries
        alone = self.alone and not deliveries
        self.alone = not deliveries
        deliveries.add(delivery)
        return alone

    def end_accepted(self, delivery: OutgoingDelivery) -> bool:
        """Handle an outcome if it is the usual one; return whether it was."""
        if not self.plain or not isinstance(delivery.remote_state, Accepted):
            return False
        delivery.settle()
        self.deliveries.discard(delivery)
        if self._payloads is not None:
            self._payloads.pop(delivery, None)
            if self._tags:
                self._tags.pop(delivery, None)
        future = delivery.context
        if isinstance(future, _FUTURE):
            try:
                future.set_result(None)
            except InvalidStateError:
                # The call was cancelled.
                pass
        return True
