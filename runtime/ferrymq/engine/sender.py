"""Sender links: credit taken, deliveries out (AMQP 1.0 §2.6.7, §2.6.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.delivery import OutgoingDelivery, number_tag
from ferrymq.engine.link import Link, illegal
from ferrymq.engine.resumption import Resolution, SenderResumption, is_outcome
from ferrymq.engine.serial import serial_add, serial_diff
from ferrymq.engine.states import LinkState
from ferrymq.errors import EncodeError, LocalProtocolError, Scope
from ferrymq_types.messaging import Received, Target
from ferrymq_types.transport import Attach, Flow

# The engine makes tags only for numbers below this one.
_LARGE_TAG: Final = (1 << 62).to_bytes(8, "big")

if TYPE_CHECKING:
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState


@final
class SenderLink(Link):
    """Sending end of a link.

    `credit` is the number of deliveries that the receiver allows now. `available` is the number of
    messages that wait for credit, as stated by the user, and is sent in flows; with
    `count_available`, the user is asked when a flow is made. With a `tag_prefix` of 8 bytes, the
    tags of unsettled deliveries have 16 bytes and begin with it, and `find_unsettled` finds the
    deliveries by their tags.
    """

    __slots__ = (
        "available",
        "count_available",
        "flow_properties",
        "parked",
        "overdrawn",
        "unsettled",
        "resumption",
        "own_tags",
        "tag_prefix",
        "assuming",
        "_next_tag",
    )

    # Attributes of `Link` that the methods assign: their types for type checkers.
    credit: i64
    delivery_count: i64
    skipped: i64
    drain: bool

    def __init__(self, session: Session, name: str, initiated: bool) -> None:
        super().__init__(session, name, initiated, True)
        self.available: i64 = 0
        self.count_available: Callable[[], int] | None = None
        # `properties` of the latest flow of the receiver (AMQP 1.0 §2.7.4).
        self.flow_properties: dict[str, object] | None = None
        # Deliveries sent by the user that the session window or the output still holds back.
        self.parked: i64 = 0
        # Number of deliveries by which `delivery_count` exceeds the receiver's limit, which it may
        # lower at any time. This number of parked deliveries wait for credit again.
        self.overdrawn: i64 = 0
        # Deliveries that were unsettled when the link was suspended or lost, by tag: for
        # `resume_from`.
        self.unsettled: dict[bytes, OutgoingDelivery] = {}
        self.resumption: SenderResumption | None = None
        # Tags of unsettled deliveries that the engine did not make; most links have none.
        self.own_tags: set[bytes] | None = None
        self.tag_prefix: bytes = b""
        # Whether credit is assumed until the receiver has attached.
        self.assuming: bool = False
        self._next_tag: i64 = 0

    def send(
        self,
        payload: bytes,
        *,
        tag: bytes | None = None,
        settled: bool = False,
        message_format: int = 0,
        state: DeliveryState | None = None,
        head: bytes = b"",
        start: i64 = 0,
    ) -> OutgoingDelivery:
        """Send one encoded message, in as many frames as needed.

        The message is `head`, then `payload` from `start` on: so a few sections can differ from
        those of the payload without a copy of the rest. The settle mode that was agreed at attach
        overrides `settled`. Without a `tag` the link makes a unique one. Frames that the session
        window does not allow yet, or for which the output has no room
        (`ConnectionSettings.max_output`), wait in the session and are sent later. Until then the
        session keeps a reference to the payload.

        Raises `LocalProtocolError` when the link is not attached or has no
        credit, when an unsettled delivery has the tag (AMQP 1.0 §2.6.12) or
        when the message is larger than the receiver takes;
        `EncodeError` for a tag of more than 32 bytes or a format of more than 32 bits.
        """
        self._expect_credit()
        if self.resumption is not None and not self.resumption.whole:
            raise illegal(
                f"link {self.name!r} has resumed with an incomplete unsettled map: "
                f"no new delivery may be sent"
            )
        limit = self.remote_max_message_size
        size = len(head) + len(payload) - start
        if limit != 0 and size > limit:
            raise LocalProtocolError(
                "amqp:link:message-size-exceeded",
                f"{self._place()} takes messages of at most {limit} bytes; this one has {size}",
                Scope.LINK,
            )
        if tag is not None:
            self._expect_tag(tag)
        if not 0 <= message_format <= 0xFFFFFFFF:
            raise EncodeError("transfer.message-format", f"{message_format} is not a uint")
        if state is not None:
            self._expect_state(state)
        if self.always_settled:
            settled = True
        elif self.never_settled:
            settled = False
        number: i64 = -1
        if tag is None:
            if len(self.tag_prefix) > 0 and not settled:
                tag = self.prefixed_tag()
            elif self.own_tags is None:
                self._next_tag += 1
                number = self._next_tag
            else:
                tag = self._new_tag()
        elif not settled:
            self._own(tag)
        delivery = OutgoingDelivery(self, tag, settled)
        delivery._number = number
        delivery.state = state
        self.credit -= 1
        self.delivery_count = serial_add(self.delivery_count, 1)
        outgoing = self.session.outgoing
        plain = message_format == 0 and state is None
        try:
            if plain and outgoing.send_plain(delivery, payload, head, start):
                return delivery
            outgoing.send(delivery, payload, start, message_format, state, False, False, head)
        except BaseException:
            self._give_back(delivery)
            raise
        return delivery

    def assume_credit(self, credit: int) -> None:
        """Assume `credit` until the receiver attaches, to pipeline deliveries on our attach.

        If the receiver has not given this credit, it detaches the link with transfer-limit-exceeded
        (Link Pairing 1.0 §2.2.2). Raises `LocalProtocolError` once the receiver has attached.
        """
        if self.state is not LinkState.ATTACH_SENT:
            raise illegal(f"link {self.name!r} does not wait for the receiver's attach")
        self.assuming = True
        self.credit = credit

    def _on_attach(self, attach: Attach) -> None:
        super()._on_attach(attach)
        if attach.unsettled is not None:
            for tag in attach.unsettled:
                # Such a tag is not made again, whatever its state: the receiver may state its
                # outcome again.
                if isinstance(tag, bytes):
                    self._pass_over(tag)
        if self.assuming:
            # From now on the receiver's flows state the credit.
            self.assuming = False
            self.credit = 0

    def _place(self) -> str:
        """Return the name of the link in error messages: its address, if it has one."""
        target = self.target
        if isinstance(target, Target) and target.address:
            return f"{target.address!r}"
        return f"link {self.name!r}"

    def _expect_tag(self, tag: bytes) -> None:
        if len(tag) > 32:
            raise EncodeError("transfer.delivery-tag", f"{len(tag)} bytes; at most 32 are allowed")
        own = self.own_tags
        if (own is not None and tag in own) or (
            # The engine may have made this tag.
            len(tag) == 4
            and int.from_bytes(tag, "big") <= self._next_tag
            and self.session.outgoing.find(self, tag) is not None
        ):
            raise LocalProtocolError(
                "amqp:not-allowed",
                f"{self._place()}: the delivery-tag {tag!r} belongs to an unsettled delivery",
                Scope.LINK,
            )

    def _own(self, tag: bytes) -> None:
        if self.own_tags is None:
            self.own_tags = {tag}
        else:
            self.own_tags.add(tag)

    def _new_tag(self) -> bytes:
        while True:
            self._next_tag += 1
            tag = number_tag(self._next_tag)
            if self.own_tags is None or tag not in self.own_tags:
                return tag

    def prefixed_tag(self) -> bytes:
        """Make a tag for the next delivery of the session: the prefix, a count, the delivery-id."""
        self._next_tag += 1
        # Without the highest bits of the count the number fits into a machine word.
        number: int = (self._next_tag & 0x0FFF_FFFF) << 32 | self.session.outgoing.next_delivery_id
        return self.tag_prefix + number.to_bytes(8, "big")

    def find_unsettled(self, tag: bytes) -> OutgoingDelivery | None:
        """Return the unsettled delivery with this tag, which begins with `tag_prefix`, also after
        the end of the link; None if there is none."""
        outgoing = self.session.outgoing
        delivery = outgoing.unsettled.find(int.from_bytes(tag[12:], "big"))
        if delivery is not None and delivery.link is self and delivery.tag == tag:
            return delivery
        return self.unsettled.get(tag) or outgoing.find_waiting(self, tag)

    def _forget(self, delivery: OutgoingDelivery) -> None:
        """Forget a settled delivery: its tag is free, and it cannot be resumed any more."""
        if self.own_tags is not None:
            self.own_tags.discard(delivery.tag)
        self.unsettled.pop(delivery.tag, None)

    def _expect_state(self, state: DeliveryState) -> None:
        if isinstance(state, Received):
            raise illegal("a sender states received only where it resumes a delivery")
        self.session.outgoing.expect_room(state)

    def _expect_credit(self) -> None:
        if not self.usable and not (self.assuming and self.state is LinkState.ATTACH_SENT):
            raise illegal(f"link {self.name!r} is not attached")
        if self.credit <= 0:
            raise LocalProtocolError(
                "amqp:link:transfer-limit-exceeded",
                f"{self._place()} gives no credit now: wait for it",
                Scope.LINK,
            )

    def resume_from(self, unsettled: dict[bytes, OutgoingDelivery]) -> None:
        """Resume these unsettled deliveries; call this before `accept`.

        The deliveries are those of the earlier link (`link.unsettled`), or were made from stored
        data. The map may be empty. Without this call the attach states that no delivery is resumed.
        """
        self.resumption = SenderResumption(self, unsettled)
        for tag in self.resumption.unsettled:
            self._own(tag)
            # A delivery with the same tag could overtake the settlement of the earlier one.
            self._pass_over(tag)
        remote = self.remote_attach
        if remote is not None:
            self.resumption.on_attach(remote)

    def resume(
        self, delivery: OutgoingDelivery, payload: bytes = b"", *, message_format: int = 0
    ) -> Resolution:
        """Resume a delivery of `resume_from` as the states of both sides require.

        `payload` is the whole encoded message, in case it has to be sent again, in whole or in
        part. If the receiver has given an outcome (`delivery.remote_state`), apply that outcome
        before this call, which settles the delivery. Returns the resolution.

        Raises `LocalProtocolError` when the link is not attached, when it has no credit for a frame
        that must be sent, and when the delivery is not one to be resumed.
        """
        resumption = self.resumption
        if resumption is None or delivery.tag not in resumption.unsettled:
            raise illegal(f"delivery {delivery.tag!r} on link {self.name!r} is not to be resumed")
        if resumption.resolution(delivery) in (Resolution.FORGET, Resolution.WAIT):
            if not self.usable:
                raise illegal(f"link {self.name!r} is not attached")
        else:
            self._expect_credit()
        return resumption.resume(delivery, payload, message_format)

    def withdraw(self, delivery: OutgoingDelivery) -> None:
        """Remove a delivery of `resume_from` that the receiver does not know.

        Its message may be sent as a new delivery once both maps are complete (AMQP 1.0 §2.6.13).
        """
        resumption = self.resumption
        if (
            resumption is None
            or delivery.tag not in resumption.unsettled
            or resumption.resolution(delivery) is not Resolution.RESEND
        ):
            raise illegal(f"delivery {delivery.tag!r} on link {self.name!r} cannot be withdrawn")
        delivery.settled = True
        resumption.unsettled.pop(delivery.tag, None)
        self._forget(delivery)

    def settle_unknown(self, tag: bytes) -> None:
        """Settle a delivery that only the receiver knows.

        If our unsettled map was incomplete, the receiver cannot know that we have forgotten the
        delivery; between two incomplete maps this call ends such deliveries. Raises
        `LocalProtocolError` as `resume` does.
        """
        self._expect_credit()
        resumption = self.resumption
        if resumption is None or resumption.complete or tag not in resumption.remote:
            raise illegal(f"link {self.name!r} does not resume with an incomplete map")
        state = resumption.remote[tag]
        delivery = OutgoingDelivery(self, tag, True)
        self._dispatch(delivery, b"", 0, 0, state if is_outcome(state) else None, True,
                       not is_outcome(state))  # fmt: skip

    def continue_tags(self, earlier: SenderLink) -> None:
        """Continue after the tags of an earlier attachment of the link, so that no tag is made
        twice."""
        self.number_tags_from(earlier._next_tag)

    def _pass_over(self, tag: bytes) -> None:
        """Skip this tag, which an earlier attachment may have made."""
        if len(tag) == 4 or (len(tag) == 8 and tag < _LARGE_TAG):
            number: int = int.from_bytes(tag, "big")
            self.number_tags_from(number)

    def number_tags_from(self, number: i64) -> None:
        """Make only tags whose numbers are above this one from now on; the largest is 2^63 − 1.

        The outcome of an earlier delivery may be stored under its tag: a link that is resumed must
        not use the tag for another delivery.
        """
        if self._next_tag < number:
            self._next_tag = number

    def _dispatch(
        self,
        delivery: OutgoingDelivery,
        payload: bytes,
        offset: i64,
        message_format: int,
        state: DeliveryState | None,
        resume: bool,
        aborted: bool,
    ) -> None:
        self.credit -= 1
        self.delivery_count = serial_add(self.delivery_count, 1)
        try:
            self.session.outgoing.send(
                delivery, payload, offset, message_format, state, resume, aborted
            )
        except BaseException:
            self._give_back(delivery)
            raise

    def _give_back(self, delivery: OutgoingDelivery) -> None:
        """Take back the credit and the tag of a delivery that could not be encoded."""
        self.credit += 1
        self.delivery_count = serial_add(self.delivery_count, -1)
        if self.own_tags is not None:
            self.own_tags.discard(delivery.tag)

    def _unsettled_states(self) -> dict[object, object] | None:
        return None if self.resumption is None else self.resumption.states()

    def _mark_incomplete(self, listed: i64) -> None:
        if self.resumption is not None:
            self.resumption.complete = False

    def settle(self, delivery: OutgoingDelivery, state: DeliveryState | None = None) -> None:
        """Settle a delivery; see `OutgoingDelivery.settle`."""
        if delivery.settled:
            return
        if state is None:
            state = delivery.remote_state
            if state is None or is_outcome(delivery.state):
                state = delivery.state
        if is_outcome(delivery.state) and state != delivery.state:
            raise illegal(f"delivery {delivery.id} has the outcome {delivery.state} already")
        outgoing = self.session.outgoing
        if not delivery.remote_settled and outgoing.unsettled.find(delivery.id) is not None:
            outgoing.dispositions.add(delivery.id, state, True)
            outgoing.unsettled.remove(delivery.id)
        if self.own_tags is not None or not self.usable:
            self._forget(delivery)
        delivery.state = state
        delivery.settled = True

    def update(self, delivery: OutgoingDelivery, state: DeliveryState) -> None:
        """Send the state of a delivery without settling it; see `OutgoingDelivery.update`."""
        if delivery.settled or delivery.remote_settled:
            return
        if is_outcome(delivery.state):
            if state != delivery.state:
                raise illegal(f"delivery {delivery.id} has the outcome {delivery.state} already")
            return
        self._expect_state(state)
        self.session.outgoing.restate(delivery, state)
        delivery.state = state

    def _clear_unsettled(self) -> None:
        self.unsettled.clear()

    def _keep_unresumed(self) -> None:
        if self.resumption is not None:
            self.unsettled.update(self.resumption.unsettled)

    def drained(self) -> None:
        """Give back all credit that is left: the answer to `drain` (AMQP 1.0 §2.6.7)."""
        if not self.drain or not self.usable:
            return
        self.delivery_count = serial_add(self.delivery_count, self.credit)
        self.skipped += self.credit
        self.credit = 0
        self.session._send_link_flow(self)

    def _on_flow(self, flow: Flow) -> None:
        """Apply the receiver's credit: its limit minus the deliveries that it has not seen yet."""
        seen = flow.delivery_count
        credit = flow.link_credit
        limit: i64 = 0 if credit is None else credit
        # A receiver that has not seen our attach yet counts from our initial count, which is 0.
        limit += serial_diff(0 if seen is None else seen, self.delivery_count)
        self.credit = limit if limit > 0 else 0
        overdrawn = -limit if limit < 0 else 0
        if overdrawn < self.overdrawn:
            self.session.outgoing.restore(self)
        self.overdrawn = overdrawn
        self.drain = flow.drain
        self.flow_properties = flow.properties

    def _fill_flow(self, flow: Flow) -> None:
        # As far as the peer knows, deliveries that wait for the session window are not sent.
        flow.delivery_count = serial_add(self.delivery_count, -self.parked)
        credit = self.credit + self.parked - self.overdrawn
        flow.link_credit = credit if credit > 0 else 0
        count = self.count_available
        available: i64 = self.available if count is None else count()
        flow.available = available if available <= 0xFFFFFFFF else 0xFFFFFFFF
        flow.drain = self.drain
