"""Links: one direction of messages between two nodes (AMQP 1.0 §2.6).

`Link` is the common part of both roles: termini, settle modes and the handshake. Credit and
deliveries are in the modules of the two roles, `sender` and `receiver`. Frames reach a link through
its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq.engine.answers import answer_to, fitting
from ferrymq.engine.events import LinkFailed
from ferrymq.engine.pairing import disagreement, is_paired
from ferrymq.engine.states import LINK_TABLE, LinkInput, LinkState
from ferrymq.errors import LocalProtocolError, RemoteProtocolError, Scope
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
    from ferrymq_types.unions import Source, Target


def illegal(description: str) -> LocalProtocolError:
    """Return the error for a call that the state of a link does not allow."""
    return LocalProtocolError("amqp:illegal-state", description, Scope.LINK)


class Link:
    """Common part of both roles. Created by `Session.attach_sender`/`attach_receiver` or by the
    peer.

    `initiated` is true when this side attached first. `source` and `target` are the termini that
    this side sent. `remote_attach` is the peer's attach; None until it has arrived.
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
        "attach_size",
        "snd_settle_mode",
        "rcv_settle_mode",
        "always_settled",
        "never_settled",
        "settles_second",
        "max_message_size",
        "remote_max_message_size",
        "credit",
        "delivery_count",
        "skipped",
        "drain",
        "ghost",
        "failed",
        "remote_closed",
        "local_closed",
        "paired",
        "_live",
        "context",
    )

    def __init__(self, session: Session, name: str, initiated: bool, is_sender: bool) -> None:
        self.session: Session = session
        self.name: str = name
        self.handle: i64 = -1
        self.remote_handle: i64 = -1
        self.initiated: bool = initiated
        self.is_sender: bool = is_sender
        self.state: LinkState = LinkState.DETACHED
        # True from the second attach to the first detach: transfers and flows are allowed.
        self.usable: bool = False
        self.local_detached: bool = False
        self.remote_detached: bool = False
        self.source: Source | None = None
        self.target: Target | None = None
        self.remote_attach: Attach | None = None
        # Bytes of the peer's attach.
        self.attach_size: i64 = 0
        self.snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED
        self.rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST
        # Copies of the settle modes as flags: every delivery reads them on the hot path.
        self.always_settled: bool = False
        self.never_settled: bool = False
        self.settles_second: bool = False
        # Bytes; 0 means without a limit (AMQP 1.0 §2.7.3).
        self.max_message_size: int = 0
        self.remote_max_message_size: int = 0
        self.credit: i64 = 0
        self.delivery_count: i64 = 0
        # The part of `delivery_count` that no delivery stands for: the initial count, and credit
        # that was given back.
        self.skipped: i64 = 0
        self.drain: bool = False
        # Whether the link was attached only to be closed, so that the user gets no event of it.
        self.ghost: bool = False
        # Whether we detached the link because the peer broke a rule: no further frame may come for
        # it.
        self.failed: bool = False
        # Whether each side has closed the link, and not only detached it.
        self.local_closed: bool = False
        self.remote_closed: bool = False
        # Whether our attach made it half of a pair (Link Pairing 1.0 §2.2.1).
        self.paired: bool = False
        # Whether dispositions still reach its deliveries after a detach (AMQP 1.0 §2.7.6).
        self._live = True
        self.context: object = None

    def __repr__(self) -> str:
        role = "sender" if self.is_sender else "receiver"
        return f"<{role} link {self.name!r} {self.state.name}>"

    @property
    def deliveries(self) -> int:
        """The number of deliveries sent or received, aborted ones included, modulo 2^32."""
        return (self.delivery_count - self.skipped) & 0xFFFFFFFF

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
        """Answer the peer's attach. The answer repeats the peer's termini where none are given.

        Does nothing when the link or its session is over. If `properties` does not agree with the
        peer's attach about the property `paired`, the link is detached again (Link Pairing 1.0
        §2.2.1), and `LinkFailed` gives the reason. Raises `LocalProtocolError` if the link was
        answered already or its session was not.
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
        problem = disagreement(self, remote)
        if problem is not None:
            error = RemoteProtocolError("amqp:precondition-failed", problem, Scope.LINK)
            self.detach(closed=True, error=answer_to(error))
            self.session.connection._emit(LinkFailed(self, error))

    def refuse(self, error: Error, *, bare: bool = False) -> None:
        """Refuse the peer's attach: send a null terminus, then a closing detach (AMQP 1.0 §2.6.3).

        The null terminus is the one on our side, which the peer asked for. With `bare`, the other
        one is null as well.
        """
        remote = self.remote_attach
        if self.local_detached or self._over():
            return
        if self.initiated or remote is None or self.state is not LinkState.ATTACH_RCVD:
            raise illegal(f"link {self.name!r} has no attach of the peer to answer")
        if bare:
            self.source, self.target = None, None
        elif self.is_sender:
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
            # An attach must answer the peer's before a detach can be sent.
            self._send_attach(None, None, None)
        self._send_detach(closed, error)

    def close(self, error: Error | None = None) -> None:
        """Close the link: call `detach` with `closed` true."""
        self.detach(closed=True, error=error)

    def _over(self) -> bool:
        """Return whether the link was attached and has ended."""
        return self.state is LinkState.DETACHED and self.remote_attach is not None

    def agree_settle_modes(self, snd: SenderSettleMode, rcv: ReceiverSettleMode) -> None:
        """Set the settle modes of the link. Call this before `accept`, whose answer states the
        modes (AMQP 1.0 §2.7.3). Without this call the answer states the modes that the peer asked
        for."""
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
        # Earlier settlements must be sent before the unsettled map.
        session.connection._flush_sessions()
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
        self.paired = is_paired(properties)
        self._transition(LinkInput.SEND_ATTACH)
        if self.state is LinkState.ATTACHED and self.remote_detached:
            # The peer's detach arrived before we sent our attach; only our detach is missing.
            self._transition(LinkInput.RECV_DETACH)
        if session._echoes:
            session.connection._touch(session)

    def _send_fitting(self, attach: Attach) -> None:
        """Send the attach with as many entries of its unsettled map as fit (AMQP 1.0 §2.7.3)."""
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
                self._mark_incomplete(len(attach.unsettled))

    def _unsettled_states(self) -> dict[object, object] | None:
        """Return the unsettled map for the attach; None unless the link resumes."""
        return None

    def _mark_incomplete(self, listed: i64) -> None:
        """Mark the unsettled map as incomplete: only its first `listed` entries are sent."""

    def _send_detach(self, closed: bool, error: Error | None) -> None:
        session = self.session
        # A close is answered by a close (AMQP 1.0 §2.6.6).
        closed = closed or self.remote_closed
        if session.open_for_output:
            # The peer forgets the deliveries at the detach, so settlements are sent before it.
            session._flush_dispositions()
            fits = fitting(error, session.connection.remote_max_frame_size)
            if session.due:
                session.write_due()
            session._send(Detach(handle=self.handle, closed=closed, error=fits))
        self.local_detached = True
        self.local_closed = closed
        self._transition(LinkInput.SEND_DETACH)
        self._suspend(closed or error is not None)

    def _on_attach(self, attach: Attach) -> None:
        self.remote_attach = attach
        self.remote_handle = attach.handle
        snd = attach.snd_settle_mode
        rcv = attach.rcv_settle_mode
        if self.initiated:
            # Each end decides its own mode; the other end can only request one (AMQP 1.0 §2.7.3).
            if self.is_sender:
                snd = self.snd_settle_mode
            else:
                rcv = self.rcv_settle_mode
        self.agree_settle_modes(snd, rcv)
        self.remote_max_message_size = attach.max_message_size or 0
        if not self.is_sender and attach.initial_delivery_count is not None:
            self.delivery_count = attach.initial_delivery_count
            self.skipped = self.delivery_count
        self._transition(LinkInput.RECV_ATTACH)

    def _on_detach(self, closed: bool, failed: bool) -> None:
        self.remote_detached = True
        self.remote_closed = closed
        self._transition(LinkInput.RECV_DETACH)
        self._suspend(closed or failed)

    def _suspend(self, over: bool) -> None:
        """Suspend the link after a detach of one side; unless the link is `over`, its deliveries
        stay live."""
        if over:
            self._live = False
        self.session._suspend_deliveries(self, self._live)
        if self.state is LinkState.DETACHED:
            self.session._release_link(self)

    def expire(self) -> None:
        """Delete the local terminus with the link, by its expiry policy (AMQP 1.0 §3.5.6).

        The deliveries that were unsettled when the link was detached are forgotten. Without this
        call they can still be settled while the session lasts, and can be resumed.
        """
        self._live = False
        self.session._suspend_deliveries(self, False)
        self._clear_unsettled()

    def _clear_unsettled(self) -> None:
        """Forget the deliveries that could be resumed."""

    def _keep_unresumed(self) -> None:
        """Keep the deliveries that were not resumed yet when the link ends."""

    def _fill_flow(self, flow: Flow) -> None:
        """Write the state of the link into a flow; each role has its own."""

    def _lost(self) -> None:
        """End the link because its session is over."""
        self.state = LinkState.DETACHED
        self.usable = False
        self._keep_unresumed()
