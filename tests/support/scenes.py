"""Beginnings of scripts: a connection that is open, with a session, with a link."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

from ferrymq.engine import ReceiverLink, SenderLink, Session
from ferrymq.engine.events import AttachReceived, BeginReceived
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import (
    Attach,
    Begin,
    Flow,
    Open,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Transfer,
)
from tests.support.script import AMQP_HEADER, Script, like, on

WINDOW = 100
MAX32 = 0xFFFFFFFF


def peer_begin(remote_channel: int | None = None, **fields: Any) -> Begin:
    """The peer's begin; its transfers start at id 0 unless it is said otherwise."""
    given: dict[str, Any] = {
        "next_outgoing_id": 0,
        "incoming_window": WINDOW,
        "outgoing_window": WINDOW,
        **fields,
    }
    return Begin(remote_channel=remote_channel, **given)


def peer_attach(name: str, handle: int, role: Role, **fields: Any) -> Attach:
    """The peer's attach in a role of its choice."""
    given: dict[str, Any] = {
        "source": Source(address="from"),
        "target": Target(address="to"),
        **fields,
    }
    if role is Role.SENDER:
        given.setdefault("initial_delivery_count", 0)
    return Attach(name=name, handle=handle, role=role, **given)


def peer_flow(**fields: Any) -> Flow:
    """The peer's flow with a window that does not matter."""
    given: dict[str, Any] = {
        "next_incoming_id": 0,
        "incoming_window": WINDOW,
        "next_outgoing_id": 0,
        "outgoing_window": WINDOW,
        **fields,
    }
    return Flow(**given)


def transfer(
    handle: int, delivery_id: int | None, tag: bytes | EllipsisType | None = ..., **fields: Any
) -> Transfer:
    """A transfer of the peer, unsettled unless it is said otherwise, with a tag of its own."""
    if isinstance(tag, EllipsisType):
        tag = b"tag" if not delivery_id else b"tag%d" % delivery_id
    return Transfer(handle=handle, delivery_id=delivery_id, delivery_tag=tag, **fields)


def open_script(play: Script, **peer: Any) -> Script:
    """Exchange headers and opens. The peer's open has the fields in `peer`."""
    their_open = Open(container_id="peer", **peer)
    if play.engine.settings.initiator:
        play.engine.open()
        play << AMQP_HEADER << Open
        play >> AMQP_HEADER >> their_open
    else:
        play >> AMQP_HEADER << AMQP_HEADER
        play >> their_open
        play.engine.open()
        play << Open
    play.events()
    return play


def begin_script(play: Script, channel: int = 0, **begin: Any) -> Session:
    """A session that the peer begins on its `channel` and the engine's user accepts."""
    play >> on(channel, peer_begin(**begin))
    session = play.event(BeginReceived).session
    session.accept()
    play << on(session.channel, like(Begin, remote_channel=channel))
    return session


def receiver_script(
    play: Script,
    session: Session,
    name: str = "link",
    *,
    credit: int = 100,
    max_message_size: int = 0,
    snd: SenderSettleMode = SenderSettleMode.MIXED,
    rcv: ReceiverSettleMode = ReceiverSettleMode.FIRST,
    handle: int | None = None,
    **attach: Any,
) -> ReceiverLink:
    """A link on which the peer sends, with credit. Its handle is ours unless given."""
    remote = len(session.links) if handle is None else handle
    play >> on(
        session.remote_channel,
        peer_attach(name, remote, Role.SENDER, snd_settle_mode=snd, rcv_settle_mode=rcv, **attach),
    )
    link = play.event(AttachReceived).link
    assert isinstance(link, ReceiverLink)
    link.accept(max_message_size=max_message_size)
    play << on(session.channel, like(Attach, name=name, role=Role.RECEIVER))
    if credit:
        link.set_credit(credit)
        play << on(session.channel, like(Flow, handle=link.handle, link_credit=credit))
    return link


def sender_script(
    play: Script,
    session: Session,
    name: str = "link",
    *,
    credit: int = 100,
    snd: SenderSettleMode = SenderSettleMode.MIXED,
    rcv: ReceiverSettleMode = ReceiverSettleMode.FIRST,
    **attach: Any,
) -> SenderLink:
    """A link on which the peer receives and has given credit."""
    remote = len(session.links)
    play >> on(
        session.remote_channel,
        peer_attach(
            name, remote, Role.RECEIVER, snd_settle_mode=snd, rcv_settle_mode=rcv, **attach
        ),
    )
    link = play.event(AttachReceived).link
    assert isinstance(link, SenderLink)
    link.accept()
    play << on(session.channel, like(Attach, name=name, role=Role.SENDER))
    if credit:
        play >> on(
            session.remote_channel, peer_flow(handle=remote, delivery_count=0, link_credit=credit)
        )
        play.events()
    return link
