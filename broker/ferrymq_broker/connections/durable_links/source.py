"""Sources that outlive their links: deliveries that were sent and have no outcome yet (AMQP 1.0
§2.6.13).

Every delivery is stored before it leaves the broker. While no link is attached, a stand-in holds
the message, so that no other consumer gets it. The outcome and the removal of the record are in one
batch, so that after a crash the broker has either the delivery or its outcome. An applied outcome
need not be remembered: a delivery that only the receiver knows is settled.

A delivery may become part of a transaction, which then decides on it. If the link goes before the
transaction ends, the transaction keeps the delivery, which is not resumed.
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
    judge,
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
    """A delivery of an entry. `number` is the number of its record, 0 without one.

    `first` is whether it was the first delivery of the entry, `left` is how many milliseconds were
    left until its expiry, if it expires: the sent bytes depend on these.
    """

    __slots__ = ("number", "entry", "first", "left")

    def __init__(self, number: i64, entry: Entry, first: bool, left: i64) -> None:
        self.number: i64 = number
        self.entry: Entry = entry
        self.first: bool = first
        self.left: i64 = left


@final
class SourceTerminus(Terminus):
    """The deliveries of one receiver without an outcome, by their tags, in the order of sending.

    `node` is their queue; `holder` holds their messages: the link, or an object in its place.
    `holds` is whether the deliveries outlive a link: if not, only the name of the terminus is
    known. `default` is the client's default outcome, if any; `imposed` is the same if it applies to
    every delivery. `number` is the consumer number that all its links use at the queue.
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
        self.node: Node = node
        self.sent: dict[bytes, UnsettledSend] = {}
        # By the number of the consumer that sent them, and the tag.
        self._lent: dict[tuple[int, bytes], UnsettledSend] = {}
        self.holder: Consumer = Consumer(0, False)
        self.holds: bool = True
        # Whether the terminus has had no link before.
        self.fresh: bool = True
        self.default: Outcome | None = None
        self.imposed: Outcome | None = None
        # Stored queues know the terminus by the same number after a restart; no consumer uses it.
        self.number: i64 = termini.numbers.next() if store_id == 0 else -store_id
        self.holder.known_as = self.number
        termini.agenda.remembered.add(int(self.number))
        self._number: i64 = 0

    def unsettled(self) -> int:
        """Return the number of remembered deliveries."""
        return len(self.sent)

    def is_void(self) -> bool:
        """Return whether its queue is deleted and no link has noticed it."""
        return self.node.deleted and not self.attached

    def details(self) -> dict[str, object]:
        """Return the queue of the terminus, and whether it keeps what it sends."""
        return {"queue": int(self.node.store_id), "holds": self.holds}

    def is_orphan(self) -> bool:
        """Return whether its queue was deleted while no link was attached."""
        return self.node.deleted and not self.attached

    def is_full(self) -> bool:
        """Return whether the receiver has left too many deliveries without an outcome."""
        return len(self.sent) >= self.most_unsettled()

    # -- deliveries --------------------------------------------------------------------------------

    def add(self, tag: bytes, entry: Entry, first: bool) -> bool:
        """Remember an entry that is being sent under this tag; return whether that is stored, so
        that it must be on disk before it is sent."""
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
        """Give a delivery to the transaction that decides on it, because the link is gone."""
        sent = self.sent.pop(tag, None)
        if sent is not None:
            self._lent[endpoint, tag] = sent

    def forget_handed(self, endpoint: i64, tag: bytes) -> None:
        """Forget a delivery that was given to a transaction, which has decided on it."""
        sent = self._lent.pop((endpoint, tag), None)
        if sent is not None and not self.gone:
            self._drop(sent)

    def restore(self, tag: bytes, sent: UnsettledSend) -> None:
        """Restore a stored delivery of an entry that does not exist any more."""
        self.holder.hold(sent.entry)
        self.sent[tag] = sent
        if sent.number > self._number:
            self._number = sent.number

    def apply(self, tag: bytes, outcome: DeliveryState | None) -> bool:
        """Apply an outcome to a delivery; return false if it is not an outcome, or if there is no
        such delivery."""
        sent = self.sent.get(tag)
        if sent is None or not is_terminal(outcome):
            return False
        node = self.node
        if node.deleted:
            # The queue to which the message would return is deleted.
            node.remove(self.holder, sent.entry)
        else:
            apply_outcome(node, self.holder, sent.entry, outcome)
        self.forget(tag)
        return True

    # -- attaching and detaching -----------------------------------------------------------------

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
        """Compare with the unsettled map of the client's attach; called before the answer.

        Deliveries that both sides have are resumed. A delivery that is missing in a complete map
        never arrived, or its settlement got lost: it goes back to the queue as a failed delivery. A
        client without a map starts from the beginning, and all deliveries go back.
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
        """Process a disposition for a delivery whose link was detached.

        The client may send one while the session exists (AMQP 1.0 §2.7.6).
        """
        if self.attached or self.gone or delivery.link is not self.link:
            return
        state = delivery.remote_state
        tag = delivery.tag
        imposed = self.imposed
        if imposed is not None and is_terminal(state):
            state = imposed
        sent = self.sent.get(tag)
        if sent is not None and is_terminal(state):
            state = judge(self.node, sent.entry, state, True)
        if self.apply(tag, state):
            if not delivery.remote_settled:
                delivery.settle(REJECTED if isinstance(state, Rejected) else imposed)
        elif delivery.remote_settled:
            self.apply(tag, self.fate(False))

    # -- the end -----------------------------------------------------------------------------------

    def fate(self, lost: bool) -> Outcome:
        """Return the outcome of a message that never gets one (AMQP 1.0 §3.5.3)."""
        outcome = self.default
        if outcome is None:
            return FAILED if lost else RELEASED
        return outcome

    def release(self) -> None:
        """Apply the default outcome to the held messages, because the terminus has ended.

        While a link is attached, the link does that.
        """
        self.termini.agenda.remembered.discard(int(self.number))
        if not self.attached:
            fate = self.fate(self.lost)
            for tag in list(self.sent):
                self.apply(tag, fate)
        self.sent = {}
