"""The sending half of a session: its window towards the peer and the deliveries in flight.

Transfers are numbered by `next_id` and sent while the peer's incoming window, `remote_window`
frames, is open (AMQP 1.0 §2.5.6) and the output of the connection has room (`OutputLimit`). The
others wait in `_backlog` in order. A delivery may be sent in part and wait in part. The backlog
refers to the payload, whose bytes are copied once at most, when the output is taken. If the
receiver takes its credit back while a delivery waits, that delivery is not sent (§2.6.7): it waits
in `_withheld` until there is credit again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from ferrymq.engine.answers import errant_link
from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.dispositions import DispositionQueue, live_ids
from ferrymq.engine.events import TransactionalStateIgnored, TransactionalStateReceived
from ferrymq.engine.frames import begin_frame, end_frame
from ferrymq.engine.resumption import is_outcome
from ferrymq.engine.serial import serial_add, serial_diff
from ferrymq.engine.unsettled import UnsettledDeliveries
from ferrymq.errors import LocalProtocolError, Scope
from ferrymq_codec import codes
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Flow, Role, Transfer, encode_transfer

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.sender import SenderLink
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState

# Number of deliveries of ended links that a session remembers, the latest ones.
_MOST_CUT_OFF: Final = 4096
# Bytes of a transfer frame without its state, at most, and some bytes for the message.
TRANSFER_ROOM: Final = 128
# A part of a payload with at least so many bytes is not copied into the output; below, a copy costs
# less than a reference.
_SPLICED: Final = 8192
# A transfer of `send_plain` has its descriptor and the code of its list, the size of the list, 11
# fields. The last ones are message-format 0, settled, and the defaults: nulls and false.
_TRANSFER: Final = 0x0053_14C0
_PLAIN_FIELDS: Final = 11
# Handle 0 and the code of the delivery-id; the same with a handle of two bytes.
_HANDLE_0: Final = 0x4370
_HANDLE: Final = 0x52_0070
_SETTLED: Final = 0x4341_4240
_UNSETTLED: Final = 0x4342_4240
_DEFAULTS: Final = 0x4042_4242
# The bytes of its list, counted from the number of fields, and all bytes of its frame beside the
# payload, with a handle of 2 bytes, a delivery-id of 5, and a tag of 4 bytes.
_PLAIN_LIST: Final = 22
_PLAIN: Final = 35
# The result of `_write` when the whole delivery is in the output.
_DONE: Final = -0x4000_0000_0000_0000


@final
class _Parked:
    """A delivery, or the rest of one, that waits for the peer's window or for room in the output.

    The message is `head`, then `payload` from `start` on. `offset` counts in the payload; the head
    occupies the positions before `start`, which may be negative.
    """

    __slots__ = ("delivery", "payload", "head", "start", "offset", "started", "message_format",
                 "state", "resume", "aborted")  # fmt: skip

    def __init__(
        self,
        delivery: OutgoingDelivery,
        payload: bytes,
        head: bytes,
        start: i64,
        offset: i64,
        started: bool,
        message_format: int,
        state: DeliveryState | None,
        resume: bool,
        aborted: bool,
    ) -> None:
        self.delivery = delivery
        self.payload = payload
        self.head = head
        self.start: i64 = start
        self.offset: i64 = offset
        # Whether its first frame was sent.
        self.started = started
        self.message_format = message_format
        self.state = state
        self.resume = resume
        self.aborted = aborted

    def release(self) -> None:
        """Drop the delivery, which will not be sent: the link keeps it, unless it was settled."""
        delivery = self.delivery
        delivery.link.parked -= 1
        if not delivery.settled:
            delivery.link.unsettled[delivery.tag] = delivery


@final
class OutgoingHalf:
    """Sending half of a session. `unsettled`: our unsettled deliveries, by delivery-id."""

    __slots__ = ("session", "unsettled", "next_id", "remote_window", "next_delivery_id",
                 "_backlog", "_withheld", "queued", "dispositions", "_cut_off", "_asked",
                 "_errant")  # fmt: skip
    # Deleted by `drop_references`, after the last call.
    __deletable__: tuple[str, ...] = ("session",)

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self.unsettled: UnsettledDeliveries[OutgoingDelivery] = UnsettledDeliveries()
        # next-outgoing-id: the transfer-id of the next transfer frame.
        self.next_id: i64 = 0
        # remote-incoming-window, in frames.
        self.remote_window: i64 = 0
        # The id of the next delivery whose first frame is sent.
        self.next_delivery_id: i64 = 0
        self._backlog: deque[_Parked] = deque()
        # Deliveries that lost their credit before their first frame, in order, by link.
        self._withheld: dict[Link, list[_Parked]] = {}
        # Whether this half waits for its turn in `OutputLimit.waiting`.
        self.queued: bool = False
        self.dispositions: DispositionQueue = DispositionQueue(session, Role.SENDER)
        # Deliveries, by delivery-id, that were unsettled when their link ended.
        self._cut_off: dict[int, None] = {}
        # Unsettled deliveries of failed links: a frame that refers to one is an error.
        self._errant: dict[int, SenderLink] = {}
        # Whether the peer was asked to open its window and has not done so yet.
        self._asked = False

    # -- transfers -----------------------------------------------------------

    def send(
        self,
        delivery: OutgoingDelivery,
        payload: bytes,
        offset: i64,
        message_format: int,
        state: DeliveryState | None,
        resume: bool,
        aborted: bool,
        head: bytes = b"",
    ) -> None:
        """Send `head`, then the payload from `offset` on, as far as there is room for it."""
        start = offset
        if head:
            offset -= len(head)
        started = False
        if not self._backlog:
            before = self.next_id
            offset = self._write(delivery, payload, head, start, offset, False, message_format,
                                 state, resume, aborted)  # fmt: skip
            if offset == _DONE:
                delivery.sent = True
                return
            started = self.next_id != before
        delivery.link.parked += 1
        self._backlog.append(
            _Parked(delivery, payload, head, start, offset, started, message_format, state, resume,
                    aborted)
        )  # fmt: skip
        self.ask_for_window()

    def send_plain(
        self, delivery: OutgoingDelivery, payload: bytes, head: bytes, start: i64
    ) -> bool:
        """Send `head`, then the payload from `start` on, as a transfer of the usual shape: a whole
        message without a state. Return false, with nothing changed, if `send` has to take it."""
        session = self.session
        connection = session.connection
        output_limit = connection.output_limit
        handle = delivery.link.handle
        tag = delivery._tag
        number = delivery._number
        id = self.next_delivery_id
        # The bytes of the tag beyond the four of a number.
        longer: i64 = 0 if tag is None else len(tag) - 4
        size = i64(len(payload)) - start + len(head) + _PLAIN + longer
        if (
            self.remote_window <= 0
            # Small numbers have a shorter encoding.
            or id <= 0xFF
            or handle > 0xFF
            or number > 0xFFFFFFFF
            or size >= _SPLICED
            or size > connection.remote_max_frame_size
            or size > output_limit.frame
            or connection.output_size() >= output_limit.most
            or session.due
            or self._backlog
        ):
            return False
        w = connection.output
        mark: i64 = len(w)
        # Handle 0 takes 1 byte and not 2.
        short: i64 = 1 if handle == 0 else 0
        try:
            write_i64_be(w, ((size - short) << 32) | 0x0200_0000 | session.channel)
            write_i32_be(w, _TRANSFER)
            write_i16_be(w, i16((_PLAIN_LIST + longer - short) << 8 | _PLAIN_FIELDS))
            # Eight bytes at a time. A constant of eight bytes would be an object.
            if handle == 0:
                word: i64 = _HANDLE_0
                write_i64_be(w, word << 48 | id << 16 | codes.BINARY8 << 8 | (4 + longer))
            else:
                word = _HANDLE
                write_i64_be(w, (word | handle << 8) << 40 | id << 8 | codes.BINARY8)
                w.append(u8(4 + longer))
            if tag is None:
                write_i32_be(w, i32(serial_diff(number, 0)))
            else:
                w.write(tag)
            word = _SETTLED if delivery.settled else _UNSETTLED
            write_i64_be(w, word << 32 | _DEFAULTS)
            w.write(head)
            w.write(payload if start == 0 else payload[start:])
        except BaseException:
            connection.truncate_output(mark)
            raise
        self.remote_window -= 1
        self.next_id = (self.next_id + 1) & 0xFFFFFFFF
        self.next_delivery_id = serial_add(id, 1)
        delivery.id = id
        if not delivery.settled:
            self.unsettled.add(id, delivery)
        delivery.sent = True
        return True

    def ask_for_window(self) -> None:
        """Ask the peer once for the state of its window, if the window is closed.

        A peer should open its window by itself. Some clients do so only when a frame other than a
        transfer arrives, and would otherwise wait forever for the rest of a message.
        """
        if self.remote_window <= 0 and not self._asked and self.session.mapped:
            self._asked = True
            self.session._send_flow(True)

    def _write(
        self,
        delivery: OutgoingDelivery,
        payload: bytes,
        head: bytes,
        start: i64,
        offset: i64,
        started: bool,
        message_format: int,
        state: DeliveryState | None,
        resume: bool,
        aborted: bool,
    ) -> i64:
        """Write frames from `offset` on. Return `_DONE`, or the offset at which the window or the
        room in the output ended."""
        session = self.session
        if session.due:
            session.write_due()
        connection = session.connection
        output_limit = connection.output_limit
        most = output_limit.most
        w = connection.output
        transfer = connection.transfer
        limit: i64 = connection.remote_max_frame_size
        if limit > output_limit.frame:
            limit = output_limit.frame
        total: i64 = len(payload)
        channel = session.channel
        late = False
        while self.remote_window > 0:
            if connection.output_size() >= most:
                output_limit.wait(self)
                break
            self.remote_window -= 1
            self.next_id = (self.next_id + 1) & 0xFFFFFFFF
            mark = begin_frame(w, channel)
            if not started:
                started = True
                # The id is assigned now: the peer expects ids without gaps, and a waiting delivery
                # may never be sent.
                id = self.next_delivery_id
                self.next_delivery_id = serial_add(id, 1)
                delivery.id = id
                settled = delivery.settled
                if not settled:
                    self.unsettled.add(id, delivery)
                elif delivery.link.never_settled and not resume:
                    # The delivery was settled while it waited; in this mode a disposition after the
                    # first frame settles it for the peer.
                    settled = False
                    late = True
                transfer.handle = delivery.link.handle
                transfer.delivery_id = id
                transfer.delivery_tag = delivery.tag
                transfer.message_format = message_format
                transfer.settled = settled
                transfer.more = False
                transfer.state = state
                transfer.resume = resume
                transfer.aborted = aborted
            else:
                # Only the first frame must name the delivery (AMQP 1.0 §2.7.5), but every frame
                # must name its transaction (§4.4.1).
                transfer.handle = delivery.link.handle
                transfer.delivery_id = None
                transfer.delivery_tag = None
                transfer.message_format = None
                # In the mode `unsettled` a transfer must not be settled (§2.8.2); a disposition
                # follows.
                transfer.settled = delivery.settled and (resume or not delivery.link.never_settled)
                transfer.more = False
                transfer.state = state if isinstance(state, TransactionalState) else None
                transfer.resume = False
                transfer.aborted = False
            try:
                encode_transfer(w, transfer)
                room = limit - (len(w) - mark)
                if room < TRANSFER_ROOM:
                    # A state that fits the peer's frames may be larger than our own frames.
                    limit = connection.remote_max_frame_size
                    room = limit - (len(w) - mark)
                rest = total - offset
                if rest <= room:
                    if offset < start:
                        w.write(head[offset - start + len(head) :])
                        offset = start
                    if total - offset >= _SPLICED:
                        connection.splice(payload, offset, total)
                        end_frame(w, mark, total - offset)
                    else:
                        w.write(payload if offset == 0 else payload[offset:])
                        end_frame(w, mark)
                    if late:
                        self.dispositions.add(delivery.id, delivery.state, True)
                    return _DONE
                w.truncate(mark + 8)
                transfer.more = True
                encode_transfer(w, transfer)
                room = limit - (len(w) - mark)
                end = offset + room
                if offset < start:
                    first = offset - start + len(head)
                    w.write(head[first : first + room])
                    offset = min(end, start)
                if end - offset >= _SPLICED:
                    connection.splice(payload, offset, end)
                    end_frame(w, mark, end - offset)
                else:
                    if offset < end:
                        w.write(payload[offset:end])
                    end_frame(w, mark)
                if late:
                    late = False
                    self.dispositions.add(delivery.id, delivery.state, True)
            except BaseException:
                self._unwrite(mark, delivery, transfer)
                raise
            offset = end
        return offset

    def _unwrite(self, mark: i64, delivery: OutgoingDelivery, transfer: Transfer) -> None:
        """Remove a frame that could not be encoded: its bytes, its place in the window and, if it
        was the first of the delivery, the delivery-id."""
        self.session.connection.truncate_output(mark)
        self.remote_window += 1
        self.next_id = (self.next_id - 1) & 0xFFFFFFFF
        if transfer.delivery_id is not None:
            self.next_delivery_id = delivery.id
            self.unsettled.remove(delivery.id)
            delivery.id = -1

    def find(self, link: Link, tag: bytes) -> OutgoingDelivery | None:
        """Return the unsettled delivery of the link with this tag. Searches all of them."""
        for delivery in self.unsettled.values():
            if delivery.link is link and delivery.tag == tag:
                return delivery
        return self.find_waiting(link, tag)

    def find_waiting(self, link: Link, tag: bytes) -> OutgoingDelivery | None:
        """Return the unsettled delivery of the link with this tag whose first frame was not sent
        yet."""
        waiting: list[_Parked] = [*self._backlog, *self._withheld.get(link, ())]
        for parked in waiting:
            delivery: OutgoingDelivery = parked.delivery
            if delivery.link is link and delivery.tag == tag and not delivery.settled:
                return delivery
        return None

    def restate(self, delivery: OutgoingDelivery, state: DeliveryState) -> None:
        """Send a new state of a delivery to the receiver: with its first frame, if that frame is
        not sent yet."""
        if self.unsettled.find(delivery.id) is delivery:
            self.dispositions.add(delivery.id, state, False)
            return
        for parked in [*self._backlog, *self._withheld.get(delivery.link, ())]:
            if parked.delivery is delivery:
                parked.state = state

    def expect_room(self, state: DeliveryState) -> None:
        """Raise `LocalProtocolError` unless a transfer with the state fits into one frame."""
        w = BytesWriter()
        state.encode(w)
        limit: i64 = self.session.connection.remote_max_frame_size
        if len(w) + TRANSFER_ROOM > limit:
            raise LocalProtocolError(
                "amqp:frame-size-too-small",
                f"delivery state of {len(w)} bytes; the peer takes frames of at most {limit}",
                Scope.LINK,
            )

    def go_on(self) -> None:
        """Write waiting frames as far as there is room."""
        backlog = self._backlog
        while backlog and self.remote_window > 0:
            parked = backlog[0]
            link = parked.delivery.link
            if not parked.started and link.overdrawn >= link.parked:
                self._withheld.setdefault(link, []).append(backlog.popleft())
                continue
            if not parked.started and link.tag_prefix and not parked.delivery.settled:
                # The delivery-id, which is a part of the tag, is known only now.
                parked.delivery.tag = link.prefixed_tag()
            before = self.next_id
            offset = self._write(
                parked.delivery,
                parked.payload,
                parked.head,
                parked.start,
                parked.offset,
                parked.started,
                parked.message_format,
                parked.state,
                parked.resume,
                parked.aborted,
            )
            if offset != _DONE:
                parked.offset = offset
                if self.next_id != before:
                    parked.started = True
                self.ask_for_window()
                return
            backlog.popleft()
            parked.delivery.sent = True
            parked.delivery.link.parked -= 1

    def restore(self, link: Link) -> None:
        """Queue the withheld deliveries of a link again: the link has credit."""
        withheld = self._withheld.pop(link, None)
        if withheld is not None:
            # These deliveries come before later deliveries of the link; all earlier ones are sent.
            self._backlog.extendleft(reversed(withheld))

    def on_begin(self, window: i64) -> None:
        """Apply the peer's begin, which takes `window` frames, and send the waiting frames."""
        self.remote_window = window
        if self.session.mapped:
            self.go_on()

    def on_flow(self, flow: Flow) -> None:
        """Apply the window that the peer announces (AMQP 1.0 §2.5.6)."""
        # Before it has seen our begin, the peer counts from our initial id, which is 0.
        next_incoming = flow.next_incoming_id
        acknowledged: i64 = 0 if next_incoming is None else next_incoming
        self.remote_window = max(0, flow.incoming_window - serial_diff(self.next_id, acknowledged))
        if self.remote_window > 0:
            self._asked = False
        if self._backlog:
            self.go_on()

    # -- settlement ------------------------------------------------------------

    def on_disposition(
        self, first: i64, last: i64, settled: bool, state: DeliveryState | None
    ) -> None:
        """Handle the receiver's state for a range of our deliveries."""
        if self._errant:
            for id in live_ids(self.session.connection._input, self._errant, first, last):
                raise errant_link(self._errant[id].name, f"disposition of delivery {id}")
        if self._cut_off and isinstance(state, TransactionalState):
            self._check_cut_off(state, first, last)
        if last == first:
            delivery = self.unsettled.find(first)
            if delivery is not None:
                self._update(delivery, settled, state)
            return
        unsettled = self.unsettled
        self.session.connection._input.work += unsettled.work(first, last)
        # A contradiction ends the link, and with it the deliveries that follow.
        at: i64 = first
        left = serial_diff(last, first) + 1
        if left <= unsettled.count:
            while left > 0:
                next = unsettled.find(at)
                if next is not None:
                    self._update(next, settled, state)
                at = serial_add(at, 1)
                left -= 1
            return
        for each in unsettled.between(first, last):
            if unsettled.find(each.id) is each:
                self._update(each, settled, state)

    def _check_cut_off(self, state: TransactionalState, first: i64, last: i64) -> None:
        """Report an outcome in a transaction for a delivery whose link has ended."""
        if live_ids(self.session.connection._input, self._cut_off, first, last):
            self.session.connection._emit(TransactionalStateIgnored(state))

    def _update(
        self, delivery: OutgoingDelivery, settled: bool, state: DeliveryState | None
    ) -> None:
        if state is not None:
            before = delivery.remote_state
            if before is not None and type(before) is not type(state) and is_outcome(before):
                # An outcome stays as it is (AMQP 1.0 §2.7.5), unless the receiver now confirms the
                # outcome that we decided on.
                if type(delivery.state) is type(state):
                    delivery.remote_state = state
                elif is_outcome(state):
                    self.session._contradicted(delivery.link, delivery.id, before, state)
                    return
            else:
                delivery.remote_state = state
        if settled:
            delivery.remote_settled = True
            self.unsettled.remove(delivery.id)
            link = delivery.link
            if link.own_tags is not None or not link.usable:
                link._forget(delivery)
        if isinstance(state, TransactionalState):
            self.session.connection._emit(TransactionalStateReceived(delivery, state, settled))
        else:
            self.session.connection._emit(delivery)

    # -- endings ---------------------------------------------------------------

    def drop(self, delivery: OutgoingDelivery) -> None:
        """Remove a delivery that is resumed on another link: its delivery-id is void here."""
        if self.unsettled.find(delivery.id) is delivery:
            self.unsettled.remove(delivery.id)

    def disown(self, link: SenderLink) -> None:
        """Make references to the deliveries of a failed link an error (AMQP 1.0 §2.6.5)."""
        for delivery in self.unsettled.values():
            if delivery.link is link:
                self._errant[delivery.id] = link

    def release(self, link: Link) -> None:
        """Forget the delivery-ids of a link that is detached on both sides."""
        if self._errant:
            self._errant = {id: k for id, k in self._errant.items() if k is not link}

    def suspend(self, link: Link, live: bool) -> None:
        """Keep the unsettled deliveries of a link that ends.

        While the session lasts, dispositions still reach these deliveries if they are `live`: the
        link was neither closed nor detached with an error (AMQP 1.0 §2.7.6). The detach aborts a
        delivery of which only some frames were sent (§2.6.14).
        """
        for delivery in [d for d in self.unsettled.values() if d.link is link]:
            delivery.link.unsettled[delivery.tag] = delivery
            if not live:
                self.unsettled.remove(delivery.id)
                self._cut_off[int(delivery.id)] = None
        while len(self._cut_off) > _MOST_CUT_OFF:
            del self._cut_off[next(iter(self._cut_off))]
        if self._backlog:
            for parked in self._backlog:
                delivery = parked.delivery
                if delivery.link is link:
                    parked.release()
            self._backlog = deque([p for p in self._backlog if p.delivery.link is not link])
        for parked in self._withheld.pop(link, ()):
            parked.release()

    def drop_references(self) -> None:
        """See `Connection.drop_references`."""
        del self.session
        del self.dispositions.session

    def clear(self) -> None:
        """Forget all deliveries when the session is over; each link keeps its unsettled ones."""
        for delivery in self.unsettled.values():
            delivery.link.unsettled[delivery.tag] = delivery
        for parked in self._backlog:
            parked.release()
        for withheld in self._withheld.values():
            for parked in withheld:
                parked.release()
        self._withheld.clear()
        self.unsettled.clear()
        self._cut_off.clear()
        self._errant.clear()
        self._backlog.clear()
        self.dispositions.clear()
