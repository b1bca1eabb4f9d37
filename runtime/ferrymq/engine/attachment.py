"""Attaching and detaching the links of a session, link errors and link stealing (AMQP 1.0
§2.6.1-6).

A session hands the peer's attach and detach frames to this module, which finds or makes their link.
Link names belong to the connection, handles to the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq.engine.answers import answer_to, errant_link
from ferrymq.engine.events import AttachReceived, DetachReceived, LinkFailed, SettlementReceived
from ferrymq.engine.link import Link
from ferrymq.engine.pairing import disagreement, is_paired, misfit
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.resumption import read_unsettled
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.states import ConnectionState
from ferrymq.errors import LocalProtocolError, RemoteProtocolError, Scope
from ferrymq_types.transport import Role

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery
    from ferrymq.engine.session import Session
    from ferrymq_types.transport import Attach, Detach


def _make(session: Session, name: str, initiated: bool, is_sender: bool) -> Link:
    if is_sender:
        return SenderLink(session, name, initiated)
    return ReceiverLink(session, name, initiated)


def on_attach(session: Session, attach: Attach, size: i64) -> None:
    """Handle an attach of the peer: a new link, or the answer to our attach. Its body has `size`
    bytes.

    Raises `RemoteProtocolError` for an error that ends the session or the connection.
    """
    handle: i64 = attach.handle
    if handle > session._handle_max:
        raise RemoteProtocolError(
            "amqp:connection:framing-error",
            f"attach of link {attach.name!r} with handle {handle}; "
            f"the highest allowed is {session._handle_max}",
        )
    if handle in session._remote_handles:
        raise RemoteProtocolError(
            "amqp:session:handle-in-use",
            f"attach of link {attach.name!r} with handle {handle}, which link "
            f"{session._remote_handles[handle].name!r} holds",
            Scope.SESSION,
        )
    if attach.unsettled is not None:
        # A malformed map ends the session now, not at a later resumption.
        read_unsettled(attach)
    # The peer's role is the opposite of ours.
    is_sender = attach.role is Role.RECEIVER
    key = (attach.name, is_sender)
    link = session.links.get(key)
    if link is None or link.remote_attach is not None:
        names = session.connection.channels.links
        if link is None:
            link = names.get(key)
        if link is not None and link.remote_attach is not None:
            if attach.unsettled is None:
                check_errant(link, "attach")
            steal(link)
        if len(names) >= session.connection.settings.max_links:
            raise RemoteProtocolError(
                "amqp:resource-limit-exceeded",
                f"attach of link {attach.name!r}: the connection has {len(names)} links already",
                Scope.SESSION,
            )
        link = _make(session, attach.name, False, is_sender)
        session.links[key] = link
        names[key] = link
    if not is_sender and attach.initial_delivery_count is None:
        raise RemoteProtocolError(
            "amqp:invalid-field",
            f"attach of sender {attach.name!r} without initial-delivery-count",
            Scope.SESSION,
        )
    session._remote_handles[handle] = link
    link.attach_size = size
    link._on_attach(attach)
    if link.local_detached:
        return
    settled: list[IncomingDelivery] = []
    if isinstance(link, SenderLink):
        if link.resumption is not None:
            link.resumption.on_attach(attach)
    elif isinstance(link, ReceiverLink):
        settled = link._compare(attach)
    if is_paired(attach.properties) or link.paired:
        if not _check_pairing(link, attach):
            return
    session.connection._emit(AttachReceived(link))
    for delivery in settled:
        session.connection._emit(SettlementReceived(delivery))


def _check_pairing(link: Link, attach: Attach) -> bool:
    """Detach a link that cannot be half of a pair; return true if it can (Link Pairing 1.0
    §2.2.1)."""
    session = link.session
    if link.initiated:
        problem = disagreement(link, attach)
    else:
        problem = misfit(
            attach, session.connection.channels.links.get((link.name, not link.is_sender))
        )
    if problem is None:
        return True
    error = RemoteProtocolError("amqp:precondition-failed", problem, Scope.LINK)
    if not link.initiated:
        # The user gets no event of this link.
        link.ghost = True
    refuse_pairing(link, error)
    return False


def refuse_pairing(link: Link, error: RemoteProtocolError) -> None:
    """Detach a half that cannot be paired with its partner.

    The peer could not know that the pair would be refused. Frames that it has already sent for the
    link are dropped without a further error.
    """
    session = link.session
    try:
        link.detach(closed=True, error=answer_to(error))
    except LocalProtocolError as local:
        raise RemoteProtocolError(local.condition, local.description, Scope.SESSION) from None
    if not link.ghost:
        session.connection._emit(LinkFailed(link, error))


def on_detach(session: Session, detach: Detach) -> None:
    """Handle a detach or close of the peer. Raises `RemoteProtocolError` if there is no such
    link."""
    link = session._remote_link(detach.handle, "detach")
    del session._remote_handles[detach.handle]
    if session._last_link is link:
        session._last_link = None
    link._on_detach(detach.closed, detach.error is not None)
    if not link.ghost:
        session.connection._emit(DetachReceived(link, detach.closed, detach.error))
    if detach.closed and link.local_detached and not link.local_closed:
        # The name is kept if a newer link uses it now.
        if (link.name, link.is_sender) not in session.connection.channels.links:
            _confirm_close(link)


def _confirm_close(link: Link) -> None:
    """Confirm the peer's close of a link that we only detached: attach again, then close
    (§2.6.6)."""
    session = link.session
    ghost = _make(session, link.name, True, link.is_sender)
    ghost.ghost = True
    session._attach(ghost, link.source, link.target, link.snd_settle_mode, link.rcv_settle_mode,
                    0, None, None)  # fmt: skip
    ghost.detach(closed=True)


def release_link(link: Link) -> None:
    """Free the name and the handles of a link that both sides have detached."""
    session = link.session
    key = (link.name, link.is_sender)
    if session.links.get(key) is link:
        del session.links[key]
    names = session.connection.channels.links
    if names.get(key) is link:
        del names[key]
    if session._handles.pop(link.handle, None) is not None:
        session._free_handles.give_back(link.handle)
    if session._remote_handles.get(link.remote_handle) is link:
        del session._remote_handles[link.remote_handle]
    if session._last_link is link:
        session._last_link = None
    session.incoming.release(link)
    session.outgoing.release(link)


def steal(link: Link) -> None:
    """Detach a link whose name the peer has attached again, on any session (§2.6.1)."""
    if link.local_detached:
        return
    session = link.session
    error: RemoteProtocolError | None = None
    if not link.remote_detached:
        description = f"link {link.name!r} was attached again"
        error = RemoteProtocolError("amqp:link:stolen", description, Scope.LINK)
    try:
        # The link is suspended and not closed, so that it may be resumed, unless the peer has
        # closed it.
        link.detach(closed=False, error=None if error is None else answer_to(error))
    except LocalProtocolError as local:
        # The link has no answer yet, and none can be sent any more.
        if session.connection.state is ConnectionState.OPEN_RCVD:
            # An end cannot be sent before our open, so the connection is closed.
            raise RemoteProtocolError(
                "amqp:not-allowed",
                f"link {link.name!r} was attached again before the connection was open",
            ) from None
        session._fail(RemoteProtocolError(local.condition, local.description, Scope.SESSION))
        return
    if error is not None:
        session.connection._emit(LinkFailed(link, error))


def fail_link(link: Link, error: RemoteProtocolError) -> None:
    """Detach a link on which the peer broke a rule. Only the peer's detach may follow (§2.6.5).

    A peer that sends before its attach is answered does not know its credit. Its error ends only
    the link (Link Pairing 1.0 §2.2.2): later transfers are ignored until its detach, as after a
    detach of ours. Such transfers cannot be told apart from those of a peer that knew its credit.
    """
    failed = link.initiated or error.condition != "amqp:link:transfer-limit-exceeded"
    if failed:
        if isinstance(link, ReceiverLink):
            link.session.incoming.disown(link)
        elif isinstance(link, SenderLink):
            link.session.outgoing.disown(link)
    link.detach(closed=True, error=answer_to(error))
    link.failed = failed
    link.session.connection._emit(LinkFailed(link, error))


def check_errant(link: Link, frame: str) -> None:
    """Raise `RemoteProtocolError` if we failed the link: then only its detach may follow (AMQP 1.0
    §2.6.5)."""
    if link.failed:
        raise errant_link(link.name, frame)
