"""The receiving half of a session: the window given to the peer and what it has sent.

`window` frames may still come before the peer breaks the agreement; it is
opened again before it closes, for the engine itself takes frames at once.
Back-pressure belongs to link credit, which counts messages (AMQP 1.0 §2.6.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.dispositions import PendingDisposition, joinable, live_ids
from ferrymq.engine.events import (
    DeliveryAborted,
    DeliveryReceived,
    DrainCompleted,
    SettlementReceived,
)
from ferrymq.engine.resumption import is_outcome
from ferrymq.errors import RemoteProtocolError, Scope
from ferrymq_types.transport import Disposition, ReceiverSettleMode, Role, Transfer

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState


@final
class IncomingHalf:
    """What a session receives. `unsettled`: the peer's unsettled deliveries, by delivery-id."""

    __slots__ = ("session", "unsettled", "next_id", "window", "_max_window", "_pending")

    def __init__(self, session: Session, window: i64) -> None:
        self.session = session
        self.unsettled: dict[int, IncomingDelivery] = {}
        # next-incoming-id: the transfer-id expected next.
        self.next_id: i64 = 0
        self.window: i64 = window
        self._max_window: i64 = window
        self._pending = PendingDisposition()

    # -- transfers -----------------------------------------------------------

    def on_transfer(self, transfer: Transfer, link: ReceiverLink, payload: bytes) -> None:
        """One transfer frame for a link (already looked up) arrived."""
        partial = link.partial
        if partial is None:
            partial = self._first_frame(transfer, link)
            if link.resumption is not None:
                partial = self._resumed(transfer, link, partial)
        else:
            self._expect_continuation(transfer, link, partial)
        if transfer.aborted:
            link.partial = None
            link._count_delivery()
            if not partial.ignored:
                partial.remote_settled = True
                self.session.connection._emit(DeliveryAborted(link, partial))
            if link.drain:
                self._check_drained(link)
            return
        if transfer.settled:
            # Settled on any frame settles the whole delivery (AMQP 1.0 §2.7.5).
            partial.remote_settled = True
        resumption = link.resumption
        if resumption is not None:
            payload = resumption.unseen(partial, payload)
        limit: i64 = link.max_message_size
        partial._received += len(payload)
        if limit != 0 and partial._received > limit:
            link.partial = None
            raise RemoteProtocolError(
                "amqp:link:message-size-exceeded",
                f"delivery {partial.id} on link {link.name!r} has more than {limit} bytes",
                Scope.LINK,
            )
        if transfer.more:
            link.partial = partial
            chunks = partial._chunks
            if chunks is None:
                partial._chunks = [payload]
            else:
                chunks.append(payload)
            return
        chunks = partial._chunks
        if chunks is None:
            partial.payload = payload
        else:
            chunks.append(payload)
            partial.payload = b"".join(chunks)
            partial._chunks = None
            link.partial = None
        state = transfer.state
        if state is not None:
            partial.remote_state = state
        link._count_delivery()
        if not partial.ignored:
            self._check_settled(link, partial)
            if partial.complete:
                self._taken_up(link, partial)
            else:
                if not partial.remote_settled:
                    self.unsettled[partial.id] = partial
                partial.complete = True
                self.session.connection._emit(DeliveryReceived(link, partial))
        if link.drain:
            self._check_drained(link)

    def _taken_up(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        """The sender has resumed a delivery that had arrived before: only its state is news.

        Its user may have decided on it between the attach and now, when there was no delivery-id
        to say it with.
        """
        state = delivery.state
        if not delivery.remote_settled:
            if delivery.settled:
                self.queue_disposition(delivery.id, state, True)
                return
            self.unsettled[delivery.id] = delivery
            if state is not None and not is_outcome(delivery.remote_state):
                self.queue_disposition(delivery.id, state, False)
        self.session.connection._emit(SettlementReceived(delivery))

    def _expect_continuation(
        self, transfer: Transfer, link: ReceiverLink, partial: IncomingDelivery
    ) -> None:
        """Raise `RemoteProtocolError` if a further transfer belongs to another delivery."""
        id = transfer.delivery_id
        tag = transfer.delivery_tag
        message_format = transfer.message_format
        if (
            (id is not None and id != partial.id)
            or (tag is not None and tag != partial.tag)
            or (message_format is not None and message_format != partial.message_format)
        ):
            raise RemoteProtocolError(
                "amqp:invalid-field",
                f"transfer of delivery {id}, tag {tag!r}, format {message_format} on link "
                f"{link.name!r} inside delivery {partial.id}, tag {partial.tag!r}, format "
                f"{partial.message_format}, which is not complete",
                Scope.SESSION,
            )

    def _resumed(
        self, transfer: Transfer, link: ReceiverLink, fresh: IncomingDelivery
    ) -> IncomingDelivery:
        """The delivery a first frame on a resumed link belongs to (AMQP 1.0 §2.6.13)."""
        resumption = link.resumption
        if resumption is None:
            return fresh
        # The delivery before may have ended early: aborted, or known already.
        resumption.skip = 0
        if not transfer.resume:
            if not resumption.complete:
                raise RemoteProtocolError(
                    "amqp:not-allowed",
                    f"new delivery {fresh.id} on link {link.name!r}, whose unsettled map was "
                    f"incomplete",
                    Scope.LINK,
                )
            return fresh
        known = resumption.take_up(fresh.tag, fresh.id, transfer.state)
        if known is None:
            fresh.ignored = True
            return fresh
        return known

    def _check_settled(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        """Raise `RemoteProtocolError` if a delivery on a link of mode settled is not."""
        if link.always_settled and not delivery.remote_settled:
            raise _mode_broken(link, delivery, "unsettled")

    def _check_drained(self, link: ReceiverLink) -> None:
        """A drain is over as soon as deliveries have used up the credit."""
        if link.credit == 0:
            link.drain = False
            self.session.connection._emit(DrainCompleted(link))

    def _first_frame(self, transfer: Transfer, link: ReceiverLink) -> IncomingDelivery:
        id = transfer.delivery_id
        tag = transfer.delivery_tag
        if id is None or tag is None:
            missing = "delivery-id" if id is None else "delivery-tag"
            raise RemoteProtocolError(
                "amqp:invalid-field",
                f"first transfer of a delivery on link {link.name!r} without {missing}",
                Scope.SESSION,
            )
        if len(tag) > 32:
            raise RemoteProtocolError(
                "amqp:invalid-field",
                f"delivery-tag of {len(tag)} bytes on link {link.name!r}; at most 32 are allowed",
                Scope.SESSION,
            )
        if link.allowance <= 0:
            raise RemoteProtocolError(
                "amqp:link:transfer-limit-exceeded",
                f"transfer of delivery {id} on link {link.name!r} without credit",
                Scope.LINK,
            )
        if id in self.unsettled:
            raise RemoteProtocolError(
                "amqp:invalid-field",
                f"delivery-id {id} is in use by an unsettled delivery",
                Scope.SESSION,
            )
        message_format = transfer.message_format
        delivery = IncomingDelivery(link, id, tag, 0 if message_format is None else message_format)
        if link.never_settled and transfer.settled and not transfer.resume:
            # The mode is about how deliveries begin, not how they end (AMQP 1.0 §2.8.2).
            raise _mode_broken(link, delivery, "settled")
        delivery.second = link.settles_second
        mode = transfer.rcv_settle_mode
        if mode is not None and not transfer.settled:
            delivery.second = mode is ReceiverSettleMode.SECOND
            if delivery.second and not link.settles_second:
                raise RemoteProtocolError(
                    "amqp:invalid-field",
                    f"delivery {id} asks for receiver-settle-mode second on link {link.name!r}, "
                    f"which has first",
                    Scope.LINK,
                )
        return delivery

    def count_frame(self) -> None:
        """A transfer frame arrived, for whatever link: account for it in the window."""
        if self.window <= 0:
            raise RemoteProtocolError(
                "amqp:session:window-violation",
                "transfer beyond the incoming window",
                Scope.SESSION,
            )
        self.window -= 1
        self.next_id = (self.next_id + 1) & 0xFFFFFFFF
        if self.window * 2 <= self._max_window:
            self.session.connection._touch(self.session)

    def flush_window(self) -> None:
        """Open the window again when it is half used."""
        if self.window * 2 <= self._max_window:
            self.session._send_flow()

    def open_window(self) -> i64:
        """The incoming-window to announce now: every flow opens it wholly."""
        self.window = self._max_window
        return self.window

    # -- settlement ------------------------------------------------------------

    def queue_disposition(
        self, delivery_id: i64, state: DeliveryState | None, settled: bool
    ) -> None:
        """Send a disposition for a delivery we received, joined with its neighbours."""
        if not self._pending.extend(delivery_id, state, settled):
            self.flush_dispositions()
            if not joinable(state):
                self._send(delivery_id, delivery_id, settled, state)
                return
            self._pending.extend(delivery_id, state, settled)
        self.session.connection._touch(self.session)

    def flush_dispositions(self) -> None:
        """Write the joined disposition, if there is one."""
        pending = self._pending
        if pending.empty:
            return
        pending.empty = True
        self._send(pending.first, pending.last, pending.settled, pending.state)

    def _send(self, first: i64, last: i64, settled: bool, state: DeliveryState | None) -> None:
        self.session._send(
            Disposition(
                role=Role.RECEIVER,
                first=first,
                last=last,
                settled=settled,
                state=state,
            )
        )

    def on_disposition(self, disposition: Disposition) -> None:
        """The sender told us the state of a range of its deliveries."""
        first = disposition.first
        last = disposition.last
        for id in live_ids(self.unsettled, first, first if last is None else last):
            delivery = self.unsettled[id]
            state = disposition.state
            if state is not None:
                delivery.remote_state = state
            if disposition.settled:
                delivery.remote_settled = True
                delivery.settled = True
                del self.unsettled[id]
            self.session.connection._emit(SettlementReceived(delivery))

    # -- endings ---------------------------------------------------------------

    def forget(self, link: Link) -> None:
        """The link is going: its deliveries are no longer ours to settle."""
        for delivery in [d for d in self.unsettled.values() if d.link is link]:
            del self.unsettled[delivery.id]
            delivery.link.unsettled[delivery.tag] = delivery

    def clear(self) -> None:
        """The session is gone; each link keeps what it had unsettled."""
        for delivery in self.unsettled.values():
            delivery.link.unsettled[delivery.tag] = delivery
        self.unsettled.clear()
        self._pending.empty = True


def _mode_broken(link: ReceiverLink, delivery: IncomingDelivery, how: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        "amqp:not-allowed",
        f"delivery {delivery.id} on link {link.name!r} is {how}; the sender's settle "
        f"mode is {link.snd_settle_mode.name.lower()}",
        Scope.LINK,
    )
