"""Links: one direction of messages between two nodes (AMQP 1.0 §2.6).

`SenderLink` and `ReceiverLink` are the two roles; `Link` is what they share.
Termini, settle modes and the handshake live in `Link`, credit and deliveries in
the roles. Frames reach a link through its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.answers import fitting
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.resumption import (
    ReceiverResumption,
    Resolution,
    SenderResumption,
    is_outcome,
)
from ferrymq.engine.serial import serial_add, serial_diff
from ferrymq.engine.states import LINK_TABLE, LinkInput, LinkState
from ferrymq.errors import EncodeError, LocalProtocolError, Scope
from ferrymq_types.transport import (
    Attach,
    Detach,
    Error,
    Flow,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
)

if TYPE_CHECKING:
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState, Source, Target


def illegal(description: str) -> LocalProtocolError:
    """The error for a call that the state of a link does not allow."""
    return LocalProtocolError("amqp:illegal-state", description, Scope.LINK)


class Link:
    """What both roles share. Created by `Session.attach_sender`/`attach_receiver` or by the peer.

    `initiated` is true when this side attached first. `source` and `target`
    are what this side sent; `remote_attach` is the peer's attach, None before
    it came.
    """

    __slots__ = (
        "session",
        "name",
        "handle",
        "remote_handle",
        "initiated",
        "is_sender",
        "state",
        "usable",
        "local_detached",
        "remote_detached",
        "source",
        "target",
        "remote_attach",
        "snd_settle_mode",
        "rcv_settle_mode",
        "always_settled",
        "never_settled",
        "settles_second",
        "max_message_size",
        "remote_max_message_size",
        "credit",
        "delivery_count",
        "drain",
        "ghost",
        "failed",
        "remote_closed",
        "local_closed",
        "context",
    )

    def __init__(self, session: Session, name: str, initiated: bool, is_sender: bool) -> None:
        self.session = session
        self.name = name
        self.handle: i64 = -1
        self.remote_handle: i64 = -1
        self.initiated = initiated
        self.is_sender = is_sender
        self.state: LinkState = LinkState.DETACHED
        # True from the second attach to the first detach: transfers and flows may pass.
        self.usable = False
        self.local_detached = False
        self.remote_detached = False
        self.source: Source | None = None
        self.target: Target | None = None
        self.remote_attach: Attach | None = None
        self.snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED
        self.rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST
        # The settle modes once more, as flags: the hot path asks for every delivery.
        self.always_settled = False
        self.never_settled = False
        self.settles_second = False
        # Bytes; 0 means without a limit (AMQP 1.0 §2.7.3).
        self.max_message_size: int = 0
        self.remote_max_message_size: int = 0
        self.credit: i64 = 0
        self.delivery_count: i64 = 0
        self.drain = False
        # A link attached only to be closed; its user has never seen it.
        self.ghost = False
        # Detached because the peer broke a rule on it: nothing more may come for it.
        self.failed = False
        # Whether each side has closed the link, and not only detached it.
        self.local_closed = False
        self.remote_closed = False
        self.context: object = None

    def __repr__(self) -> str:
        role = "sender" if self.is_sender else "receiver"
        return f"<{role} link {self.name!r} {self.state.name}>"

    # -- handshake ---------------------------------------------------------

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | None = None,
        properties: dict[str, object] | None = None,
        offered_capabilities: list[str] | None = None,
        max_message_size: int = 0,
    ) -> None:
        """Answer the peer's attach. Termini left out are echoed as the peer gave them.

        Does nothing when the link or its session is over. Raises
        `LocalProtocolError` if the link was answered already or its session was not.
        """
        remote = self.remote_attach
        if self.local_detached or self._over():
            return
        if self.initiated or remote is None or self.state is not LinkState.ATTACH_RCVD:
            raise illegal(f"link {self.name!r} has no attach of the peer to answer")
        self.source = source if source is not None else remote.source
        self.target = target if target is not None else remote.target
        self.max_message_size = max_message_size
        self._send_attach(properties, offered_capabilities, None)

    def refuse(self, error: Error) -> None:
        """Refuse the peer's attach: a null terminus, then a closing detach (AMQP 1.0 §2.6.3).

        The terminus the peer asked us to be is the null one.
        """
        remote = self.remote_attach
        if self.local_detached or self._over():
            return
        if self.initiated or remote is None or self.state is not LinkState.ATTACH_RCVD:
            raise illegal(f"link {self.name!r} has no attach of the peer to answer")
        if self.is_sender:
            self.source, self.target = None, remote.target
        else:
            self.source, self.target = remote.source, None
        self._send_attach(None, None, None)
        self.detach(closed=True, error=error)

    def detach(self, *, closed: bool = True, error: Error | None = None) -> None:
        """Close (or, with `closed=False`, suspend) the link, or answer the peer's detach.

        Does nothing when this side has detached already or the session is gone.
        """
        if self.local_detached or self.state is LinkState.DETACHED:
            return
        if self.state is LinkState.ATTACH_RCVD:
            # The peer is owed an attach before it can be sent a detach.
            self._send_attach(None, None, None)
        self._send_detach(closed, error)

    def close(self, error: Error | None = None) -> None:
        """`detach` with `closed` true."""
        self.detach(closed=True, error=error)

    def _over(self) -> bool:
        """Whether the link was there and is gone."""
        return self.state is LinkState.DETACHED and self.remote_attach is not None

    def _agree_settle_modes(self, snd: SenderSettleMode, rcv: ReceiverSettleMode) -> None:
        self.snd_settle_mode = snd
        self.rcv_settle_mode = rcv
        self.always_settled = snd is SenderSettleMode.SETTLED
        self.never_settled = snd is SenderSettleMode.UNSETTLED
        self.settles_second = rcv is ReceiverSettleMode.SECOND

    def _transition(self, event: LinkInput) -> bool:
        new = LINK_TABLE.get((self.state, event))
        if new is None:
            return False
        self.state = new
        self.usable = new is LinkState.ATTACHED and self.session.mapped
        return True

    def _send_attach(
        self,
        properties: dict[str, object] | None,
        offered_capabilities: list[str] | None,
        desired_capabilities: list[str] | None,
    ) -> None:
        session = self.session
        if not session.open_for_output:
            raise illegal(f"link {self.name!r}: the begin of its session has not been answered")
        handle = session._free_handle()
        attach = Attach(
            name=self.name,
            handle=handle,
            role=Role.SENDER if self.is_sender else Role.RECEIVER,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=self.source,
            target=self.target,
            unsettled=self._unsettled_states(),
            initial_delivery_count=self.delivery_count if self.is_sender else None,
            max_message_size=self.max_message_size,
            offered_capabilities=offered_capabilities,
            desired_capabilities=desired_capabilities,
            properties=properties,
        )
        self._send_fitting(attach)
        session._take_handle(handle, self)
        self._transition(LinkInput.SEND_ATTACH)
        if self.state is LinkState.ATTACHED and self.remote_detached:
            # The peer's detach came before our attach; only our answer is missing.
            self._transition(LinkInput.RECV_DETACH)

    def _send_fitting(self, attach: Attach) -> None:
        """Send the attach with as much of its unsettled map as fits (AMQP 1.0 §2.7.3)."""
        while True:
            try:
                self.session._send(attach)
                return
            except LocalProtocolError as error:
                unsettled = attach.unsettled
                if not unsettled or error.condition != "amqp:frame-size-too-small":
                    raise
                attach.unsettled = dict(list(unsettled.items())[: len(unsettled) // 2])
                attach.incomplete_unsettled = True
                self._mark_incomplete()

    def _unsettled_states(self) -> dict[object, object] | None:
        """The unsettled map to attach with; None unless the link resumes."""
        return None

    def _mark_incomplete(self) -> None:
        """The unsettled map did not fit."""

    def _send_detach(self, closed: bool, error: Error | None) -> None:
        session = self.session
        # A close is answered by a close (AMQP 1.0 §2.6.6).
        closed = closed or self.remote_closed
        if session.open_for_output:
            # The peer forgets the deliveries with the detach: settlements come before it.
            session._flush_dispositions()
            fits = fitting(error, session.connection.remote_max_frame_size)
            session._send(Detach(handle=self.handle, closed=closed, error=fits))
        self.local_detached = True
        self.local_closed = closed
        self._transition(LinkInput.SEND_DETACH)
        session._forget_deliveries(self)
        if self.state is LinkState.DETACHED:
            session._release_link(self)

    def _on_attach(self, attach: Attach) -> None:
        self.remote_attach = attach
        self.remote_handle = attach.handle
        snd = attach.snd_settle_mode
        rcv = attach.rcv_settle_mode
        if self.initiated:
            # Each end decides its own mode; what the other says of it was a wish
            # (AMQP 1.0 §2.7.3).
            if self.is_sender:
                snd = self.snd_settle_mode
            else:
                rcv = self.rcv_settle_mode
        self._agree_settle_modes(snd, rcv)
        self.remote_max_message_size = attach.max_message_size or 0
        if not self.is_sender and attach.initial_delivery_count is not None:
            self.delivery_count = attach.initial_delivery_count
        self._transition(LinkInput.RECV_ATTACH)

    def _on_detach(self, closed: bool) -> None:
        self.remote_detached = True
        self.remote_closed = closed
        self._transition(LinkInput.RECV_DETACH)
        self.session._forget_deliveries(self)
        if self.state is LinkState.DETACHED:
            self.session._release_link(self)

    def _fill_flow(self, flow: Flow) -> None:
        """Put the state of the link into a flow; each role has its own."""

    def _lost(self) -> None:
        """The session is gone, and the link with it."""
        self.state = LinkState.DETACHED
        self.usable = False


@final
class SenderLink(Link):
    """The end of a link that sends.

    `credit` is how many deliveries the receiver allows now; `available` is what
    the user says it could send beyond that, for the receiver to know.
    """

    __slots__ = ("available", "flow_properties", "parked", "unsettled", "resumption", "_next_tag")

    def __init__(self, session: Session, name: str, initiated: bool) -> None:
        super().__init__(session, name, initiated, True)
        self.available: i64 = 0
        # `properties` of the latest flow of the receiver (AMQP 1.0 §2.7.4).
        self.flow_properties: dict[str, object] | None = None
        # Deliveries sent by the user that the session window still holds back.
        self.parked: i64 = 0
        # What was unsettled when the link was suspended or lost, by tag: for `resume_from`.
        self.unsettled: dict[bytes, OutgoingDelivery] = {}
        self.resumption: SenderResumption | None = None
        self._next_tag: i64 = 0

    def send(
        self,
        payload: bytes,
        *,
        tag: bytes | None = None,
        settled: bool = False,
        message_format: int = 0,
        state: DeliveryState | None = None,
    ) -> OutgoingDelivery:
        """Send one encoded message, in as many frames as it takes.

        `settled` is forced by the settle mode agreed at attach. A tag left out
        is made unique on the link. Frames the session window does not admit
        wait in the session and follow by themselves.

        Raises `LocalProtocolError` when the link is not attached or has no
        credit, or when the message is larger than the receiver takes;
        `EncodeError` for a tag of more than 32 bytes or a format of more than 32 bits.
        """
        self._expect_credit()
        if self.resumption is not None and not self.resumption.whole:
            raise illegal(
                f"link {self.name!r} has resumed with an incomplete unsettled map: "
                f"no new delivery may be sent"
            )
        limit = self.remote_max_message_size
        if limit != 0 and len(payload) > limit:
            raise LocalProtocolError(
                "amqp:link:message-size-exceeded",
                f"message of {len(payload)} bytes; the receiver on link {self.name!r} "
                f"takes at most {limit}",
                Scope.LINK,
            )
        if tag is None:
            self._next_tag += 1
            tag = int(self._next_tag & 0xFFFFFFFF).to_bytes(4, "big")
        elif len(tag) > 32:
            raise EncodeError("transfer.delivery-tag", f"{len(tag)} bytes; at most 32 are allowed")
        if not 0 <= message_format <= 0xFFFFFFFF:
            raise EncodeError("transfer.message-format", f"{message_format} is not a uint")
        if state is not None:
            self.session.outgoing.expect_room(state)
        if self.always_settled:
            settled = True
        elif self.never_settled:
            settled = False
        delivery = OutgoingDelivery(self, tag, settled)
        delivery.state = state
        self.credit -= 1
        self.delivery_count = serial_add(self.delivery_count, 1)
        self.session.outgoing.send(delivery, payload, 0, message_format, state, False, False)
        return delivery

    def _expect_credit(self) -> None:
        if not self.usable:
            raise illegal(f"link {self.name!r} is not attached")
        if self.credit <= 0:
            raise LocalProtocolError(
                "amqp:link:transfer-limit-exceeded",
                f"link {self.name!r} has no credit",
                Scope.LINK,
            )

    def resume_from(self, unsettled: dict[bytes, OutgoingDelivery]) -> None:
        """Resume with these unsettled deliveries: to be called before `accept`.

        They are those of the earlier link (`link.unsettled`), or made from what was stored.
        The map may be empty; without this call the attach says that nothing is resumed.
        """
        self.resumption = SenderResumption(self, unsettled)
        remote = self.remote_attach
        if remote is not None:
            self.resumption.on_attach(remote)

    def resume(
        self, delivery: OutgoingDelivery, payload: bytes = b"", *, message_format: int = 0
    ) -> Resolution:
        """Do what the states of both sides call for with a delivery of `resume_from`.

        `payload` is the whole encoded message, for the case that it has to be sent again or
        in part. When the receiver has come to an outcome (`delivery.remote_state`), apply it
        first: the delivery is settled by this call. Returns what was done.

        Raises `LocalProtocolError` when the link is not attached, has no credit though a frame
        is to be sent, or the delivery is not to be resumed.
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
        self.session.outgoing.send(
            delivery, payload, offset, message_format, state, resume, aborted
        )

    def _unsettled_states(self) -> dict[object, object] | None:
        return None if self.resumption is None else self.resumption.states()

    def _mark_incomplete(self) -> None:
        if self.resumption is not None:
            self.resumption.complete = False

    def settle(self, delivery: OutgoingDelivery, state: DeliveryState | None = None) -> None:
        """See `OutgoingDelivery.settle`."""
        if delivery.settled:
            return
        if state is None:
            state = delivery.state if delivery.remote_state is None else delivery.remote_state
        outgoing = self.session.outgoing
        if not delivery.remote_settled and delivery.id in outgoing.unsettled:
            outgoing.queue_disposition(delivery.id, state, True)
            del outgoing.unsettled[delivery.id]
        delivery.state = state
        delivery.settled = True

    def drained(self) -> None:
        """Give back all credit that is left: the answer to `drain` (AMQP 1.0 §2.6.7)."""
        if not self.drain or not self.usable:
            return
        self.delivery_count = serial_add(self.delivery_count, self.credit)
        self.credit = 0
        self.session._send_link_flow(self)

    def _on_flow(self, flow: Flow) -> None:
        """Take over the credit: what the receiver allows less what it has not seen yet."""
        seen = flow.delivery_count
        credit = flow.link_credit
        limit: i64 = 0 if credit is None else credit
        # A receiver that has not seen our attach yet counts from our initial count, which is 0.
        limit += serial_diff(0 if seen is None else seen, self.delivery_count)
        self.credit = limit if limit > 0 else 0
        self.drain = flow.drain
        self.flow_properties = flow.properties

    def _fill_flow(self, flow: Flow) -> None:
        # What waits for the session window has not been sent, as far as the peer knows.
        flow.delivery_count = serial_add(self.delivery_count, -self.parked)
        flow.link_credit = self.credit + self.parked
        flow.available = self.available
        flow.drain = self.drain


