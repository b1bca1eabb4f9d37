"""The receiving half of a session: the window granted to the peer and the received deliveries.

The peer may still send `window` transfer frames. The window is opened again before it closes,
because the engine takes frames at once. Back-pressure is the task of link credit, which counts
messages (AMQP 1.0 §2.6.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.answers import errant_link
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.dispositions import DispositionQueue, live_ids
from ferrymq.engine.events import (
    DeliveryAborted,
    DrainCompleted,
    MessageTooLarge,
    PostingBegun,
    SettlementReceived,
)
from ferrymq.engine.resumption import is_outcome
from ferrymq.engine.unsettled import UnsettledDeliveries
from ferrymq.errors import RemoteProtocolError, Scope
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Disposition, Flow, ReceiverSettleMode, Role, Transfer

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.plain_transfer import PlainTransfer
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState


@final
class IncomingHalf:
    """Receiving half of a session. `unsettled`: the peer's unsettled deliveries, by delivery-id."""

    __slots__ = (
        "session",
        "unsettled",
        "next_id",
        "window",
        "remote_outgoing_window",
        "dispositions",
        "_max_window",
        "_errant",
    )
    # Deleted by `drop_references`, after the last call.
    __deletable__: tuple[str, ...] = ("session",)

    def __init__(self, session: Session, window: i64) -> None:
        self.session: Session = session
        self.unsettled: UnsettledDeliveries[IncomingDelivery] = UnsettledDeliveries()
        # next-incoming-id: the transfer-id expected next.
        self.next_id: i64 = 0
        self.window: i64 = window
        # The outgoing window that the peer has announced, less what it has sent since (AMQP 1.0
        # §2.5.6).
        self.remote_outgoing_window: i64 = 0
        self._max_window: i64 = window
        self.dispositions: DispositionQueue = DispositionQueue(session, Role.RECEIVER)
        # Unsettled deliveries of failed links: a frame that refers to one is an error.
        self._errant: dict[int, ReceiverLink] = {}

    # -- transfers -----------------------------------------------------------

    def take_plain(
        self, plain: PlainTransfer, link: ReceiverLink, data: bytes, begin: i64, end: i64
    ) -> bool:
        """Take a transfer that is a whole message, `data` from `begin` to `end`.

        Return false, with nothing changed, if something is unusual or wrong: `on_transfer` handles
        such a transfer, and says what is wrong.
        """
        id = plain.delivery_id
        size = end - begin
        limit: i64 = link.max_message_size
        if (
            not link.usable
            or link.partial is not None
            or link.allowance <= 0
            or link.resumption is not None
            or self.window <= 0
            or (limit != 0 and size > limit)
            or self.unsettled.find(id) is not None
        ):
            return False
        settled = plain.settled
        if settled:
            if link.never_settled or link._tags is not None:
                return False
        elif link.always_settled or (link.unique_tags and not link._claim_plain(plain)):
            return False
        self.count_frame()
        delivery = IncomingDelivery(link, id, plain.tag, 0)
        delivery._number = plain.number
        delivery.second = link.settles_second
        delivery.payload = data[begin:end]
        delivery.complete = True
        delivery._received = size
        link._count_delivery()
        if settled:
            delivery.remote_settled = True
        else:
            self.unsettled.add(id, delivery)
        self.session.connection._emit(delivery)
        if link.drain:
            self._check_drained(link)
        return True

    def on_transfer(
        self, transfer: Transfer, link: ReceiverLink, payload: bytes | memoryview
    ) -> None:
        """Handle one transfer frame for a link that has been looked up."""
        partial = link.partial
        first = partial is None
        if partial is None:
            partial = self._first_frame(transfer, link)
        else:
            self._expect_continuation(transfer, link, partial)
        state = transfer.state
        if state is not None:
            if not first:
                _expect_same_transaction(link, partial, state)
            if not is_outcome(partial.remote_state):
                # An outcome stays as it is (AMQP 1.0 §2.7.5).
                partial.remote_state = state
            if first and transfer.more and isinstance(state, TransactionalState):
                self.session.connection._emit(PostingBegun(link, state))
        if transfer.aborted:
            self._on_abort(link, partial)
            return
        if transfer.settled:
            if link.never_settled and not partial.resumed:
                # The mode governs how deliveries begin, not how they end (AMQP 1.0 §2.8.2).
                raise _mode_broken(link, partial, "settled")
            # Settled on any frame settles the whole delivery (AMQP 1.0 §2.7.5).
            partial.remote_settled = True
        if partial.resumed:
            resumption = link.resumption
            payload = b"" if resumption is None else resumption.unseen(partial, bytes(payload))
        limit: i64 = link.max_message_size
        partial._received += len(payload)
        if limit != 0 and partial._received > limit:
            if _can_be_rejected(link, partial):
                self._skip(link, partial, transfer.more is True)
                return
            self._drop_partial(link, partial)
            raise RemoteProtocolError(
                "amqp:link:message-size-exceeded",
                f"delivery {partial.id} on link {link.name!r} has more than {limit} bytes",
                Scope.LINK,
            )
        if transfer.more:
            if link.partial is None:
                link.partial = partial
                if not partial.remote_settled and not partial.ignored:
                    # The sender may state the state of an incomplete delivery (§2.7.6).
                    self._add_unsettled(partial)
            if not partial.complete:
                unfinished = self.session.connection.channels.unfinished
                # One such buffer for each connection, because the memory is not counted.
                expected: i64 = link._last_size if unfinished.held == 0 else 0
                partial._add(payload, expected)
                if not unfinished.add(link, len(payload)):
                    self._drop_partial(link, partial)
                    raise RemoteProtocolError(
                        "amqp:resource-limit-exceeded",
                        f"delivery {partial.id} on link {link.name!r} is one of too many bytes of "
                        f"messages that are not complete",
                        Scope.LINK,
                    )
            return
        if partial.resumed and not partial.complete and _is_given_up(link, partial):
            if not partial.remote_settled:
                # The sender's outcome stands; the sender waits for our confirmation (AMQP 1.0
                # §3.4.6).
                self.dispositions.add(partial.id, partial.remote_state, True)
            self._on_abort(link, partial)
            return
        if not first:
            link._end_partial()
        if not partial.complete:
            if partial._begun is None:
                partial.payload = payload if isinstance(payload, bytes) else bytes(payload)
            else:
                partial._add(payload, 0)
                partial._join()
                link._last_size = len(partial.payload)
        link._count_delivery()
        if not partial.ignored:
            self._on_last_frame(link, partial)
        if link.drain:
            self._check_drained(link)

    def _skip(self, link: ReceiverLink, delivery: IncomingDelivery, more: bool) -> None:
        """Skip a frame of a message that is too large. The user learns of the message with its last
        frame, and rejects it."""
        link._end_partial()
        delivery._drop()
        self._add_unsettled(delivery)
        if more:
            link.partial = delivery
            return
        link._count_delivery()
        delivery.complete = True
        self.session.connection._emit(MessageTooLarge(link, delivery))
        if link.drain:
            self._check_drained(link)

    def _drop_partial(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        """Drop the received part of a delivery that is too large, as if it had never arrived."""
        link._end_partial()
        self.unsettled.remove(delivery.id)
        delivery._drop()

    def _add_unsettled(self, delivery: IncomingDelivery) -> None:
        """Add an unsettled delivery, unless an earlier frame has done so."""
        if self.unsettled.find(delivery.id) is None:
            self.unsettled.add(delivery.id, delivery)

    def _on_last_frame(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        if delivery.remote_settled:
            self.unsettled.remove(delivery.id)
            link._forget_tag(delivery.tag)
        elif link.always_settled:
            raise _mode_broken(link, delivery, "unsettled")
        else:
            self._add_unsettled(delivery)
        if delivery.complete:
            self._on_taken_up(delivery)
        else:
            delivery.complete = True
            self.session.connection._emit(delivery)

    def _on_taken_up(self, delivery: IncomingDelivery) -> None:
        """Apply the sender's state to a resumed delivery that had arrived completely before.

        The user may have given it an outcome since the attach, when there was no delivery-id yet to
        send that outcome with.
        """
        state = delivery.state
        if delivery.remote_settled:
            delivery.settled = True
        elif delivery.settled:
            self.unsettled.remove(delivery.id)
            delivery.link._forget(delivery)
            self.dispositions.add(delivery.id, state, True)
            return
        elif state is not None and not is_outcome(delivery.remote_state):
            if is_outcome(state) and not delivery.second:
                # No answer of the sender has to be awaited.
                delivery.settle(state)
            else:
                self.dispositions.add(delivery.id, state, False)
        self.session.connection._emit(SettlementReceived(delivery))

    def _on_abort(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        """Drop a delivery that the sender aborted, which settles it at both ends (AMQP 1.0
        §2.7.5)."""
        link._end_partial()
        link._count_delivery()
        if not delivery.ignored:
            self.unsettled.remove(delivery.id)
            link._forget_tag(delivery.tag)
            delivery.remote_settled = True
            delivery.settled = True
            self.session.connection._emit(DeliveryAborted(link, delivery))
        if link.drain:
            self._check_drained(link)

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
        """Return the delivery that the sender resumes (AMQP 1.0 §2.6.13)."""
        resumption = link.resumption
        known: IncomingDelivery | None = None
        if resumption is not None:
            known = resumption.take_up(fresh.tag, fresh.id, transfer.state)
        if known is None:
            fresh.resumed = True
            fresh.ignored = True
            return fresh
        # The settle mode of this transfer applies, not that of the earlier one (AMQP 1.0 §2.7.5).
        known.second = fresh.second
        known.resumed = True
        return known

    def _check_drained(self, link: ReceiverLink) -> None:
        """End a drain as soon as deliveries have used up the credit."""
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
        if link.allowance <= 0 and link.allowance + link.spare <= 0:
            raise RemoteProtocolError(
                "amqp:link:transfer-limit-exceeded",
                f"transfer of delivery {id} on link {link.name!r} without credit",
                Scope.LINK,
            )
        if self.unsettled.find(id) is not None:
            raise RemoteProtocolError(
                "amqp:invalid-field",
                f"delivery-id {id} is in use by an unsettled delivery",
                Scope.SESSION,
            )
        message_format = transfer.message_format
        delivery = IncomingDelivery(link, id, tag, 0 if message_format is None else message_format)
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
        if transfer.resume:
            return self._resumed(transfer, link, delivery)
        resumption = link.resumption
        if resumption is not None and not resumption.complete:
            raise RemoteProtocolError(
                "amqp:not-allowed",
                f"new delivery {id} on link {link.name!r}, whose unsettled map was incomplete",
                Scope.LINK,
            )
        if link.unique_tags and not transfer.settled and not link._claim_tag(tag):
            raise RemoteProtocolError(
                "amqp:not-allowed",
                f"delivery {id} on link {link.name!r} has the tag {tag!r} of another delivery "
                f"that is not settled",
                Scope.LINK,
            )
        return delivery

    def count_frame(self) -> None:
        """Count an arrived transfer frame, of any link, in the window."""
        if self.window <= 0:
            raise RemoteProtocolError(
                "amqp:session:window-violation",
                "transfer beyond the incoming window",
                Scope.SESSION,
            )
        self.window -= 1
        self.remote_outgoing_window -= 1
        self.next_id = (self.next_id + 1) & 0xFFFFFFFF
        if self.window * 2 <= self._max_window:
            self.session.connection._touch(self.session)

    def on_flow(self, flow: Flow) -> None:
        """Apply the state of the peer's sending half (AMQP 1.0 §2.5.6)."""
        self.next_id = flow.next_outgoing_id
        self.remote_outgoing_window = flow.outgoing_window

    def flush_window(self) -> None:
        """Open the window again when it is half used."""
        if self.window * 2 <= self._max_window:
            self.session._send_flow()

    def open_window(self) -> i64:
        """Return the incoming-window to announce now: every flow opens the whole window."""
        self.window = self._max_window
        return self.window

    # -- settlement ------------------------------------------------------------

    def on_disposition(self, disposition: Disposition) -> None:
        """Handle the sender's state for a range of its deliveries."""
        first = disposition.first
        last = disposition.last
        if last is None:
            last = first
        input = self.session.connection._input
        if self._errant:
            for id in live_ids(input, self._errant, first, last):
                raise errant_link(self._errant[id].name, f"disposition of delivery {id}")
        unsettled = self.unsettled
        input.work += unsettled.work(first, last)
        for delivery in unsettled.between(first, last):
            state = disposition.state
            if state is not None and not is_outcome(delivery.remote_state):
                delivery.remote_state = state
            if disposition.settled:
                delivery.remote_settled = True
                # An incomplete delivery is not settled here yet.
                delivery.settled = delivery.complete
                unsettled.remove(delivery.id)
                delivery.link._forget(delivery)
            if delivery.complete:
                self.session.connection._emit(SettlementReceived(delivery))

    # -- endings ---------------------------------------------------------------

    def drop(self, delivery: IncomingDelivery) -> None:
        """Remove a delivery that is resumed on another link: its delivery-id is void here."""
        if self.unsettled.find(delivery.id) is delivery:
            self.unsettled.remove(delivery.id)

    def suspend(self, link: Link, live: bool) -> None:
        """Keep the unsettled deliveries of a link that ends.

        While the session lasts, dispositions still reach these deliveries if they are `live`: the
        link was neither closed nor detached with an error (AMQP 1.0 §2.7.6).
        """
        for delivery in [d for d in self.unsettled.values() if d.link is link]:
            delivery.link._keep(delivery)
            if not live:
                self.unsettled.remove(delivery.id)

    def disown(self, link: ReceiverLink) -> None:
        """Make references to the deliveries of a failed link an error (AMQP 1.0 §2.6.5)."""
        for delivery in self.unsettled.values():
            if delivery.link is link:
                self._errant[delivery.id] = link

    def release(self, link: Link) -> None:
        """Forget the delivery-ids of a link that is detached on both sides."""
        if self._errant:
            self._errant = {id: k for id, k in self._errant.items() if k is not link}

    def drop_references(self) -> None:
        """See `Connection.drop_references`."""
        del self.session
        del self.dispositions.session

    def clear(self) -> None:
        """Forget all deliveries when the session is over; each link keeps its unsettled ones."""
        for delivery in self.unsettled.values():
            delivery.link._keep(delivery)
        self.unsettled.clear()
        self._errant.clear()
        self.dispositions.clear()


def _is_given_up(link: ReceiverLink, delivery: IncomingDelivery) -> bool:
    """Return whether the sender resumed a delivery that is incomplete here with its own outcome,
    and sends no more of it (AMQP 1.0 §3.4.6)."""
    resumption = link.resumption
    return is_outcome(delivery.remote_state) and resumption is not None and not resumption.continued


def _can_be_rejected(link: ReceiverLink, delivery: IncomingDelivery) -> bool:
    """Return whether a message that is too large can be rejected: its sender waits for an outcome,
    and no transaction does."""
    return (
        link.rejects_large
        and not link.always_settled
        and not delivery.remote_settled
        and not delivery.resumed
        and not isinstance(delivery.remote_state, TransactionalState)
    )


def _mode_broken(link: ReceiverLink, delivery: IncomingDelivery, how: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        "amqp:not-allowed",
        f"delivery {delivery.id} on link {link.name!r} is {how}; the sender's settle "
        f"mode is {link.snd_settle_mode.name.lower()}",
        Scope.LINK,
    )


def _expect_same_transaction(
    link: ReceiverLink, delivery: IncomingDelivery, state: DeliveryState
) -> None:
    """Raise `RemoteProtocolError` if a further frame moves the delivery into a transaction, out of
    one, or from one into another (AMQP 1.0 §4.4.1)."""
    before = delivery.remote_state
    id = state.txn_id if isinstance(state, TransactionalState) else None
    id_before = before.txn_id if isinstance(before, TransactionalState) else None
    if id != id_before:
        link._end_partial()
        raise RemoteProtocolError(
            "amqp:not-allowed",
            f"the frames of delivery {delivery.id} on link {link.name!r} do not all name the same "
            f"transaction",
            Scope.LINK,
        )
