"""Resuming links: the end of unsettled deliveries (AMQP 1.0 §2.6.13, §3.4.6).

A link that is attached again after it was suspended, or after its session or connection was lost,
tells the peer by its `unsettled` map which deliveries it still knows, and their states. From the
two maps the sender decides how each delivery continues: `resolve` is the table of these decisions,
and `SenderResumption.resume` executes them. A receiver accepts the deliveries that the sender
resumes, and counts those that the sender has forgotten as settled.

A map that does not fit the peer's frames is sent in part and marked incomplete. A missing tag then
has no meaning: the deliveries in the map are resolved, no new delivery may be sent, and the link is
suspended and resumed again until both maps are complete.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.positions import is_before, offset_of, position_at_end
from ferrymq.errors import DecodeError, RemoteProtocolError, Scope
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Accepted, Modified, Received, Rejected, Released
from ferrymq_types.registry import typed
from ferrymq_types.transactions import Declared, TransactionalState

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.sender import SenderLink
    from ferrymq_types.transport import Attach
    from ferrymq_types.unions import DeliveryState


class Resolution(Enum):
    """The action of a sender for a delivery that was unsettled when its link resumed.

    - FORGET: both sides have finished the delivery; send nothing.
    - RESEND: the receiver does not know the delivery; send it as a new delivery.
    - CONTINUE: resume the delivery from the position that the receiver has reached.
    - SETTLE: both sides have the same outcome, or the sender takes over the receiver's outcome;
      resume the delivery as settled.
    - RESTATE: the outcomes differ, and the sender's applies; resume the delivery with the sender's
      outcome, and let the receiver settle.
    - ABORT: the part that the receiver lacks can no longer be sent; resume the delivery as aborted.
    - WAIT: the receiver's map is incomplete and does not have the delivery.
    """

    FORGET = auto()
    RESEND = auto()
    CONTINUE = auto()
    SETTLE = auto()
    RESTATE = auto()
    ABORT = auto()
    WAIT = auto()


def is_outcome(state: DeliveryState | None) -> bool:
    """Return whether the state is terminal (AMQP 1.0 §3.4)."""
    return isinstance(state, (Accepted, Rejected, Released, Modified))


def resolve(
    local: DeliveryState | None, known: bool, remote: DeliveryState | None, complete: bool
) -> Resolution:
    """Return how the sender must handle a delivery with the sender's state `local` and the
    receiver's `remote`.

    `known` says whether the receiver's map has the delivery, `complete` whether that map is
    complete. The numbers in the comments are those of the example in AMQP 1.0 §3.4.6.
    """
    if not known:
        if not complete:
            return Resolution.WAIT
        # 10 against 1 and 5
        return Resolution.FORGET if is_outcome(local) else Resolution.RESEND
    if is_outcome(local):
        if not is_outcome(remote):
            return Resolution.ABORT  # 11, 14
        return Resolution.SETTLE if local == remote else Resolution.RESTATE  # 12, 13
    if is_outcome(remote):
        return Resolution.SETTLE  # 3, 8
    if isinstance(local, Received):
        reached = remote if isinstance(remote, Received) else _START
        if is_before(reached, local):
            return Resolution.ABORT  # 7, 9
    return Resolution.CONTINUE  # 2, 4, 6


_START = Received(section_number=0, section_offset=0)


def read_unsettled(attach: Attach) -> dict[bytes, DeliveryState | None]:
    """Return the unsettled map of an attach. Raises `RemoteProtocolError` if it is malformed."""
    result: dict[bytes, DeliveryState | None] = {}
    unsettled = attach.unsettled
    if unsettled is None:
        return result
    for tag, value in unsettled.items():
        state: object = value
        if isinstance(value, Described):
            try:
                state = typed(value)
            except DecodeError as error:
                raise _malformed(attach, str(error)) from None
        if not isinstance(tag, bytes):
            raise _malformed(attach, f"key {tag!r:.80} is no delivery-tag")
        if state is None or isinstance(
            state,
            (Received, Accepted, Rejected, Released, Modified, Declared, TransactionalState),
        ):
            result[tag] = state
        else:
            raise _malformed(attach, f"the value of {tag!r} is no delivery state")
    return result


def _malformed(attach: Attach, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        "amqp:invalid-field",
        f"unsettled map in the attach of link {attach.name!r}: {what}",
        Scope.SESSION,
    )


@final
class SenderResumption:
    """The unsettled deliveries of a sender link that resumes, by tag.

    `remote` is the receiver's map once its attach has arrived. `complete` and `remote_complete` say
    whether our map and the receiver's map were sent completely.
    """

    __slots__ = ("link", "unsettled", "complete", "remote", "remote_complete")

    def __init__(self, link: SenderLink, unsettled: dict[bytes, OutgoingDelivery]) -> None:
        self.link: SenderLink = link
        self.unsettled: dict[bytes, OutgoingDelivery] = {}
        for tag, delivery in unsettled.items():
            if not delivery.settled:
                # The old delivery-id is not valid on the new endpoint (AMQP 1.0 §2.6.13).
                delivery.link.session.outgoing.drop(delivery)
                delivery.link = link
                delivery.id = -1
                delivery.sent = False
                self.unsettled[tag] = delivery
        self.complete: bool = True
        self.remote: dict[bytes, DeliveryState | None] = {}
        self.remote_complete: bool = True

    def states(self) -> dict[object, object]:
        """Return our unsettled map for the attach."""
        return {tag: delivery.state for tag, delivery in self.unsettled.items()}

    def on_attach(self, attach: Attach) -> None:
        """Apply the receiver's attach. Deliveries that only the receiver considers unsettled are
        ignored."""
        self.remote = read_unsettled(attach)
        self.remote_complete = not attach.incomplete_unsettled
        for tag, delivery in self.unsettled.items():
            if tag in self.remote:
                delivery.remote_state = self.remote[tag]

    def resolution(self, delivery: OutgoingDelivery) -> Resolution:
        """Return how the delivery must be handled."""
        tag = delivery.tag
        return resolve(
            delivery.state, tag in self.remote, self.remote.get(tag), self.remote_complete
        )

    @property
    def whole(self) -> bool:
        """Whether new deliveries may be sent: both maps were complete (AMQP 1.0 §2.7.3)."""
        return self.complete and self.remote_complete

    def resume(self, delivery: OutgoingDelivery, payload: bytes, message_format: int) -> Resolution:
        """Handle the delivery according to `resolution`; see `SenderLink.resume`."""
        resolution = self.resolution(delivery)
        link = self.link
        offset: i64 = 0
        position: Received | None = None
        if resolution is Resolution.CONTINUE:
            state = self.remote.get(delivery.tag)
            if isinstance(state, Received):
                position = state
                offset = offset_of(payload, state)
                if offset < 0:
                    resolution = Resolution.ABORT
        if resolution is Resolution.FORGET:
            delivery.settled = True
        elif resolution is Resolution.RESEND:
            # The receiver does not know the delivery: its earlier state belonged to another
            # attempt.
            delivery.state = None
            delivery.remote_state = None
            link._dispatch(delivery, payload, 0, message_format, None, False, False)
        elif resolution is Resolution.CONTINUE:
            link._dispatch(delivery, payload, offset, message_format, position, True, False)
        elif resolution is Resolution.SETTLE:
            if not is_outcome(delivery.state):
                delivery.state = delivery.remote_state
            delivery.settled = True
            link._dispatch(delivery, b"", 0, message_format, delivery.state, True, False)
        elif resolution is Resolution.RESTATE:
            link._dispatch(delivery, b"", 0, message_format, delivery.state, True, False)
        elif resolution is Resolution.ABORT:
            delivery.settled = True
            link._dispatch(delivery, b"", 0, message_format, None, True, True)
        if resolution is not Resolution.WAIT:
            del self.unsettled[delivery.tag]
        if delivery.settled:
            link._forget(delivery)
        return resolution


@final
class ReceiverResumption:
    """The unsettled deliveries of a receiver link that resumes, by tag."""

    __slots__ = ("link", "unsettled", "complete", "listed", "skip", "continued")

    def __init__(self, link: ReceiverLink, unsettled: dict[bytes, IncomingDelivery]) -> None:
        self.link: ReceiverLink = link
        self.unsettled: dict[bytes, IncomingDelivery] = {}
        for tag, delivery in unsettled.items():
            if not delivery.settled:
                # The old delivery-id is not valid on the new endpoint (AMQP 1.0 §2.6.13).
                delivery.link.session.incoming.drop(delivery)
                delivery.link = link
                delivery.id = -1
                delivery.resumed = False
                self.unsettled[tag] = delivery
        self.complete: bool = True
        # Number of entries, from the first, that fit into the map of our attach.
        self.listed: i64 = len(self.unsettled)
        # Bytes of the delivery being resumed that are still to be skipped, because they arrived
        # before.
        self.skip: i64 = 0
        # Whether the sender has sent bytes of that delivery since it resumed the delivery.
        self.continued: bool = False

    def states(self) -> dict[object, object]:
        """Return our unsettled map for the attach: outcomes, and the positions of the other
        deliveries."""
        result: dict[object, object] = {}
        for tag, delivery in self.unsettled.items():
            state = delivery.state
            result[tag] = position_at_end(delivery.data()) if state is None else state
        return result

    def on_attach(self, attach: Attach) -> list[IncomingDelivery]:
        """Apply the sender's attach; return the deliveries that the sender has settled."""
        remote = read_unsettled(attach)
        settled: list[IncomingDelivery] = []
        for tag in list(self.unsettled):
            delivery = self.unsettled[tag]
            if tag in remote:
                delivery.remote_state = remote[tag]
            elif not attach.incomplete_unsettled:
                # Deliveries that only the receiver considers unsettled are settled.
                delivery.remote_settled = True
                delivery.settled = True
                settled.append(delivery)
                del self.unsettled[tag]
        return settled

    def take_up(self, tag: bytes, id: i64, state: DeliveryState | None) -> IncomingDelivery | None:
        """Return the delivery that the sender resumes; None if it is unknown and must be ignored.

        `state` is the state of the transfer; if it is a position, the payload begins there.
        """
        delivery = self.unsettled.pop(tag, None)
        if delivery is None:
            return None
        delivery.id = id
        data = delivery.data()
        start: i64 = 0
        if isinstance(state, Received):
            start = offset_of(data, state)
            if start < 0:
                raise RemoteProtocolError(
                    "amqp:invalid-field",
                    f"delivery {tag!r} on link {self.link.name!r} is resumed from section "
                    f"{state.section_number}, byte {state.section_offset}, beyond what arrived",
                    Scope.LINK,
                )
        self.skip = len(data) - start
        self.continued = False
        delivery._received = len(data)
        if not delivery.complete and delivery._begun is None:
            delivery._add(data, 0)
        return delivery

    def unseen(self, delivery: IncomingDelivery, payload: bytes) -> bytes:
        """Return the part of a transfer's payload that has not arrived before."""
        if delivery.ignored or delivery.complete:
            return b""
        if payload:
            self.continued = True
        skip = self.skip
        if skip == 0:
            return payload
        if skip >= len(payload):
            self.skip = skip - len(payload)
            return b""
        self.skip = 0
        return payload[skip:]