@final
class ReceiverLink(Link):
    """The end of a link that receives. No message comes until credit is given."""

    __slots__ = ("available", "partial", "allowance", "unsettled", "resumption")

    def __init__(self, session: Session, name: str, initiated: bool) -> None:
        super().__init__(session, name, initiated, False)
        # What the sender said it holds beyond the credit, as of its latest flow.
        self.available: i64 = 0
        self.partial: IncomingDelivery | None = None
        # Deliveries the sender may take for allowed: it learns late of credit taken back.
        self.allowance: i64 = 0
        # What was unsettled when the link was suspended or lost, by tag: for `resume_from`.
        self.unsettled: dict[bytes, IncomingDelivery] = {}
        self.resumption: ReceiverResumption | None = None

    def resume_from(self, unsettled: dict[bytes, IncomingDelivery]) -> list[IncomingDelivery]:
        """Resume with these unsettled deliveries: to be called before `accept`.

        They are those of the earlier link (`link.unsettled`), or made from what was stored.
        Those the sender has settled meanwhile are returned; the sender resumes the rest.
        """
        self.resumption = ReceiverResumption(self, unsettled)
        remote = self.remote_attach
        return [] if remote is None else self.resumption.on_attach(remote)

    def _unsettled_states(self) -> dict[object, object] | None:
        return None if self.resumption is None else self.resumption.states()

    def _mark_incomplete(self) -> None:
        if self.resumption is not None:
            self.resumption.complete = False

    def set_credit(self, credit: int) -> None:
        """Allow the sender `credit` deliveries from now on, and end a drain.

        May follow our own attach at once. Does nothing when the link is detached.
        Raises `LocalProtocolError` for a credit that is no 32-bit number.
        """
        if not 0 <= credit <= 0xFFFFFFFF:
            raise illegal(f"credit {credit}: it must be 0 … 4294967295")
        if self.usable or self.state is LinkState.ATTACH_SENT:
            self.credit = credit
            if self.allowance < credit:
                self.allowance = credit
            self.drain = False
            self.session._send_link_flow(self)

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
            incoming.queue_disposition(delivery.id, state, settles)
            if settles:
                del incoming.unsettled[delivery.id]
        delivery.state = state
        delivery.settled = settles or delivery.remote_settled

    def update(self, delivery: IncomingDelivery, state: DeliveryState) -> None:
        """See `IncomingDelivery.update`."""
        if delivery.settled or delivery.remote_settled:
            return
        incoming = self.session.incoming
        if delivery.id in incoming.unsettled:
            incoming.queue_disposition(delivery.id, state, False)
        delivery.state = state

    def _count_delivery(self) -> None:
        self.delivery_count = (self.delivery_count + 1) & 0xFFFFFFFF
        if self.credit > 0:
            self.credit -= 1
        self.allowance -= 1

    def _fill_flow(self, flow: Flow) -> None:
        # Until the sender's attach came, its count is not known (AMQP 1.0 §2.7.4).
        flow.delivery_count = None if self.remote_attach is None else self.delivery_count
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
        self.available = 0 if available is None else available
        if self.drain and self.credit == 0:
            self.drain = False
            return True
        return False
