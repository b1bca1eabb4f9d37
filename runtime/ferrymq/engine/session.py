"""Sessions: begin and end, links and their handles, flow (AMQP 1.0 §2.5).

The deliveries in flight are in the two halves, `incoming` and `outgoing`. This module has the state
of the session and its links, and passes every frame to the part that handles it.

One module because each frame and each call changes the same state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.answers import answer_to, fitting
from ferrymq.engine.attachment import check_errant, fail_link, on_attach, on_detach, release_link
from ferrymq.engine.events import (
    BeginReceived,
    CreditReceived,
    DrainCompleted,
    EndReceived,
    PostingBegun,
    SessionTerminated,
    TransferIgnored,
)
from ferrymq.engine.incoming import IncomingHalf
from ferrymq.engine.link import Link
from ferrymq.engine.numbers import FreeNumbers
from ferrymq.engine.outgoing import OutgoingHalf
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.states import (
    SESSION_TABLE,
    ConnectionState,
    LinkState,
    SessionInput,
    SessionState,
)
from ferrymq.engine.unfinished import PIECE_OVERHEAD
from ferrymq.errors import (
    AmqpError,
    LocalProtocolError,
    RemoteProtocolError,
    Scope,
)
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Transfer,
)

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
    from ferrymq.engine.plain_transfer import PlainTransfer
    from ferrymq_codec.composite import Composite
    from ferrymq_types.unions import DeliveryState, Source, Target

# Our own window never limits our sending, so a large window is announced.
OUTGOING_WINDOW: Final = 0x7FFFFFFF


@final
class Session:
    """A session of a connection. Made by `Connection.begin`, or by the peer's begin.

    `mapped` is true while both sides have begun and neither has ended: links
    work only then. `context` belongs to the user of the engine.
    """

    __slots__ = (
        "connection",
        "channel",
        "remote_channel",
        "initiated",
        "state",
        "mapped",
        "open_for_output",
        "open_for_input",
        "remote_begin",
        "incoming",
        "outgoing",
        "links",
        "context",
        "_handles",
        "_free_handles",
        "_remote_handles",
        "_remote_handle_max",
        "_handle_max",
        "touched",
        "due",
        "_last_link",
        "_remote_ended",
        "_reported",
        "_echoes",
        "_drops_references",
    )

    def __init__(self, connection: Connection, initiated: bool) -> None:
        self.connection: Connection = connection
        self.channel: i64 = -1
        self.remote_channel: i64 = -1
        self.initiated: bool = initiated
        self.state: SessionState = SessionState.UNMAPPED
        self.mapped: bool = False
        self.open_for_output: bool = False
        # The peer may send frames directly after its begin; frames that arrive after our end are
        # discarded.
        self.open_for_input: bool = False
        self.remote_begin: Begin | None = None
        self.incoming: IncomingHalf = IncomingHalf(self, connection.settings.incoming_window)
        self.outgoing: OutgoingHalf = OutgoingHalf(self)
        # Every link that is not detached on both sides, by (name, we are the sender).
        self.links: dict[tuple[str, bool], Link] = {}
        self.context: object = None
        self._handles: dict[int, Link] = {}
        self._free_handles = FreeNumbers()
        self._remote_handles: dict[int, Link] = {}
        self._handle_max: i64 = connection.settings.handle_max
        self._remote_handle_max: i64 = 0xFFFFFFFF
        # Whether the connection must flush this session before its output is taken.
        self.touched: bool = False
        # Links whose flow is written with the next output, before any transfer of ours.
        self.due: list[ReceiverLink] = []
        # The link of the latest transfer: most transfers follow a transfer on the same link.
        self._last_link: ReceiverLink | None = None
        # True if the peer's end followed its begin before we answered the begin.
        self._remote_ended = False
        self._reported = False
        # Links whose state the peer has asked for with `echo`.
        self._echoes: dict[Link, None] = {}
        self._drops_references = False

    def __repr__(self) -> str:
        return f"<session on channel {self.channel} {self.state.name}>"

    # -- begin and end -----------------------------------------------------

    def _transition(self, event: SessionInput) -> bool:
        new = SESSION_TABLE.get((self.state, event))
        if new is None:
            return False
        self.state = new
        self.mapped = new is SessionState.MAPPED
        self.open_for_output = self.mapped or new is SessionState.BEGIN_SENT
        self.open_for_input = self.mapped or new is SessionState.BEGIN_RCVD
        return True

    def accept(self) -> None:
        """Answer the peer's begin. Does nothing when the session is over already."""
        if self._reported:
            return
        if self.connection.state is ConnectionState.OPEN_RCVD:
            raise LocalProtocolError(
                "amqp:illegal-state", "our open must come before the begin", Scope.CONNECTION
            )
        if self.initiated or not self._transition(SessionInput.SEND_BEGIN):
            raise LocalProtocolError(
                "amqp:illegal-state", "the session has no begin to answer", Scope.SESSION
            )
        self._send_begin(self.remote_channel)
        if self._echoes:
            self.connection._touch(self)
        if self._remote_ended:
            self._transition(SessionInput.RECV_END)

    def _begin(self) -> None:
        self._transition(SessionInput.SEND_BEGIN)
        self._send_begin(-1)

    def _send_begin(self, remote_channel: i64) -> None:
        self._send(
            Begin(
                remote_channel=None if remote_channel < 0 else remote_channel,
                next_outgoing_id=self.outgoing.next_id,
                incoming_window=self.incoming.open_window(),
                outgoing_window=OUTGOING_WINDOW,
                handle_max=self._handle_max,
            )
        )

    def end(self, error: Error | None = None) -> None:
        """End the session, or answer the peer's end. All its links end with it.

        Does nothing when this side has ended it already.
        """
        if self.state is SessionState.BEGIN_RCVD:
            self.accept()
        event = SessionInput.SEND_END if error is None else SessionInput.SEND_END_ERROR
        if (self.state, event) not in SESSION_TABLE:
            return
        if self.due:
            self.write_due()
        self._flush_dispositions()
        self._send(End(error=fitting(error, self.connection.remote_max_frame_size)))
        self._transition(event)
        self._lose_links()
        if self.state is SessionState.UNMAPPED:
            self._terminated(None)

    def _on_begin(self, begin: Begin) -> None:
        self.remote_begin = begin
        self.incoming.next_id = begin.next_outgoing_id
        self.incoming.remote_outgoing_window = begin.outgoing_window
        self._remote_handle_max = begin.handle_max
        if not self._transition(SessionInput.RECV_BEGIN):
            raise RemoteProtocolError(
                "amqp:illegal-state", f"second begin on channel {self.remote_channel}"
            )
        self.outgoing.on_begin(begin.incoming_window)
        if self.open_for_input:
            self.connection._emit(BeginReceived(self))

    def _on_end(self, error: Error | None) -> None:
        if not self._transition(SessionInput.RECV_END):
            raise RemoteProtocolError(
                "amqp:illegal-state", f"end on channel {self.remote_channel} in {self.state.name}"
            )
        self.connection.channels.unmap_remote(self)
        if self.state is SessionState.BEGIN_RCVD:
            self._remote_ended = True
            self.open_for_input = False
        if not self._reported:
            self.connection._emit(EndReceived(self, error))
        if self.state is SessionState.UNMAPPED:
            self._terminated(None)
        else:
            self._lose_links()

    def _fail(self, error: RemoteProtocolError) -> None:
        """End the session because the peer broke a rule."""
        self.end(answer_to(error))
        self._report(error)

    def _terminated(self, error: AmqpError | None) -> None:
        self._lose_links()
        self.connection.channels.release(self)
        self._report(error)

    def _abandon(self, error: AmqpError | None) -> None:
        """End the session together with its connection."""
        self.state = SessionState.UNMAPPED
        self.mapped = False
        self.open_for_output = False
        self.open_for_input = False
        self._lose_links()
        self._report(error)

    def drop_references(self) -> None:
        """Break cycles after `SessionTerminated`: see `Connection.drop_references`."""
        self._drops_references = self.state is not SessionState.UNMAPPED  # it failed
        if not self._drops_references:
            self.incoming.drop_references()
            self.outgoing.drop_references()

    def _report(self, error: AmqpError | None) -> None:
        if not self._reported:
            self._reported = True
            self.connection._emit(SessionTerminated(self, error))
        elif self._drops_references:
            self.drop_references()

    def _lose_links(self) -> None:
        names = self.connection.channels.links
        for key, link in self.links.items():
            link._lost()
            if names.get(key) is link:
                del names[key]
        self.links.clear()
        self._echoes.clear()
        self.due.clear()
        self._handles.clear()
        self._free_handles.clear()
        self._remote_handles.clear()
        self.incoming.clear()
        self.outgoing.clear()
        self._last_link = None

    # -- links -------------------------------------------------------------

    def attach_sender(
        self,
        name: str,
        *,
        target: Target | None,
        source: Source | None = None,
        snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED,
        rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST,
        properties: dict[str, object] | None = None,
        desired_capabilities: list[str] | None = None,
        unsettled: dict[bytes, OutgoingDelivery] | None = None,
    ) -> SenderLink:
        """Attach a link on which this side sends to the peer's `target`.

        With `unsettled`, even empty, a suspended or lost link is resumed: see
        `SenderLink.resume_from`.
        """
        link = SenderLink(self, name, True)
        if unsettled is not None:
            link.resume_from(unsettled)
        self._attach(
            link, source, target, snd_settle_mode, rcv_settle_mode, 0, properties,
            desired_capabilities,
        )  # fmt: skip
        return link

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source | None,
        target: Target | None = None,
        snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED,
        rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST,
        max_message_size: int = 0,
        properties: dict[str, object] | None = None,
        desired_capabilities: list[str] | None = None,
        unsettled: dict[bytes, IncomingDelivery] | None = None,
    ) -> ReceiverLink:
        """Attach a link on which this side receives from the peer's `source`.

        With `unsettled`, even empty, a suspended or lost link is resumed: see
        `ReceiverLink.resume_from`.
        """
        link = ReceiverLink(self, name, True)
        if unsettled is not None:
            link.resume_from(unsettled)
        self._attach(
            link, source, target, snd_settle_mode, rcv_settle_mode, max_message_size, properties,
            desired_capabilities,
        )  # fmt: skip
        return link

    def _attach(
        self,
        link: Link,
        source: Source | None,
        target: Target | None,
        snd_settle_mode: SenderSettleMode,
        rcv_settle_mode: ReceiverSettleMode,
        max_message_size: int,
        properties: dict[str, object] | None,
        desired_capabilities: list[str] | None,
    ) -> None:
        key = (link.name, link.is_sender)
        if not self.open_for_output:
            raise LocalProtocolError(
                "amqp:illegal-state", "the session is not begun", Scope.SESSION
            )
        names = self.connection.channels.links
        other = names.get(key)
        # A link that we have detached may be attached again at once (AMQP 1.0 §2.6.4).
        if other is not None and not (other.local_detached and other.remote_attach is not None):
            raise LocalProtocolError(
                "amqp:illegal-state", f"a link {link.name!r} is attached already", Scope.LINK
            )
        link.source = source
        link.target = target
        link.agree_settle_modes(snd_settle_mode, rcv_settle_mode)
        link.max_message_size = max_message_size
        link._send_attach(properties, None, desired_capabilities)
        self.links[key] = link
        names[key] = link

    def _free_handle(self) -> i64:
        handle = self._free_handles.next(self._remote_handle_max)
        if handle < 0:
            raise LocalProtocolError(
                "amqp:resource-limit-exceeded",
                f"the peer allows handles up to {self._remote_handle_max}",
                Scope.SESSION,
            )
        return handle

    def _take_handle(self, handle: i64, link: Link) -> None:
        """Give the link the handle that `_free_handle` returned."""
        link.handle = handle
        self._handles[handle] = link
        self._free_handles.take(handle)

    def _remote_link(self, handle: i64, frame: str) -> Link:
        link = self._remote_handles.get(handle)
        if link is None:
            raise RemoteProtocolError(
                "amqp:session:unattached-handle",
                f"{frame} for handle {handle}, which is not attached",
                Scope.SESSION,
            )
        return link

    def _release_link(self, link: Link) -> None:
        release_link(link)

    def _suspend_deliveries(self, link: Link, live: bool) -> None:
        """Suspend the deliveries of a link that ends; while they are `live`, dispositions reach
        them."""
        self._flush_dispositions()
        link._keep_unresumed()
        # The deliveries of all links are searched for the deliveries of this link.
        self.connection._input.work += self.outgoing.unsettled.count + self.incoming.unsettled.count
        self.outgoing.suspend(link, live)
        self.incoming.suspend(link, live)

    # -- frames --------------------------------------------------------------

    def _ignore(self, link: ReceiverLink, transfer: Transfer) -> None:
        state = transfer.state
        if state is not None:
            self.connection._emit(TransferIgnored(link, state))

    def _take_plain(self, plain: PlainTransfer, data: bytes, begin: i64, end: i64) -> bool:
        """Take a transfer that is a whole message, `data` from `begin` to `end`, on the link of the
        transfer before it. Return false if `_on_transfer` has to look at it."""
        link = self._last_link
        if link is None or link.remote_handle != plain.handle:
            return False
        return self.incoming.take_plain(plain, link, data, begin, end)

    def _on_transfer(self, transfer: Transfer, payload: bytes | memoryview) -> None:
        """Handle one transfer frame. `payload` may refer to the bytes of a whole read, so it is not
        kept."""
        self.incoming.count_frame()
        receiver = self._last_link
        if receiver is None or receiver.remote_handle != transfer.handle:
            link = self._remote_link(transfer.handle, "transfer")
            if not isinstance(link, ReceiverLink):
                raise RemoteProtocolError(
                    "amqp:not-allowed",
                    f"transfer on link {link.name!r}, of which the peer is the receiver",
                    Scope.SESSION,
                )
            receiver = link
            self._last_link = link
        if not receiver.usable:
            if receiver.state is LinkState.ATTACH_RCVD and not receiver.remote_detached:
                self._wait_for_attach(receiver, transfer, bytes(payload))
                return
            if receiver.cut_short:
                # The rest of the delivery on which the link failed was already sent.
                receiver.cut_short = transfer.more and not transfer.aborted
                self._ignore(receiver, transfer)
                return
            check_errant(receiver, "transfer")
            if receiver.local_detached:
                # The peer sent this before it saw our detach.
                self._ignore(receiver, transfer)
                return
            raise RemoteProtocolError(
                "amqp:illegal-state",
                f"transfer on link {receiver.name!r}, which is not attached",
                Scope.SESSION,
            )
        self._take(transfer, receiver, payload)

    def _take(
        self, transfer: Transfer, receiver: ReceiverLink, payload: bytes | memoryview
    ) -> None:
        """Pass a transfer to its link; a violation of a link rule fails the link."""
        try:
            self.incoming.on_transfer(transfer, receiver, payload)
        except RemoteProtocolError as error:
            self._ignore(receiver, transfer)
            if error.scope is not Scope.LINK:
                raise
            receiver.cut_short = transfer.more and not transfer.aborted
            fail_link(receiver, error)

    def _wait_for_attach(self, link: ReceiverLink, transfer: Transfer, payload: bytes) -> None:
        """Keep a transfer that arrived before its attach was answered (Link Pairing 1.0 §2.2.2).

        The transfer is processed when the answer has stated the credit. Waiting transfers count as
        unfinished.
        """
        connection = self.connection
        early = link.early
        if early is None:
            early = link.early = []
            connection._early.append(link)
        early.append((transfer, payload))
        if isinstance(transfer.state, TransactionalState):
            connection._emit(PostingBegun(link, transfer.state))
        if not connection.channels.unfinished.add(link, PIECE_OVERHEAD + len(payload)):
            raise RemoteProtocolError(
                "amqp:resource-limit-exceeded",
                f"too many bytes for link {link.name!r} before its attach was answered",
                Scope.SESSION,
            )

    def _take_early(self, link: ReceiverLink) -> None:
        """Process the transfers that waited for the answer to an attach, or drop them if the answer
        was a refusal."""
        early = link.early
        link.early = None
        link._end_partial()
        if early is None:
            return
        if self.due:
            # The credit that the answer stated comes before what uses it.
            self.write_due()
        try:
            for transfer, payload in early:
                if link.usable:
                    self._take(transfer, link, payload)
                else:
                    self._ignore(link, transfer)
        except RemoteProtocolError as error:
            self._fail(error)

    def _on_attach(self, attach: Attach, size: i64) -> None:
        on_attach(self, attach, size)

    def _on_detach(self, detach: Detach) -> None:
        on_detach(self, detach)

    def _on_disposition(self, disposition: Disposition) -> None:
        if disposition.role is Role.RECEIVER:
            settled = disposition.settled
            state = disposition.state
            # A disposition may carry neither a state nor a settlement.
            if settled or state is not None:
                first = disposition.first
                last = disposition.last
                self.outgoing.on_disposition(first, first if last is None else last, settled, state)
        else:
            self.incoming.on_disposition(disposition)

    def _contradicted(
        self, link: Link, id: i64, before: DeliveryState, after: DeliveryState
    ) -> None:
        """Fail the link: the peer states another outcome for a delivery than before."""
        description = (
            f"delivery {id} on link {link.name!r} was {type(before).__name__.lower()} "
            f"and is now {type(after).__name__.lower()}"
        )
        fail_link(link, RemoteProtocolError("amqp:illegal-state", description, Scope.LINK))

    def _on_flow(self, flow: Flow) -> None:
        self.incoming.on_flow(flow)
        handle = flow.handle
        if handle is None:
            self.outgoing.on_flow(flow)
            # Before our begin no flow is needed: the begin states the window.
            if flow.echo and self.open_for_output:
                self._send_flow()
            return
        link = self._remote_link(handle, "flow")
        if link.local_detached:
            check_errant(link, "flow")
            self.outgoing.on_flow(flow)
            return
        # Credit may arrive before our attach has answered the receiver's attach.
        if isinstance(link, SenderLink):
            if flow.link_credit is not None:
                link._on_flow(flow)
                self.connection._emit(CreditReceived(link, flow.properties))
        elif isinstance(link, ReceiverLink) and link._on_flow(flow):
            self.connection._emit(DrainCompleted(link))
        # A reduced credit is applied before the window that the same flow opens.
        self.outgoing.on_flow(flow)
        if flow.echo:
            # The answer is sent with the next output, when the effects of the flow are known, and
            # not before our attach has answered the peer's.
            self._echoes[link] = None
            self.connection._touch(self)

    def _send_flow(self, echo: bool = False) -> None:
        """Send a flow with the state of the session; with `echo`, ask the peer for its own (AMQP
        1.0 §2.7.4)."""
        flow = self._flow()
        flow.echo = echo
        self._send(flow)

    def _owe_flow(self, link: ReceiverLink) -> None:
        """Have a flow of the link written with the next output: one for all that changes until
        then."""
        if not link.flow_due:
            link.flow_due = True
            self.due.append(link)
            self.connection._touch(self)

    def write_due(self) -> None:
        """Write the flows that are due. Credit that is given before a transfer is sent must come
        before it (Link Pairing 1.0 §2.2.2)."""
        due = self.due
        self.due = []
        for link in due:
            if link.flow_due and (link.usable or link.state is LinkState.ATTACH_SENT):
                self._send_link_flow(link)

    def _send_link_flow(self, link: Link, properties: dict[str, object] | None = None) -> None:
        """Send a flow with the state of the session and of one link."""
        if self._echoes:
            self._echoes.pop(link, None)
        flow = self._flow()
        flow.handle = link.handle
        flow.properties = properties
        link._fill_flow(flow)
        self._send(flow)

    def _flow(self) -> Flow:
        begun = self.remote_begin is not None
        return Flow(
            next_incoming_id=self.incoming.next_id if begun else None,
            incoming_window=self.incoming.open_window(),
            next_outgoing_id=self.outgoing.next_id,
            outgoing_window=OUTGOING_WINDOW,
        )

    def _send(self, performative: Composite) -> None:
        self.connection._send(self.channel, performative)

    def flush_dispositions(self) -> None:
        """Write the dispositions that wait to be joined, so that later settlements go into a later
        frame."""
        if self.open_for_output:
            self._flush_dispositions()

    def _flush_dispositions(self) -> None:
        self.incoming.dispositions.flush()
        self.outgoing.dispositions.flush()

    def _flush(self) -> None:
        """Write the held-back dispositions and the window."""
        self.touched = False
        if self.open_for_output:
            if self.due:
                self.write_due()
            self._flush_dispositions()
            if self._echoes:
                self._answer_echoes()
            self.incoming.flush_window()

    def _answer_echoes(self) -> None:
        """Send the state of the links that the peer has asked for (AMQP 1.0 §2.7.4)."""
        for link in list(self._echoes):
            if link.usable:
                self._send_link_flow(link)
            elif link.state is not LinkState.ATTACH_RCVD:
                del self._echoes[link]
