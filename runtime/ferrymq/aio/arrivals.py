"""Arrivals: the messages of a receiver from their arrival to their outcome, and its credit.

The usual message and the usual outcome pass here, in few calls. All others are for the receiver and
its deliveries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import mypyc_attr

from ferrymq.aio.outcomes import ACCEPTED, RELEASED, as_granted
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq.aio.output_turn import OutputTurn
    from ferrymq.aio.waiting import Signal
    from ferrymq.engine.delivery import IncomingDelivery
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.message import Message
    from ferrymq_types.unions import Outcome

_running_loop: Final = asyncio._get_running_loop


@final
class Arrivals:
    """The messages of one receiver that have arrived, and the credit that follows from them.

    `queue` has those that nobody has taken, from which any thread may take. `plain` says whether a
    message is queued, and gets its outcome, without calls of the receiver and of the delivery.
    """

    __slots__ = (
        "queue",
        "in_hand",
        "attachment",
        "mixed",
        "prefetch",
        "bounds",
        "copies",
        "returns",
        "granted",
        "link",
        "turn",
        "over",
        "plain",
        "shared",
        "_loop",
        "_changed",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        changed: Signal,
        prefetch: int,
        bounds: bool,
        copies: bool,
        plain: bool,
        shared: bool,
    ) -> None:
        # In the blocking client other threads take from it at any time, so it is never replaced.
        self.queue: deque[Any] = deque()
        # How many deliveries have arrived and need an outcome, whether queued or taken, and the
        # number of the attachment that they came over.
        self.in_hand: int = 0
        self.attachment: int = 1
        # Whether the queue may have deliveries that need no outcome.
        self.mixed: bool = False
        # Messages that may be without an outcome; 0 leaves credit to the user.
        self.prefetch: int = prefetch
        # Whether messages that were taken use credit until they have an outcome.
        self.bounds: bool = bounds
        # Whether the messages stay in the node, so that they need no outcome.
        self.copies: bool = copies
        # Whether the client has to see to that, because the peer does not: all messages are given
        # back when the link ends.
        self.returns: bool = False
        # The outcomes that the source grants; None for all outcomes.
        self.granted: list[str] | None = None
        self.link: ReceiverLink | None = None
        self.turn: OutputTurn | None = None
        # Whether no message will come any more.
        self.over: bool = False
        self.plain: bool = plain
        # Whether threads may take messages, and give outcomes, without a call in the loop.
        self.shared: bool = shared
        self._loop: asyncio.AbstractEventLoop = loop
        self._changed: Signal = changed

    def begin(self, link: ReceiverLink, turn: OutputTurn) -> None:
        """Use a new attachment of the link."""
        self.link = link
        self.turn = turn

    def has_live(self, engine: IncomingDelivery) -> bool:
        """Return whether a delivery belongs to the current attachment, so that frames can name
        it."""
        link = engine.link
        return link is self.link and link.usable and engine.id >= 0

    def add(self, delivery: Arrival) -> None:
        """Queue a message, and count it if it needs an outcome."""
        if delivery._engine.remote_settled or self.copies:
            self.mixed = True
        else:
            delivery._hand = self.attachment
            self.in_hand += 1
        self.queue.append(delivery)

    def take(self) -> Any:
        """Take the next message. Raises IndexError if there is none."""
        queue = self.queue
        delivery: Arrival = queue.popleft()
        delivery._taken = True
        left = len(queue)
        if delivery._hand and self.bounds and self.in_hand - left == 1:
            # The outcome of this delivery will give credit; it is the only one that is held.
            return delivery
        if left * 2 <= self.prefetch:
            self.renew()
        return delivery

    def wake(self) -> None:
        """Wake the calls that wait for a message."""
        self._changed.wake()

    def hand_out(self, taken: Sequence[Arrival]) -> bool:
        """Mark messages that a thread has taken; return whether `renew` may have an effect."""
        wants = False
        for delivery in taken:
            delivery._taken = True
            wants = wants or not self.bounds or delivery._hand == 0
        return wants and len(self.queue) * 2 <= self.prefetch

    def limit(self) -> tuple[int, int]:
        """Return how many messages may be in flight or queued, and how many are queued."""
        prefetch = self.prefetch
        queue = self.queue
        in_hand = self.in_hand
        if not self.bounds or not prefetch or not in_hand:
            return prefetch, len(queue)
        if self.mixed:
            arrived = list(queue)
            queued = len(arrived)
            counted = sum([1 for delivery in arrived if delivery._hand])
        else:
            queued = counted = len(queue)
        return prefetch - in_hand + counted, queued

    def renew(self) -> None:
        """Give credit if at least as much is free as is in flight or queued: half of the credit
        when no message is taken, so that a flow serves many messages."""
        link = self.link
        limit, queued = self.limit()
        if limit > 0 and link is not None:
            if (link.credit + queued) * 2 <= limit and link.usable:
                link.set_credit(limit - queued)
                if self.turn is not None:
                    self.turn.soon()

    def retire(self, delivery: Arrival) -> None:
        """Give the credit of a delivery again that has its outcome, or was taken back."""
        hand = delivery._hand
        if hand:
            delivery._hand = 0
            if not delivery._taken:
                self.mixed = True
            if hand == self.attachment:
                self.in_hand -= 1
                # Most calls end here, because enough messages are queued.
                if len(self.queue) * 2 <= self.prefetch:
                    self.renew()


@mypyc_attr(allow_interpreted_subclasses=True)
class Arrival:
    """Base class of deliveries: a message that has arrived, and whether it has an outcome."""

    __slots__ = (
        "receiver",
        "transaction_id",
        "_arrivals",
        "_gone",
        "_engine",
        "_message",
        "_given",
        "_confirmed",
        "_listed",
        "_told",
        "_hand",
        "_taken",
    )

    def __init__(self, receiver: Any, engine: IncomingDelivery) -> None:
        arrivals: Arrivals = receiver._arrivals
        state = engine.remote_state
        self.receiver: Any = receiver
        self._arrivals: Arrivals = arrivals
        self._engine: IncomingDelivery = engine
        self._message: Message | None = None
        self._given: bool = False
        self._confirmed: asyncio.Future[None] | None = None
        # Whether an outcome has no effect: the node has taken the message back, or the outcome was
        # dropped.
        self._gone: bool = False
        # Whether its outcome was in our attach; whether the node may know the outcome.
        self._listed: bool = False
        self._told: bool = False
        # The number of the attachment that it came over; 0 if it needs no outcome, and once it has
        # one.
        self._hand: int = 0
        # Whether the user has taken it.
        self._taken: bool = False
        # The id of the transaction that the message was acquired in.
        self.transaction_id: bytes | None = (
            state.txn_id if isinstance(state, TransactionalState) else None
        )

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    @property
    def given(self) -> bool:
        """Whether it was given an outcome."""
        return self._given

    def settle_late(self, outcome: Outcome) -> None:
        """Give an outcome for which no caller waits any longer."""
        raise NotImplementedError

    def settles_at_once(self, outcome: Outcome) -> bool:
        """Return whether an outcome that the loop gives soon raises no error and waits for nothing,
        as far as any thread can tell now."""
        arrivals = self._arrivals
        engine = self._engine
        turn = arrivals.turn
        return (
            not (self._given or self._gone or arrivals.over or arrivals.returns or engine.second)
            and engine.remote_state is None
            and self.transaction_id is None
            and arrivals.shared
            and arrivals.has_live(engine)
            and (arrivals.granted is None or as_granted(outcome, arrivals.granted) is outcome)
            and turn is not None
            and not turn.paused
        )

    def settle_plainly(self, outcome: Outcome) -> bool:
        """Give an outcome, in the loop, if nothing else has to be done; return whether that was
        so."""
        arrivals = self._arrivals
        engine = self._engine
        turn = arrivals.turn
        if (
            turn is None
            or not arrivals.plain
            or engine.settled
            or engine.remote_settled
            or not self.settles_at_once(outcome)
            or _running_loop() is not arrivals._loop
        ):
            return False
        engine.settle(outcome)
        self._told = True
        self._given = True
        arrivals.retire(self)
        turn.soon()
        return True


def accept_late(delivery: Arrival) -> None:
    """Accept a delivery in the loop, when no caller waits for it any longer."""
    if not delivery.settle_plainly(ACCEPTED):
        delivery.settle_late(ACCEPTED)


def release_late(delivery: Arrival) -> None:
    """Release a delivery in the loop, when no caller waits for it any longer."""
    if not delivery.settle_plainly(RELEASED):
        delivery.settle_late(RELEASED)
