"""Targets that outlive their links: received deliveries, and the outcomes that their sender was
told.

In receiver-settle-mode second a delivery is remembered until its sender settles it. In mode first
the broker has settled it at once, and its sender may not know that: the last `WINDOW` deliveries
are remembered. There can be no more than the client's credit allowed (twice that, because an
outcome may come after the credit in what the client reads). A sender that attaches again sends its
unsettled map, and the broker answers with what it knows of these deliveries (AMQP 1.0 §2.6.13); all
others are settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_broker.connections.durable_links.link_identity import LinkIdentity
from ferrymq_broker.connections.durable_links.records import encode_received
from ferrymq_broker.connections.durable_links.tags import Tags
from ferrymq_broker.connections.durable_links.terminus import Terminus
from ferrymq_broker.connections.seen_tags import WINDOW
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.tables import DELIVERY
from ferrymq_types.messaging import Accepted

if TYPE_CHECKING:
    from ferrymq_broker.connections.durable_links.registry import TerminusRegistry
    from ferrymq_broker.transactions.txn_publish import TxnPublish
    from ferrymq_types.messaging import Target
    from ferrymq_types.unions import DeliveryState, Outcome


@final
class UnsettledReceive:
    """A delivery: the `number` of its record, 0 without one, and the `outcome` that its sender is
    told."""

    __slots__ = ("number", "outcome")

    def __init__(self, number: i64, outcome: Outcome) -> None:
        self.number: i64 = number
        self.outcome: Outcome = outcome


@final
class TargetTerminus(Terminus):
    """The target of one sender: the deliveries that the broker remembers, by their tags."""

    __slots__ = ("known", "once", "provisional", "_settled", "_earlier", "_number")

    def __init__(self, identity: LinkIdentity, termini: TerminusRegistry, told: Target) -> None:
        super().__init__(identity, termini, told)
        self.known: dict[bytes, UnsettledReceive] = {}
        # Whether a repeated delivery is recognised by its tag.
        self.once: bool = False
        # Messages of open transactions, by tag.
        self.provisional: dict[bytes, TxnPublish] = {}
        # Deliveries that the broker has settled, in order.
        self._settled: dict[bytes, None] = {}
        # The tags of deliveries that may come again as new ones.
        self._earlier: dict[bytes, None] = {}
        self._number: i64 = 0

    def unsettled(self) -> int:
        """Return the number of remembered deliveries."""
        return len(self.known)

    # -- while a link is attached ----------------------------------------------------------------

    def add(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool) -> None:
        """Remember the outcome of a delivery; `kept` is whether it is stored."""
        if self.gone:
            # A message of a transaction that is discharged after the end of its link.
            return
        tag = delivery.tag
        if tag in self.known:
            self.forget(tag)
        number: i64 = 0
        if kept and self.store_id != 0 and self.durable > 1:
            self._number += 1
            number = self._number
            value = encode_received(tag, outcome)
            self.changes().put(DELIVERY, self.store_id, number, value)
        self.known[tag] = UnsettledReceive(number, outcome)
        if not delivery.second:
            settled = self._settled
            settled[tag] = None
            if len(settled) > 2 * WINDOW:
                self.forget(next(iter(settled)))

    def forget(self, tag: bytes) -> None:
        """Forget a delivery whose outcome the sender knows, or will not ask for."""
        received = self.known.pop(tag, None)
        if received is None:
            return
        self._settled.pop(tag, None)
        self._earlier.pop(tag, None)
        if received.number != 0:
            self.changes().drop(DELIVERY, self.store_id, received.number)

    def is_resent(self, tag: bytes) -> bool:
        """Return whether the delivery was accepted on an earlier attachment; true only once."""
        if tag in self._earlier:
            del self._earlier[tag]
            return True
        return False

    def on_settlement(self, delivery: IncomingDelivery) -> None:
        """Forget a delivery that its sender settles after the link was detached.

        The sender may do so while the session exists (AMQP 1.0 §2.7.6).
        """
        if not self.attached and delivery.link is self.link and delivery.remote_settled:
            self.forget(delivery.tag)

    def restore(self, tag: bytes, number: i64, outcome: Outcome) -> None:
        """Restore a stored delivery."""
        self.known[tag] = UnsettledReceive(number, outcome)
        if number > self._number:
            self._number = number

    # -- attaching again -------------------------------------------------------------------------

    def resume(self, link: ReceiverLink) -> None:
        """Compare with the unsettled map of the client's attach; called before the answer.

        A client without a map starts from the beginning. Deliveries that are missing in a complete
        map have been settled.
        """
        self._earlier = {}
        if not link.settles_second:
            # Restored deliveries may have been of either settle mode.
            for tag in self.known:
                self._settled[tag] = None
        attach = link.remote_attach
        asked = None if attach is None else attach.unsettled
        if attach is None or asked is None:
            if self.once:
                for tag, received in self.known.items():
                    if isinstance(received.outcome, Accepted):
                        self._earlier[tag] = None
            else:
                self._forget_all()
            return
        unsettled: dict[bytes, IncomingDelivery] = {}
        for tag in list(self.known):
            if tag in asked:
                unsettled[tag] = _as_delivery(link, tag, self.known[tag].outcome)
            elif not attach.incomplete_unsettled:
                self.forget(tag)
        for tag, posting in self.provisional.items():
            if tag in asked or attach.incomplete_unsettled:
                unsettled[tag] = posting.resume_on(link)
        if attach.incomplete_unsettled:
            # These come after those in the client's map, in case there is not room for all.
            for tag in self.known:
                if tag not in unsettled:
                    unsettled[tag] = _as_delivery(link, tag, self.known[tag].outcome)
        link.resume_from(unsettled)

    def _forget_all(self) -> None:
        if self.known and self.store_id != 0:
            self.changes().drop_range(DELIVERY, self.store_id, 0, LAST)
        self.known = {}
        self._settled = {}

    def release(self) -> None:
        """Forget all deliveries, because the terminus has ended. Published messages stay."""
        self.known = {}
        self._settled = {}
        self._earlier = {}


def _as_delivery(link: ReceiverLink, tag: bytes, state: DeliveryState) -> IncomingDelivery:
    """Make a delivery of an earlier link, for the unsettled map of this link."""
    delivery = IncomingDelivery(link, -1, tag, 0)
    delivery.complete = True
    delivery.state = state
    return delivery


@final
class RememberedTags(Tags):
    """The tags of a link whose target outlives it; `number` values are those of the link."""

    __slots__ = ("terminus", "session", "connection")

    def __init__(self, terminus: TargetTerminus, session: i64, connection: i64) -> None:
        self.terminus: TargetTerminus = terminus
        self.session: i64 = session
        self.connection: i64 = connection

    def is_resent(self, tag: bytes) -> bool:
        """Return whether it was accepted on an earlier attachment."""
        return self.terminus.is_resent(tag)

    def add(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool) -> None:
        """Remember an outcome: see `Tags.add`."""
        self.terminus.add(delivery, outcome, kept)

    def posting(self, tag: bytes) -> TxnPublish | None:
        """Return the message with this tag that is part of an open transaction."""
        return self.terminus.provisional.get(tag)

    def add_posting(self, tag: bytes, posting: TxnPublish) -> None:
        """Remember a message that is part of a transaction."""
        self.terminus.provisional[tag] = posting

    def end_posting(self, tag: bytes) -> None:
        """Forget a message of a transaction that is over."""
        self.terminus.provisional.pop(tag, None)

    def forget(self, tag: bytes) -> None:
        """Forget a delivery whose outcome the sender knows."""
        self.terminus.forget(tag)

    def is_full(self) -> bool:
        """Return whether the sender has left too much unsettled."""
        terminus = self.terminus
        return len(terminus.known) >= terminus.most_unsettled()

    def leave(self, lost: bool, closed: bool) -> None:
        """Note that the link is gone."""
        terminus = self.terminus
        if closed:
            terminus.end()
        else:
            terminus.leave(self.session, self.connection, lost)
