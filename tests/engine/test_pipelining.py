"""Frames that the peer sends before it has been answered (AMQP 1.0 §2.4.6, §2.5.5, §2.6.3)."""

from __future__ import annotations

import pytest

from ferrymq.engine import SenderLink
from ferrymq.engine.events import AttachReceived, BeginReceived, DetachReceived, EndReceived
from ferrymq.engine.states import SessionState
from ferrymq.errors import LocalProtocolError
from ferrymq_types.transport import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
    Role,
    Transfer,
)
from tests.support.scenes import open_script, peer_attach, peer_begin, peer_flow, transfer
from tests.support.script import AMQP_HEADER, condition, like, on

THEIRS = Open(container_id="peer")


@pytest.fixture
def server(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play.events()
    return play


@pytest.mark.spec("2.4.6")
def test_everything_up_to_credit_in_one_read(server):
    server.send(
        THEIRS,
        on(3, peer_begin()),
        on(3, peer_attach("in", 5, Role.SENDER)),
        on(3, peer_attach("out", 6, Role.RECEIVER)),
        on(3, peer_flow(handle=6, link_credit=2)),
    )
    assert server.engine.take_events and not server.engine.opened
    server.engine.open()
    server << Open
    session = server.find(BeginReceived).session
    session.accept()
    server << on(0, like(Begin, remote_channel=3))
    incoming = server.event(AttachReceived).link
    incoming.accept()
    server << like(Attach, name="in", role=Role.RECEIVER)
    outgoing = server.event(AttachReceived).link
    outgoing.accept()
    server << like(Attach, name="out", role=Role.SENDER)
    assert isinstance(outgoing, SenderLink)
    outgoing.send(b"early")
    server << on(0, like(Transfer, handle=outgoing.handle), b"early")


@pytest.mark.spec("2.4.6")
def test_a_whole_life_in_one_read(server):
    server.send(
        THEIRS,
        peer_begin(),
        peer_attach("in", 0, Role.SENDER),
        Detach(handle=0, closed=True),
        End(),
        Close(),
    )
    # What a server does that answers each event in turn.
    engine = server.engine
    for event in server.events():
        match type(event).__name__:
            case "OpenReceived":
                engine.open()
            case "BeginReceived":
                event.session.accept()
            case "AttachReceived":
                event.link.accept()
            case "DetachReceived":
                event.link.detach(closed=event.closed)
            case "EndReceived":
                event.session.end()
            case "CloseReceived":
                engine.close()
    server << Open << Close()
    assert engine.finished
    assert server.names() == ["Terminated"]


@pytest.mark.spec("2.4.6")
def test_close_pipelined_on_the_open_is_answered_by_both(server):
    server.send(THEIRS, Close())
    assert server.names() == ["OpenReceived", "CloseReceived"]
    server.engine.close()
    server << Open << Close()
    assert server.engine.finished


def test_second_close_pipelined_on_the_open(server):
    server.send(THEIRS, Close(), Close())
    server << Open << like(Close, error=condition("amqp:illegal-state"))
    assert server.engine.finished


def test_frame_after_a_pipelined_close(server):
    server.send(THEIRS, Close(), peer_begin())
    server << Open << like(Close, error=condition("amqp:illegal-state"))


def test_nothing_of_a_session_is_sent_before_our_open(server):
    server.send(THEIRS, peer_begin())
    session = server.find(BeginReceived).session
    with pytest.raises(LocalProtocolError):
        session.accept()
    server.quiet()
    server.engine.open()
    session.accept()
    server << Open << Begin


def test_violation_on_a_session_before_our_open_closes_the_connection(server):
    server.send(THEIRS, peer_begin(), transfer(0, 0))
    server << Open << like(Close, error=condition("amqp:session:unattached-handle"))
    server.engine.open()
    server.quiet()


@pytest.mark.spec("2.5.5")
def test_session_begun_and_ended_before_our_answer(script):
    play = open_script(script())
    play.send(on(4, peer_begin()), on(4, End()))
    session = play.event(BeginReceived).session
    assert play.event(EndReceived).session is session
    session.accept()
    play << on(0, like(Begin, remote_channel=4))
    assert session.state is SessionState.END_RCVD
    session.end()
    play << on(0, End())
    assert session.state is SessionState.UNMAPPED
    assert play.names() == ["SessionTerminated"]


@pytest.mark.spec("2.5.5")
def test_end_alone_answers_both(script):
    play = open_script(script())
    play.send(on(4, peer_begin()), on(4, End()))
    play.event(BeginReceived).session.end()
    play << Begin << End()


@pytest.mark.spec("2.5.2")
def test_channel_is_free_for_the_next_begin_at_the_peers_end(script):
    play = open_script(script())
    play.send(peer_begin(), End(), peer_begin(), End(), peer_begin())
    begun = []
    for event in play.events():
        if isinstance(event, BeginReceived):
            begun.append(event.session)
            event.session.accept()
        elif isinstance(event, EndReceived):
            event.session.end()
    play << on(0, Begin) << on(0, End) << on(1, Begin) << on(1, End) << on(2, Begin)
    assert [s.mapped for s in begun] == [False, False, True]


def test_echo_asked_for_before_our_begin(script):
    play = open_script(script())
    play.send(peer_begin(), peer_flow(echo=True))
    play.quiet()
    play.find(BeginReceived).session.accept()
    play << Begin


def test_session_violation_before_our_begin(script):
    play = open_script(script())
    play.send(peer_begin(), transfer(0, 0))
    play << Begin << like(End, error=condition("amqp:session:unattached-handle"))
    session = play.event(BeginReceived).session
    session.accept()
    session.end()
    play.quiet()
    play >> End()
    assert play.names() == ["SessionTerminated"]


@pytest.mark.spec("2.6.3")
def test_detach_before_our_attach(script):
    play = open_script(script())
    play.send(peer_begin(), peer_attach("a", 7, Role.SENDER), Detach(handle=7, closed=True))
    play.event(BeginReceived).session.accept()
    play << Begin
    link = play.event(AttachReceived).link
    assert link.remote_detached
    link.accept()
    play << like(Attach, name="a", role=Role.RECEIVER)
    assert not link.usable
    assert play.event(DetachReceived).link is link
    link.detach()
    play << Detach(handle=0, closed=True)
    assert link.session.links == {}


@pytest.mark.spec("2.6.3")
def test_refusal_of_a_link_that_is_detached_already(script):
    play = open_script(script())
    play.send(peer_begin(), peer_attach("a", 7, Role.SENDER), Detach(handle=7, closed=True))
    play.event(BeginReceived).session.accept()
    link = play.event(AttachReceived).link
    link.refuse(Error(condition="amqp:not-found"))
    play << Begin << like(Attach, target=None) << like(Detach, error=condition("amqp:not-found"))
    assert link.session.links == {}


def test_link_cannot_be_answered_before_its_session(script):
    play = open_script(script())
    play.send(peer_begin(), peer_attach("a", 7, Role.SENDER))
    session = play.event(BeginReceived).session
    link = play.event(AttachReceived).link
    with pytest.raises(LocalProtocolError):
        link.accept()
    play.quiet()
    session.accept()
    link.accept()
    play << Begin << Attach


@pytest.mark.parametrize("detached", [False, True])
def test_name_attached_twice_before_the_session_is_answered(script, detached):
    play = open_script(script())
    between = [Detach(handle=7)] if detached else []
    play.send(
        peer_begin(),
        peer_attach("a", 7, Role.SENDER),
        *between,
        peer_attach("a", 8, Role.SENDER),
    )
    play << Begin << End
    assert not play.engine.finished


@pytest.mark.spec("2.5.5")
@pytest.mark.parametrize("error", [None, Error(condition="amqp:internal-error")])
def test_we_begin_and_end_before_the_answer(script, error):
    play = open_script(script(initiator=True))
    session = play.engine.begin()
    session.attach_receiver("a", source=None).set_credit(3)
    session.end(error)
    play << Begin << Attach << Flow << End(error=error)
    assert session.links == {}
    play >> on(2, peer_begin(0)) >> on(2, peer_attach("a", 0, Role.SENDER)) >> on(2, End())
    assert play.names() == ["EndReceived", "SessionTerminated"]
    assert play.engine.channels.by_local == {} and play.engine.channels.by_remote == {}


@pytest.mark.spec("2.6.3")
def test_we_attach_and_detach_before_the_answer(script):
    play = open_script(script(initiator=True))
    session = play.engine.begin()
    link = session.attach_receiver("a", source=None)
    link.detach()
    play << Begin << Attach << Detach(handle=0, closed=True)
    play >> peer_begin(0) >> peer_attach("a", 0, Role.SENDER)
    assert play.names() == ["BeginReceived"]
    play >> Detach(handle=0, closed=True)
    assert play.names() == ["DetachReceived"]
    assert session.links == {}
