"""Frames that the peer sends before it has been answered (AMQP 1.0 §2.4.6, §2.5.5, §2.6.3)."""

from __future__ import annotations

import pytest

from ferrymq.engine import ConnectionSettings, SenderLink
from ferrymq.engine.events import AttachReceived, BeginReceived, DetachReceived, EndReceived
from ferrymq.engine.states import SessionState
from ferrymq.errors import LocalProtocolError
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import (
    MIN_MAX_FRAME_SIZE,
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
from tests.support.script import AMQP_HEADER, condition, encoded, like, on

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


# -- what we send before the peer's limits are known (§2.4.1) -------------------------------


@pytest.fixture
def early(script):
    """A client that has opened and heard nothing yet."""
    play = script(initiator=True)
    play.engine.open()
    play << AMQP_HEADER << on(0, Open)
    return play


@pytest.mark.spec("2.4.1")
def test_one_channel_until_the_peers_open_is_known(early):
    early.engine.begin()
    with pytest.raises(LocalProtocolError, match="channels up to 0"):
        early.engine.begin()
    early << on(0, Begin)
    early >> AMQP_HEADER
    with pytest.raises(LocalProtocolError):
        early.engine.begin()
    early >> Open(container_id="peer", channel_max=1)
    early.engine.begin()
    early << on(1, Begin)
    with pytest.raises(LocalProtocolError):
        early.engine.begin()


@pytest.mark.spec("2.4.1")
def test_no_frame_above_512_bytes_until_the_peers_open_is_known(early):
    session = early.engine.begin()
    with pytest.raises(LocalProtocolError) as caught:
        session.attach_receiver("a", source=Source(address="x" * 512))
    assert caught.value.condition == "amqp:frame-size-too-small"
    early << Begin
    early.quiet()
    early >> AMQP_HEADER >> Open(container_id="peer", max_frame_size=4096)
    session.attach_receiver("a", source=Source(address="x" * 512))
    early << Attach


@pytest.mark.spec("2.4.1")
def test_largest_early_frame_has_512_bytes(early):
    session = early.engine.begin()
    early << Begin
    wrapped = len(encoded(Attach(name="a", handle=0, role=Role.RECEIVER)))
    sent = 0
    for size in range(512 - wrapped - 120, 513):
        try:
            session.attach_receiver(f"a{size}", source=Source(address="x" * size))
        except LocalProtocolError:
            break
        (item,) = early.take()
        sent = max(sent, len(encoded(item.body)))
    else:
        raise AssertionError("no frame was too large")
    assert 508 <= sent <= MIN_MAX_FRAME_SIZE


@pytest.mark.spec("2.4.1")
@pytest.mark.parametrize("initiator", [False, True])
def test_open_is_never_larger_than_every_peer_takes(script, initiator):
    fits = {"container_id": "c", "initiator": initiator, "properties": {"a": "x" * 400}}
    play = script(**fits)
    play.engine.open()
    if not initiator:
        play >> AMQP_HEADER
    *_, item = play.take()
    assert isinstance(item.body, Open) and len(encoded(item.body)) <= MIN_MAX_FRAME_SIZE
    with pytest.raises(ValueError, match="512"):
        ConnectionSettings(**{**fits, "properties": {"a": "x" * 512}})


def test_open_that_cannot_be_encoded():
    with pytest.raises(ValueError, match="cannot be encoded"):
        ConnectionSettings(container_id="c", initiator=True, channel_max=65536)


@pytest.mark.spec("2.4.2")
def test_early_transfers_are_cut_to_512_bytes(script):
    # A link of the peer's that it pipelined: its open is known, and so is its limit.
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play.send(
        Open(container_id="peer", max_frame_size=512),
        peer_begin(),
        peer_attach("out", 0, Role.RECEIVER),
        peer_flow(handle=0, link_credit=1),
    )
    play.engine.open()
    play.find(BeginReceived).session.accept()
    link = play.event(AttachReceived).link
    link.accept(target=Target(address="to"))
    play << Open << Begin << Attach
    link.send(b"x" * 1000)
    frames = play.take()
    assert len(frames) == 3
    assert all(len(encoded(item)) <= 512 for item in frames)


@pytest.mark.spec("2.6.1")
@pytest.mark.parametrize("role", list(Role))
def test_a_link_attached_again_before_anything_was_answered(server, role):
    attach = on(1, peer_attach("again", 1, role))
    server.send(THEIRS, on(1, peer_begin()), attach, on(1, Detach(handle=1, closed=True)), attach)
    server << Open << like(Close, error=condition("amqp:not-allowed"))


# -- what the peer may send ------------------------------------------------------------------


@pytest.mark.spec("2.4.1")
@pytest.mark.parametrize("channel", [1, 2047, 65535])
def test_open_on_a_channel_other_than_0(server, channel):
    server >> on(channel, THEIRS)
    server << Open << like(Close, error=condition("amqp:connection:framing-error"))
    assert server.events() == []


@pytest.mark.spec("2.4.3")
def test_close_on_any_channel_there_is(script):
    play = open_script(script(channel_max=5))
    play >> on(5, Close())
    play.engine.close()
    play << on(0, Close())
    assert play.engine.finished
    play = open_script(script(channel_max=5))
    play >> on(6, Close())
    play << like(Close, error=condition("amqp:connection:framing-error"))


@pytest.mark.spec("2.4.3")
def test_close_after_ours_is_taken_on_any_channel(script):
    play = open_script(script(channel_max=5))
    play.engine.close()
    play << Close
    play >> on(6, Close())
    assert play.engine.finished and play.engine.failure is None
