"""Targets that outlive their links: what was received, and what its sender was told.

In receiver-settle-mode second a delivery is remembered until its sender settles. In mode first the
broker has settled it at once, and its sender may never have heard of that: the last `WINDOW` are
remembered, of which there can be no more than the client was given credit for (twice that, for an
outcome may be behind the credit in what the client reads). A sender that attaches again asks about
what it has in its unsettled map, and is answered with what the broker knows of that
(AMQP 1.0 §2.6.13); what it does not have it has settled.
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
    """A delivery: the `number` of its record, 0 without one; the `outcome` its sender is told."""

    __slots__ = ("number", "outcome")

    def __init__(self, number: i64, outcome: Outcome) -> None:
        self.number: i64 = number
        self.outcome = outcome


@final
class TargetTerminus(Terminus):
    """The target of one sender: what the broker knows of its deliveries, by their tags."""

    __slots__ = ("known", "once", "provisional", "_settled", "_earlier", "_number")

    def __init__(self, identity: LinkIdentity, termini: TerminusRegistry, told: Target) -> None:
        super().__init__(identity, termini, told)
        self.known: dict[bytes, UnsettledReceive] = {}
        # Whether a delivery that comes again as a new one is known by its tag.
        self.once = False
        # Messages of transactions that are not discharged yet, by tag.
        self.provisional: dict[bytes, TxnPublish] = {}
        # The deliveries that the broker has settled, in order.
        self._settled: dict[bytes, None] = {}
        # The tags of deliveries that may come again as new ones.
        self._earlier: dict[bytes, None] = {}
        self._number: i64 = 0

    def unsettled(self) -> int:
        """Return how many deliveries it remembers."""
        return len(self.known)

    # -- while a link is attached ----------------------------------------------------------------

    def add(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool) -> None:
        """Remember the outcome of a delivery; it is on record if it is `kept`."""
        if self.gone:
            # A message of a transaction that is discharged behind the end of its link.
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
        """Return whether it was accepted on an earlier attachment; told once."""
        if tag in self._earlier:
            del self._earlier[tag]
            return True
        return False

    def on_settlement(self, delivery: IncomingDelivery) -> None:
        """Forget a delivery that its sender settles although the link was detached.

        The sender may do so while the session lasts (AMQP 1.0 §2.7.6).
        """
        if not self.attached and delivery.link is self.link and delivery.remote_settled:
            self.forget(delivery.tag)

    def restore(self, tag: bytes, number: i64, outcome: Outcome) -> None:
        """Restore a delivery that was stored."""
        self.known[tag] = UnsettledReceive(number, outcome)
        if number > self._number:
            self._number = number

    # -- attaching again -------------------------------------------------------------------------

    def resume(self, link: ReceiverLink) -> None:
        """Compare with the unsettled map of the client's attach; to be called before the answer.

        A client without a map begins anew. Of a complete one, what is missing has been settled.
        """
        self._earlier = {}
        if not link.settles_second:
            # Deliveries that were restored may have been of either mode.
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
            # They come behind those asked for, in case there is no room for all.
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
        """Forget all deliveries: the terminus has come to its end. What was published stays."""
        self.known = {}
        self._settled = {}
        self._earlier = {}


def _as_delivery(link: ReceiverLink, tag: bytes, state: DeliveryState) -> IncomingDelivery:
    """Make the delivery of an earlier link, for the unsettled map of this one."""
    delivery = IncomingDelivery(link, -1, tag, 0)
    delivery.complete = True
    delivery.state = state
    return delivery


@final
class RememberedTags(Tags):
    """The tags of a link whose target outlives it; the numbers are those of the link."""

    __slots__ = ("terminus", "session", "connection")

    def __init__(self, terminus: TargetTerminus, session: i64, connection: i64) -> None:
        self.terminus = terminus
        self.session: i64 = session
        self.connection: i64 = connection

    def is_resent(self, tag: bytes) -> bool:
        """Return whether it was accepted on an earlier attachment."""
        return self.terminus.is_resent(tag)

    def add(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool) -> None:
        """Remember an outcome: see `Tags.add`."""
        self.terminus.add(delivery, outcome, kept)

    def posting(self, tag: bytes) -> TxnPublish | None:
        """Return the message of a transaction that is not discharged yet, posted under this tag."""
        return self.terminus.provisional.get(tag)

    def add_posting(self, tag: bytes, posting: TxnPublish) -> None:
        """Remember a message that is posted in a transaction."""
        self.terminus.provisional[tag] = posting

    def end_posting(self, tag: bytes) -> None:
        """Forget a message that was posted: its transaction is over."""
        self.terminus.provisional.pop(tag, None)

    def forget(self, tag: bytes) -> None:
        """Forget a delivery whose outcome the sender knows."""
        self.terminus.forget(tag)

    def is_full(self) -> bool:
        """Return whether the sender has settled too little."""
        terminus = self.terminus
        return len(terminus.known) >= terminus.most_unsettled()

    def leave(self, lost: bool, closed: bool) -> None:
        """Take note that the link is gone."""
        terminus = self.terminus
        if closed:
            terminus.end()
        else:
            terminus.leave(self.session, self.connection, lost)
