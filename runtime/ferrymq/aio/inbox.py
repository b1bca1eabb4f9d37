"""Unsettled deliveries of a receiver, kept so that they can be resumed (AMQP 1.0 §2.6.13).

A link from a durable source is attached again with the tags and states of all deliveries that the
application holds or that have arrived in part. The sender has settled the deliveries that it leaves
out, and resumes the others; the application's deliveries then continue unchanged.

Maps that do not fit into a frame are resumed in rounds: while a map is incomplete no new delivery
comes, and when enough deliveries are settled the link is detached and attached again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from weakref import ref

from ferrymq.aio.delivery import Delivery
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import ConnectionClosed
from ferrymq.unsettled import Unsettled
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq.aio.receiver import Receiver

# How often a link is attached again although no delivery was settled in between.
_MOST_ROUNDS: Final = 100


class Inbox:
    """Unsettled deliveries of one receiver."""

    def __init__(self, receiver: Receiver, given: Iterable[Unsettled] | None) -> None:
        self.receiver = receiver
        # Whether the peer keeps its half. If not, these deliveries are lost with the connection.
        self.keeping: bool = False
        # Deliveries of an earlier process that had an outcome.
        self.decided: list[Delivery] = []
        self._given = None if given is None else list(given)
        # For the current attachment: how many tags had room in the map, which of them still have to
        # end before another round, how many are left, how many rounds were in vain.
        self._listed = 0
        self._order: list[bytes] = []
        self._live: set[bytes] = set()
        self._left = 0
        self._rounds = 0
        self._partial = False

    @property
    def partial(self) -> bool:
        """Whether the current attachment was resumed with an incomplete map."""
        return self._partial

    # ── Attaching ──────────────────────────────────────────────────────────────────────────────

    def to_resume(
        self, session: EngineSession, name: str, earlier: ReceiverLink | None
    ) -> dict[bytes, IncomingDelivery] | None:
        """Return the unsettled deliveries to attach with; None to begin without resuming."""
        if earlier is None:
            return None if self._given is None else self._from_given(session, name, self._given)
        if not self.keeping:
            return None
        tags = [tag for tag, delivery in earlier.unsettled.items() if not delivery.settled]
        if self._partial and self._listed < len(tags):
            # Deliveries other than in the round before have room now.
            tags = tags[self._listed :] + tags[: self._listed]
        result: dict[bytes, IncomingDelivery] = {}
        for tag in tags:
            delivery = earlier.unsettled[tag]
            if isinstance(delivery.state, TransactionalState):
                # Its transaction has ended.
                delivery.state = None
            given = delivery.context() if isinstance(delivery.context, ref) else None
            if isinstance(given, Delivery):
                given.on_listed()
            result[tag] = delivery
        self._order = tags
        return result

    def forgo(self, session: EngineSession, name: str) -> None:
        """Stop resuming: the peer keeps no unsettled deliveries, and the node delivers their
        messages again."""
        self.keeping = False
        given, self._given = self._given, None
        self._from_given(session, name, [one for one in given or () if one.state is not None])
        for delivery in self.decided:
            delivery.lose(ConnectionClosed("the peer resumes no links"))

    def _from_given(
        self, session: EngineSession, name: str, given: list[Unsettled]
    ) -> dict[bytes, IncomingDelivery]:
        result: dict[bytes, IncomingDelivery] = {}
        link = ReceiverLink(session, name, True)
        for one in given:
            if one.tag in result or len(one.tag) > 32:
                raise ValueError(f"delivery-tag {one.tag!r} is there twice, or too long")
            engine = IncomingDelivery(link, -1, one.tag, one.message_format)
            engine.payload = one.payload
            engine.state = one.state
            engine.complete = True
            delivery = self.receiver.delivery_type(self.receiver, engine)
            engine.context = ref(delivery)
            result[one.tag] = engine
            if one.state is None:
                self.receiver.on_given(delivery)
            else:
                delivery.decide()
                self.decided.append(delivery)
        self._order = list(result)
        return result

    def begin(self, engine: ReceiverLink, keeping: bool) -> int:
        """Begin after the attach; return the number of deliveries that the sender may resume."""
        self.keeping = keeping
        resumption = engine.resumption
        attach = engine.remote_attach
        if resumption is None or attach is None:
            self._partial = False
            return 0
        self._left = len(resumption.unsettled)
        self._listed = len(self._order) if resumption.complete else int(resumption.listed)
        self._partial = attach.incomplete_unsettled or not resumption.complete
        if not self._partial:
            self._rounds = 0
            return self._left
        remote = attach.unsettled or {}
        self._live = {
            tag
            for tag in self._order[: self._listed]
            if tag in remote and tag in resumption.unsettled
        }
        return self._left

    # ── Rounds ─────────────────────────────────────────────────────────────────────────────────

    def on_settled(self, delivery: Delivery) -> None:
        """Forget a delivery that is settled on both sides."""
        if self._partial:
            self._live.discard(delivery.tag)
            self._left -= 1
            self._rounds = 0

    def round_over(self, engine: ReceiverLink) -> bool:
        """Return whether to attach again: the map has room for all deliveries, or no other work is
        left."""
        if not self._partial or not engine.usable:
            return False
        resumption = engine.resumption
        if resumption is not None and not resumption.complete and self._left <= self._listed:
            return True
        return not self._live

    def count_round(self) -> bool:
        """Count a round; return false if the rounds make no progress."""
        self._rounds += 1
        return self._rounds <= _MOST_ROUNDS
