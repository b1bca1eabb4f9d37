"""Receiver links: credit given, deliveries in (AMQP 1.0 §2.6.7, §2.6.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from ferrymq.engine.answers import expect_encodable
from ferrymq.engine.delivery import IncomingDelivery, number_tag
from ferrymq.engine.link import Link, illegal
from ferrymq.engine.resumption import ReceiverResumption, is_outcome
from ferrymq.engine.serial import serial_diff
from ferrymq.engine.states import LinkState
from ferrymq_types.messaging import Released
from ferrymq_types.transport import Attach, Flow, Transfer

if TYPE_CHECKING:
    from ferrymq.engine.plain_transfer import PlainTransfer
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState

_RELEASED: Final = Released()
# How many flows a client allows to have been added up by its peer: see `_note_flow`.
_FLOWS_UNDER_WAY: Final = 8


@final
class ReceiverLink(Link):
    """Receiving end of a link. No message arrives until credit is given."""

    __slots__ = (
        "_said_available",
        "_said_at",
        "partial",
        "_counted",
        "_last_size",
        "allowance",
        "spare",
        "flow_due",
        "early",
        "unsettled",
        "resumption",
        "cut_short",
        "unique_tags",
        "rejects_large",
        "_tags",
        "_highest_tag",
        "_highest_size",
        "_highest_number",
        "_set_aside",
    )

    # Attributes of `Link` that the methods assign: their types for type checkers.
    credit: i64
    delivery_count: i64
    skipped: i64
    drain: bool

    def __init__(self, session: Session, name: str, initiated: bool) -> None:
        super().__init__(session, name, initiated, False)
        # The sender's last `available`, and its delivery-count at that time.
        self._said_available: i64 = 0
        self._said_at: i64 = 0
        self.partial: IncomingDelivery | None = None
        # Bytes of the incomplete delivery that count as unfinished: most deliveries have none.
        self._counted: i64 = 0
        # Bytes of the last message that had several frames; the next one may be as large.
        self._last_size: i64 = 0
        # Deliveries that the sender may believe are allowed, because it has not yet learned that
        # credit was taken back.
        self.allowance: i64 = 0
        # Deliveries beyond the allowance that are taken nevertheless: see `_note_flow`.
        self.spare: i64 = 0
        # Whether a flow is written with the next output.
        self.flow_due: bool = False
        # Transfers that arrived before our attach answered the sender's attach.
        self.early: list[tuple[Transfer, bytes]] | None = None
        # Deliveries that were unsettled when the link was suspended or lost, by tag: for
        # `resume_from`.
        self.unsettled: dict[bytes, IncomingDelivery] = {}
        self.resumption: ReceiverResumption | None = None
        # Whether the link failed inside a delivery, of which more frames may arrive.
        self.cut_short: bool = False
        # Whether a repeated tag of an unsettled delivery ends the link (§2.6.12). A user that never
        # resumes the link may switch this off, because some senders repeat tags.
        self.unique_tags: bool = True
        # Whether the user rejects a message of more than `max_message_size` bytes, which ends the
        # link otherwise (§2.7.3).
        self.rejects_large: bool = False
        # Tags of unsettled deliveries. None while each tag is higher than the tag before it, as
        # with nearly all senders: then no tag can repeat.
        self._tags: set[bytes] | None = None
        self._highest_tag: bytes = b""
        self._highest_size: i64 = 0
        self._highest_number: i64 = 0
        # Numbers of the deliveries that are settled on this side alone.
        self._set_aside: list[int] = []

    @property
    def available(self) -> int:
        """The number of messages that wait for credit at the sender: its last statement, less the
        messages that have arrived since (AMQP 1.0 §2.6.7)."""
        left = self._said_available - serial_diff(self.delivery_count, self._said_at)
        return left if left > 0 else 0

    def resume_from(self, unsettled: dict[bytes, IncomingDelivery]) -> list[IncomingDelivery]:
        """Resume these unsettled deliveries; call this before `accept`.

        The deliveries are those of the earlier link (`link.unsettled`), or were made from stored
        data. Returns the deliveries that the sender has settled in the meantime; the sender resumes
        the others.
        """
        self.resumption = ReceiverResumption(self, unsettled)
        remote = self.remote_attach
        return [] if remote is None else self._compare(remote)

    def _compare(self, remote: Attach) -> list[IncomingDelivery]:
        """Compare the sender's unsettled map with ours; return the deliveries that the sender has
        settled."""
        resumption = self.resumption
        if resumption is None:
            return []
        settled = resumption.on_attach(remote)
        self._tags = set(resumption.unsettled)
        return settled

    def _claim_tag(self, tag: bytes) -> bool:
        """Reserve the tag for a new delivery; return false if an unsettled delivery has it
        (§2.6.12)."""
        tags = self._tags
        if tags is None:
            size: i64 = len(tag)
            if size == 4 and self._highest_size == 4:
                # A counter in four bytes: our own senders and most others use such tags.
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

    def _claim_plain(self, plain: PlainTransfer) -> bool:
        """Reserve the tag of a transfer for a new delivery, as `_claim_tag` does."""
        tag = plain.tag
        if tag is not None:
            return self._claim_tag(tag)
        number = plain.number
        if self._tags is None and self._highest_size == 4 and number > self._highest_number:
            self._highest_number = number
            return True
        return self._claim_tag(number_tag(number))

    def _forget_tag(self, tag: bytes) -> None:
        if self._tags is not None:
            self._tags.discard(tag)

    def _forget(self, delivery: IncomingDelivery) -> None:
        """Forget a settled delivery: its tag is free, and it cannot be resumed any more."""
        self._forget_tag(delivery.tag)
        self.unsettled.pop(delivery.tag, None)

    def _keep(self, delivery: IncomingDelivery) -> None:
        """Keep the deliveries to resume when the link ends (AMQP 1.0 §3.4.6)."""
        self._end_partial()
        if delivery.complete:
            self.unsettled[delivery.tag] = delivery
        elif not self.session.connection.settings.keeps_partial:
            delivery._drop()
        elif delivery._received > 0:
            self.unsettled[delivery.tag] = delivery

    def _end_partial(self) -> None:
        """Stop waiting for the rest of an incomplete delivery, if there is one."""
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

        The flow is written with the next output, one for all calls before. With `drain` it is
        written at once: the sender must use the credit or give it back, and `DrainCompleted`
        reports that it has done so. `properties` are those of the flow (AMQP 1.0 §2.7.4). The call
        may directly follow our own attach. Does nothing when the link is detached. Raises
        `LocalProtocolError` for a credit that is not a 32-bit number, and for a flow that is too
        large.
        """
        if not 0 <= credit <= 0xFFFFFFFF:
            raise illegal(f"credit {credit}: it must be 0 … 4294967295")
        if self.usable or self.state is LinkState.ATTACH_SENT:
            self._note_flow(credit)
            self.credit = credit
            if self.allowance < credit:
                self.allowance = credit
            self.drain = drain
            if drain or properties is not None:
                self.session._send_link_flow(self, properties)
            else:
                # Further calls before the output is taken change the same flow.
                self.session._owe_flow(self)

    def drain_credit(self) -> None:
        """Ask the sender to use up or give back its credit; `DrainCompleted` follows."""
        if self.usable:
            self._note_flow(self.credit)
            self.drain = True
            self.session._send_link_flow(self)

    def _note_flow(self, credit: i64) -> None:
        """Take note, before a flow with this credit, of the deliveries that may be under way.

        RabbitMQ 3.10 gives the credit of a flow to its queue without deducting what the queue has
        sent since the delivery-count of the flow. So what was under way when the flow was written
        comes in addition to the new credit, and on a busy machine that of several flows adds up. A
        client takes that, up to a bound; a server holds its clients to the credit.
        """
        if not self.flow_due and self.session.connection.settings.initiator:
            # What was beyond the credit of an earlier flow may be under way as well.
            under_way = self.allowance + self.spare
            if under_way < 0:
                under_way = 0
            most = credit * _FLOWS_UNDER_WAY
            self.spare = under_way if under_way < most else most

    def settle(self, delivery: IncomingDelivery, state: DeliveryState | None) -> None:
        """Settle a delivery; see `IncomingDelivery.settle`. In receiver-settle-mode second the
        outcome is sent unsettled, and the delivery ends when the sender settles (AMQP 1.0
        §2.6.12)."""
        if delivery.settled:
            return
        incoming = self.session.incoming
        # Once the sender has stated its outcome, no answer has to be awaited.
        settles = not delivery.second or is_outcome(delivery.remote_state)
        if not delivery.remote_settled and incoming.unsettled.find(delivery.id) is not None:
            incoming.dispositions.add(delivery.id, state, settles)
            if settles:
                incoming.unsettled.remove(delivery.id)
        else:
            expect_encodable(state)
        if settles and (self._tags is not None or not self.usable):
            self._forget(delivery)
        delivery.state = state
        delivery.settled = settles or delivery.remote_settled

    def set_aside(self, delivery: IncomingDelivery) -> None:
        """Settle a delivery on this side alone. `release_set_aside` gives it back.

        The link remembers its number only, so that the user decides how long its bytes are kept.
        """
        incoming = self.session.incoming
        if not delivery.settled and incoming.unsettled.find(delivery.id) is not None:
            incoming.unsettled.remove(delivery.id)
            self._set_aside.append(int(delivery.id))
            delivery.settled = True

    def release_set_aside(self) -> None:
        """Release the deliveries that were set aside, in the order of the calls."""
        dispositions = self.session.incoming.dispositions
        for id in self._set_aside:
            dispositions.add(id, _RELEASED, True)
        self._set_aside.clear()

    def update(self, delivery: IncomingDelivery, state: DeliveryState) -> None:
        """Send the state of a delivery without settling it; see `IncomingDelivery.update`."""
        if delivery.settled or delivery.remote_settled:
            return
        incoming = self.session.incoming
        if incoming.unsettled.find(delivery.id) is not None:
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
        self.flow_due = False
        # Until the sender's attach arrives, its state is unknown (AMQP 1.0 §2.7.4).
        if self.remote_attach is not None:
            flow.delivery_count = self.delivery_count
            flow.available = self.available
        flow.link_credit = self.credit
        flow.drain = self.drain

    def _on_flow(self, flow: Flow) -> bool:
        """Apply the sender's delivery-count; return true if that ended a drain."""
        count = flow.delivery_count
        if count is not None:
            advanced = serial_diff(count, self.delivery_count)
            if advanced > 0:
                self.delivery_count = count
                self.skipped += advanced
                self.credit = self.credit - advanced if advanced < self.credit else 0
                self.allowance = self.allowance - advanced if advanced < self.allowance else 0
        available = flow.available
        self._said_available = 0 if available is None else available
        self._said_at = self.delivery_count
        if self.drain and self.credit == 0:
            self.drain = False
            return True
        return False
