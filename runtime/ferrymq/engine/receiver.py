"""Receiver links: credit given, deliveries in (AMQP 1.0 §2.6.7, §2.6.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from ferrymq.engine.answers import expect_encodable
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.link import Link, illegal
from ferrymq.engine.resumption import ReceiverResumption, is_outcome
from ferrymq.engine.serial import serial_diff
from ferrymq.engine.states import LinkState
from ferrymq_types.transport import Attach, Flow, Transfer

if TYPE_CHECKING:
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState


@final
class ReceiverLink(Link):
    """The end of a link that receives. No message comes until credit is given."""

    __slots__ = (
        "_said_available",
        "_said_at",
        "partial",
        "_counted",
        "allowance",
        "early",
        "unsettled",
        "resumption",
        "cut_short",
        "unique_tags",
        "_tags",
        "_highest_tag",
        "_highest_size",
        "_highest_number",
    )

    def __init__(self, session: Session, name: str, initiated: bool) -> None:
        super().__init__(session, name, initiated, False)
        # What the sender said it could use of credit, and the delivery-count when it did.
        self._said_available: i64 = 0
        self._said_at: i64 = 0
        self.partial: IncomingDelivery | None = None
        # Bytes of it that count as unfinished: most deliveries never have any.
        self._counted: i64 = 0
        # Deliveries the sender may take for allowed: it learns late of credit taken back.
        self.allowance: i64 = 0
        # Transfers that came before our attach answered the sender's.
        self.early: list[tuple[Transfer, bytes]] | None = None
        # What was unsettled when the link was suspended or lost, by tag: for `resume_from`.
        self.unsettled: dict[bytes, IncomingDelivery] = {}
        self.resumption: ReceiverResumption | None = None
        # The link failed inside a delivery, of which more frames may come.
        self.cut_short = False
        # Whether the tag of an unsettled delivery ends the link if it comes again (§2.6.12).
        # A user that never resumes the link may do without: some senders repeat tags.
        self.unique_tags = True
        # Tags of unsettled deliveries; None as long as they come in rising order, which
        # those of nearly all senders do: then none can come twice.
        self._tags: set[bytes] | None = None
        self._highest_tag: bytes = b""
        self._highest_size: i64 = 0
        self._highest_number: i64 = 0

    @property
    def available(self) -> int:
        """How many messages wait for credit at the sender: what it last said, less what has come
        since (AMQP 1.0 §2.6.7)."""
        left = self._said_available - serial_diff(self.delivery_count, self._said_at)
        return left if left > 0 else 0

    def resume_from(self, unsettled: dict[bytes, IncomingDelivery]) -> list[IncomingDelivery]:
        """Resume with these unsettled deliveries: to be called before `accept`.

        They are those of the earlier link (`link.unsettled`), or made from what was stored.
        Those the sender has settled meanwhile are returned; the sender resumes the rest.
        """
        self.resumption = ReceiverResumption(self, unsettled)
        remote = self.remote_attach
        return [] if remote is None else self._compare(remote)

    def _compare(self, remote: Attach) -> list[IncomingDelivery]:
        """Compare the sender's unsettled map with ours; what it has settled is returned."""
        resumption = self.resumption
        if resumption is None:
            return []
        settled = resumption.on_attach(remote)
        self._tags = set(resumption.unsettled)
        return settled

    def _claim_tag(self, tag: bytes) -> bool:
        """Take the tag for a new delivery; false if an unsettled one has it (§2.6.12)."""
        tags = self._tags
        if tags is None:
            size: i64 = len(tag)
            if size == 4 and self._highest_size == 4:
                # A counter in four bytes: what our own senders make, and most others.
                number: i64 = i64(read_i32_be(tag, 0)) & 0xFFFFFFFF
                if number > self._highest_number:
                    self._highest_number = number
                    return True
            elif size > self._highest_size or (
                size == self._highest_size and tag > self._highest_tag
            ):
                self._highest_size = size
                self._highest_tag = tag
                if size == 4:
                    self._highest_number = i64(read_i32_be(tag, 0)) & 0xFFFFFFFF
                return True
            tags = {d.tag for d in self.session.incoming.unsettled.values() if d.link is self}
            self._tags = tags
        if tag in tags:
            return False
        tags.add(tag)
        return True

    def _forget_tag(self, tag: bytes) -> None:
        if self._tags is not None:
            self._tags.discard(tag)

    def _forget(self, delivery: IncomingDelivery) -> None:
        """The delivery is settled: its tag is free, and there is nothing left to resume."""
        self._forget_tag(delivery.tag)
        self.unsettled.pop(delivery.tag, None)

    def _keep(self, delivery: IncomingDelivery) -> None:
        """The link is going: keep what there is to resume (AMQP 1.0 §3.4.6)."""
        self._end_partial()
        if delivery.complete:
            self.unsettled[delivery.tag] = delivery
        elif not self.session.connection.settings.keeps_partial:
            delivery._drop()
        elif delivery._received > 0:
            self.unsettled[delivery.tag] = delivery

    def _end_partial(self) -> None:
        """No more of the delivery is expected that has begun, if one has."""
        self.partial = None
        if self._counted > 0:
            self.session.connection.channels.unfinished.end(self)

    def _clear_unsettled(self) -> None:
        self.unsettled.clear()

    def _keep_unresumed(self) -> None:
        self._end_partial()
        if self.resumption is not None:
            self.unsettled.update(self.resumption.unsettled)

    def _unsettled_states(self) -> dict[object, object] | None:
        return None if self.resumption is None else self.resumption.states()

    def _mark_incomplete(self, listed: i64) -> None:
        if self.resumption is not None:
            self.resumption.complete = False
            self.resumption.listed = listed

    def set_credit(
        self, credit: int, *, drain: bool = False, properties: dict[str, object] | None = None
    ) -> None:
        """Allow the sender `credit` deliveries from now on, and end a drain.

        With `drain` it is to use them up or give them back at once, which `DrainCompleted` tells.
        `properties` are those of the flow (AMQP 1.0 §2.7.4). May follow our own attach at once.
        Does nothing when the link is detached. Raises `LocalProtocolError` for a credit that is no
        32-bit number, or too large a flow.
        """
        if not 0 <= credit <= 0xFFFFFFFF:
            raise illegal(f"credit {credit}: it must be 0 … 4294967295")
        if self.usable or self.state is LinkState.ATTACH_SENT:
            self.credit = credit
            if self.allowance < credit:
                self.allowance = credit
            self.drain = drain
            self.session._send_link_flow(self, properties)

    def drain_credit(self) -> None:
        """Ask the sender to use up or give back its credit; `DrainCompleted` follows."""
        if self.usable:
            self.drain = True
            self.session._send_link_flow(self)

    def settle(self, delivery: IncomingDelivery, state: DeliveryState | None) -> None:
        """See `IncomingDelivery.settle`. In receiver-settle-mode second the outcome is sent
        unsettled and the delivery ends when the sender settles (AMQP 1.0 §2.6.12)."""
        if delivery.settled:
            return
        incoming = self.session.incoming
        # Once the sender has stated its outcome there is nothing left to wait for.
        settles = not delivery.second or is_outcome(delivery.remote_state)
        if not delivery.remote_settled and delivery.id in incoming.unsettled:
            incoming.dispositions.add(delivery.id, state, settles)
            if settles:
                del incoming.unsettled[delivery.id]
        else:
            expect_encodable(state)
        if settles and (self._tags is not None or not self.usable):
            self._forget(delivery)
        delivery.state = state
        delivery.settled = settles or delivery.remote_settled

    def update(self, delivery: IncomingDelivery, state: DeliveryState) -> None:
        """See `IncomingDelivery.update`."""
        if delivery.settled or delivery.remote_settled:
            return
        incoming = self.session.incoming
        if delivery.id in incoming.unsettled:
            incoming.dispositions.add(delivery.id, state, False)
        else:
            expect_encodable(state)
        delivery.state = state

    def _count_delivery(self) -> None:
        self.delivery_count = (self.delivery_count + 1) & 0xFFFFFFFF
        if self.credit > 0:
            self.credit -= 1
        self.allowance -= 1

    def _fill_flow(self, flow: Flow) -> None:
        # Until the sender's attach came, its state is not known (AMQP 1.0 §2.7.4).
        if self.remote_attach is not None:
            flow.delivery_count = self.delivery_count
            flow.available = self.available
        flow.link_credit = self.credit
        flow.drain = self.drain

    def _on_flow(self, flow: Flow) -> bool:
        """Take over the sender's count; true when that ended a drain."""
        count = flow.delivery_count
        if count is not None:
            advanced = serial_diff(count, self.delivery_count)
            if advanced > 0:
                self.delivery_count = count
                self.credit = self.credit - advanced if advanced < self.credit else 0
                self.allowance = self.allowance - advanced if advanced < self.allowance else 0
        available = flow.available
        self._said_available = 0 if available is None else available
        self._said_at = self.delivery_count
        if self.drain and self.credit == 0:
            self.drain = False
            return True
        return False
