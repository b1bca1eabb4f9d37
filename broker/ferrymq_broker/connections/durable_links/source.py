"""Sources that outlive their links: what was sent, and has no outcome yet (AMQP 1.0 §2.6.13).

Every delivery is on record before it leaves the broker. While no link is attached, a stand-in
holds the message: nobody else gets it. The outcome and the end of the record are in one batch, so
that the broker has either the delivery or its outcome, whatever happens. An outcome that has been
applied need not be remembered: a delivery of which only the receiver knows is settled.

A delivery may become part of a transaction, which decides on it from then on: should the link go
before the transaction ends, it is *lent* to that, and not resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.sender import SenderLink
from ferrymq_broker.connections.durable_links.link_identity import LinkIdentity
from ferrymq_broker.connections.durable_links.records import encode_sent
from ferrymq_broker.connections.durable_links.terminus import Terminus
from ferrymq_broker.connections.outcomes import (
    FAILED,
    REJECTED,
    RELEASED,
    apply_outcome,
    is_terminal,
)
from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.store.tables import DELIVERY
from ferrymq_types.messaging import Rejected

if TYPE_CHECKING:
    from ferrymq_broker.connections.durable_links.registry import TerminusRegistry
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.messaging import Source
    from ferrymq_types.unions import DeliveryState, Outcome


@final
class UnsettledSend:
    """A delivery of an entry. `number` is that of its record, 0 without one.

    `first` is whether it was the first delivery of the entry, `left` how many milliseconds the
    entry had left of its time if it expires: what the bytes depend on that went out.
    """

    __slots__ = ("number", "entry", "first", "left")

    def __init__(self, number: i64, entry: Entry, first: bool, left: i64) -> None:
        self.number: i64 = number
        self.entry = entry
        self.first = first
        self.left: i64 = left


@final
class SourceTerminus(Terminus):
    """The deliveries of one receiver that have no outcome, by their tags, in the order of sending.

    `node` is the queue they are from, `holder` what holds their messages: the endpoint of the link,
    or something in its place. `holds` is whether they outlive a link at all: if not, the terminus
    is known by name alone. `default` is the outcome of those that never get one, if the client has
    named it; `imposed` is the same if it is that of every delivery. `number` is what the queue
    knows its consumers by, one after the other.
    """

    __slots__ = (
        "node",
        "sent",
        "holder",
        "holds",
        "fresh",
        "default",
        "imposed",
        "number",
        "_lent",
        "_number",
    )

    def __init__(
        self,
        identity: LinkIdentity,
        termini: TerminusRegistry,
        told: Source,
        node: Node,
        store_id: i64,
    ) -> None:
        super().__init__(identity, termini, told)
        self.store_id = store_id
        self.node = node
        self.sent: dict[bytes, UnsettledSend] = {}
        # By the number of the consumer that they were sent over, and the tag.
        self._lent: dict[tuple[int, bytes], UnsettledSend] = {}
        self.holder = Consumer(0, False)
        self.holds = True
        # Whether no link has had the terminus before.
        self.fresh = True
        self.default: Outcome | None = None
        self.imposed: Outcome | None = None
        # Stored queues know the terminus by the same number after a restart; no consumer has it.
        self.number: i64 = termini.numbers.next() if store_id == 0 else -store_id
        self.holder.known_as = self.number
        termini.agenda.remembered.add(int(self.number))
        self._number: i64 = 0

    def unsettled(self) -> int:
        """Return how many deliveries it remembers."""
        return len(self.sent)

    def is_void(self) -> bool:
        """Return whether its queue is gone, and no link has noticed."""
        return self.node.deleted and not self.attached

    def details(self) -> dict[str, object]:
        """Return of which queue the terminus is, and whether it keeps what it sends."""
        return {"queue": int(self.node.store_id), "holds": self.holds}

    def is_orphan(self) -> bool:
        """Return whether its queue has been deleted while no link was there to be told."""
        return self.node.deleted and not self.attached

    def is_full(self) -> bool:
        """Return whether the receiver has left too much without an outcome."""
        return len(self.sent) >= self.most_unsettled()

    # -- deliveries --------------------------------------------------------------------------------

    def add(self, tag: bytes, entry: Entry, first: bool) -> bool:
        """Remember an entry that is being sent under this tag; return whether that is on record,
        which must be on disk first."""
        left: i64 = 0
        if entry.expires != 0:
            left = self.termini.agenda.left(entry.expires)
        number: i64 = 0
        queue = self.node.store_id
        stored = self.store_id != 0 and self.durable > 1 and entry.stored and queue != 0
        if stored:
            self._number += 1
            number = self._number
            value = encode_sent(tag, queue, entry.sequence, first, left)
            self.changes().put(DELIVERY, self.store_id, number, value)
        self.sent[tag] = UnsettledSend(number, entry, first, left)
        return stored

    def forget(self, tag: bytes) -> None:
        """Forget a delivery that has its outcome."""
        sent = self.sent.pop(tag, None)
        if sent is not None:
            self._drop(sent)

    def _drop(self, sent: UnsettledSend) -> None:
        if sent.number != 0 and self.store_id != 0:
            self.changes().drop(DELIVERY, self.store_id, sent.number)

    def hand_to_link(self, endpoint: i64, tag: bytes) -> None:
        """Lend a delivery to the transaction that decides on it: the link is gone."""
        sent = self.sent.pop(tag, None)
        if sent is not None:
            self._lent[endpoint, tag] = sent

    def forget_handed(self, endpoint: i64, tag: bytes) -> None:
        """Forget a lent delivery: the transaction has decided."""
        sent = self._lent.pop((endpoint, tag), None)
        if sent is not None and not self.gone:
            self._drop(sent)

    def restore(self, tag: bytes, sent: UnsettledSend) -> None:
        """Restore a delivery that was stored, of an entry that nobody has any longer."""
        self.holder.hold(sent.entry)
        self.sent[tag] = sent
        if sent.number > self._number:
            self._number = sent.number

    def apply(self, tag: bytes, outcome: DeliveryState | None) -> bool:
        """Give a delivery its outcome; return false if that is no outcome, or there is no such
        delivery."""
        sent = self.sent.get(tag)
        if sent is None or not is_terminal(outcome):
            return False
        node = self.node
        if node.deleted:
            # The queue is gone that the message would return to.
            node.remove(self.holder, sent.entry)
        else:
            apply_outcome(node, self.holder, sent.entry, outcome)
        self.forget(tag)
        return True

    # -- links come and go -------------------------------------------------------------------------

    def pass_to(self, holder: Consumer) -> None:
        """Pass the messages to another holder."""
        before = self.holder
        if before is holder:
            return
        self.holder = holder
        for sent in self.sent.values():
            self.node.hand_over(sent.entry, before, holder)

    def stand_in(self, id: i64) -> None:
        """Hold the messages in place of the link, whose consumer had this id."""
        holder = Consumer(id, False)
        holder.known_as = self.number
        self.pass_to(holder)

    def resume(self, link: SenderLink) -> dict[bytes, OutgoingDelivery]:
        """Compare with the unsettled map of the client's attach; to be called before the answer.

        What both have is there to be resumed. What is missing in a complete map never came, or was
        settled with an outcome that got lost: it goes back as a failed delivery. A client without
        a map begins anew, and all of it goes back.
        """
        attach = link.remote_attach
        if self.fresh:
            return {}
        asked = None if attach is None else attach.unsettled
        complete = attach is None or not attach.incomplete_unsettled
        unsettled: dict[bytes, OutgoingDelivery] = {}
        others: list[bytes] = []
        for tag in list(self.sent):
            if asked is not None and tag in asked:
                unsettled[tag] = self._as_delivery(link, tag)
            elif asked is None or complete:
                self.apply(tag, FAILED)
            else:
                others.append(tag)
        for tag in others:
            unsettled[tag] = self._as_delivery(link, tag)
        if asked is not None:
            link.resume_from(unsettled)
        return unsettled

    def _as_delivery(self, link: SenderLink, tag: bytes) -> OutgoingDelivery:
        delivery = OutgoingDelivery(link, tag, False)
        delivery.context = self.sent[tag].entry
        return delivery

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """Act on what the client says of a delivery whose link was detached.

        It may do so while the session lasts (AMQP 1.0 §2.7.6).
        """
        if self.attached or self.gone or delivery.link is not self.link:
            return
        state = delivery.remote_state
        tag = delivery.tag
        imposed = self.imposed
        if imposed is not None and is_terminal(state):
            state = imposed
        if self.apply(tag, state):
            if not delivery.remote_settled:
                delivery.settle(REJECTED if isinstance(state, Rejected) else imposed)
        elif delivery.remote_settled:
            self.apply(tag, self.fate(False))

    # -- the end -----------------------------------------------------------------------------------

    def fate(self, lost: bool) -> Outcome:
        """Return what becomes of a message that never gets an outcome (AMQP 1.0 §3.5.3)."""
        outcome = self.default
        if outcome is None:
            return FAILED if lost else RELEASED
        return outcome

    def release(self) -> None:
        """Give what the terminus holds its default outcome: the terminus has come to its end.

        While a link is attached, the link does that.
        """
        self.termini.agenda.remembered.discard(int(self.number))
        if not self.attached:
            fate = self.fate(self.lost)
            for tag in list(self.sent):
                self.apply(tag, fate)
        self.sent = {}
