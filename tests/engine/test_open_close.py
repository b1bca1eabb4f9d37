"""Open and close of a connection (AMQP 1.0 §2.4)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import (
    BeginReceived,
    CloseReceived,
    OpenReceived,
    SessionTerminated,
    Terminated,
)
from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq.engine.states import ConnectionState
from ferrymq.errors import ConnectionClosed, LocalProtocolError, RemoteProtocolError, TransportError
from ferrymq_types.transport import Begin, Close, End, Error, Open, Role
from tests.support.scenes import (
    begin_script,
    open_script,
    peer_attach,
    peer_begin,
    receiver_script,
    transfer,
)
from tests.support.script import AMQP_HEADER, condition, encoded, frame, like, on

THEIRS = Open(container_id="peer")
BROKEN = Error(condition="amqp:internal-error", description="it broke")


@pytest.mark.spec("2.7.1")
def test_open_carries_the_settings(script):
    play = script(
        hostname="host",
        max_frame_size=4096,
        channel_max=7,
        idle_time_out=20.0,
        offered_capabilities=["a"],
        desired_capabilities=["b"],
        properties={"product": "ferrymq"},
    )
    play >> AMQP_HEADER << AMQP_HEADER
    play >> THEIRS
    play.engine.open()
    play << Open(
        container_id="engine",
        hostname="host",
        max_frame_size=4096,
        channel_max=7,
        idle_time_out=10000,
        offered_capabilities=["a"],
        desired_capabilities=["b"],
        properties={"product": "ferrymq"},
    )
    assert play.find(OpenReceived).open == THEIRS
    assert play.engine.opened


@pytest.mark.spec("2.4.6")
def test_server_opens_only_when_told(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> THEIRS
    play.quiet()
    assert play.engine.state is ConnectionState.OPEN_RCVD


@pytest.mark.spec("2.4.6")
def test_open_may_be_pipelined_on_the_header(script):
    play = script(initiator=True)
    play.engine.open()
    play << AMQP_HEADER << Open
    session = play.engine.begin()
    play << like(Begin, remote_channel=None)
    assert play.engine.state is ConnectionState.OPEN_PIPE
    play.send(AMQP_HEADER, THEIRS, peer_begin(0))
    assert play.find(BeginReceived).session is session
    assert session.mapped


@pytest.mark.spec("2.4.3")
def test_peer_closes(script):
    play = open_script(script())
    play >> Close()
    assert play.event(CloseReceived).error is None
    assert not play.engine.finished
    play.engine.close()
    play << Close()
    assert play.event(Terminated).error is None
    assert play.engine.finished


@pytest.mark.spec("2.4.3")
def test_we_close(script):
    play = open_script(script(initiator=True))
    play.engine.close()
    play << Close()
    assert play.engine.state is ConnectionState.CLOSE_SENT
    play.engine.close()
    play.quiet()
    play >> Close()
    assert play.names() == ["CloseReceived", "Terminated"]


@pytest.mark.spec("2.4.3")
def test_simultaneous_close(script):
    play = open_script(script())
    play.engine.close()
    play >> Close()
    play << Close()
    assert play.names() == ["CloseReceived", "Terminated"]
    assert play.engine.state is ConnectionState.END


@pytest.mark.spec("2.4.5")
def test_close_with_an_error_discards_what_follows(script):
    play = open_script(script())
    begin_script(play)
    play.engine.close(BROKEN)
    play << Close(error=BROKEN)
    assert play.engine.state is ConnectionState.DISCARDING
    play.find(SessionTerminated)
    play >> on(0, transfer(0, 0), b"payload") >> on(7, End()) >> on(9, peer_begin())
    assert play.events() == []
    play >> Close()
    assert play.find(Terminated).error is None


def test_frames_on_their_way_when_we_closed_are_no_violation(script):
    play = open_script(script())
    session = begin_script(play)
    receiver_script(play, session)
    play.engine.close()
    play << Close()
    # Larger than anything that is allowed before the opens.
    play >> on(0, transfer(0, 0), b"p" * 60000)
    play >> on(0, transfer(0, 1), b"payload") >> on(0, End()) >> Close()
    assert play.find(Terminated).error is None


@pytest.mark.spec("2.4.3")
def test_peer_closes_with_an_error(script):
    play = open_script(script())
    session = begin_script(play)
    play >> Close(error=BROKEN)
    assert play.event(CloseReceived).error == BROKEN
    ended = play.event(SessionTerminated)
    assert ended.session is session
    assert isinstance(ended.error, ConnectionClosed)
    play.engine.close()
    play << Close()
    error = play.event(Terminated).error
    assert isinstance(error, ConnectionClosed)
    assert error.condition == "amqp:internal-error"


@pytest.mark.spec("2.4.1")
def test_frame_before_the_open_closes(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> peer_begin()
    play << Open << like(Close, error=condition("amqp:illegal-state"))
    # The answer to the open that never came is without effect.
    play.engine.open()
    play.eof()
    assert isinstance(play.find(Terminated).error, RemoteProtocolError)


@pytest.mark.spec("2.4.3")
def test_close_follows_our_open_even_when_it_is_at_once(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> THEIRS
    play.engine.close(BROKEN)
    play << Open << Close(error=BROKEN)
    play.engine.open()
    play >> Close()
    assert play.find(Terminated).error is None


@pytest.mark.spec("2.4.6")
def test_we_open_and_close_at_once(script):
    play = script(initiator=True)
    play.engine.open()
    play.engine.close()
    play << AMQP_HEADER << Open << Close
    assert play.engine.state is ConnectionState.OC_PIPE
    play.engine.close()
    play.quiet()
    play >> AMQP_HEADER
    assert play.engine.state is ConnectionState.CLOSE_PIPE
    play.engine.close()
    play >> THEIRS
    assert play.engine.state is ConnectionState.CLOSE_SENT
    play >> Close()
    assert play.names() == ["HeaderReceived", "CloseReceived", "Terminated"]


def test_peer_that_closes_without_an_open(script):
    play = script(initiator=True)
    play.engine.open()
    play << AMQP_HEADER << Open
    play >> AMQP_HEADER >> Close()
    play << like(Close, error=condition("amqp:illegal-state"))
    play.eof()
    assert isinstance(play.find(Terminated).error, RemoteProtocolError)


def test_peer_that_closes_without_an_open_after_our_close(script):
    play = script(initiator=True)
    play.engine.open()
    play.engine.close()
    play << AMQP_HEADER << Open << Close
    play >> AMQP_HEADER >> Close()
    assert isinstance(play.find(Terminated).error, RemoteProtocolError)


@pytest.mark.spec("2.7.1")
def test_second_open(script):
    play = open_script(script())
    play >> THEIRS << like(Close, error=condition("amqp:illegal-state"))


def test_second_open_before_ours(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play.send(THEIRS, THEIRS)
    play << Open << like(Close, error=condition("amqp:illegal-state"))
    play.engine.open()
    play.quiet()


@pytest.mark.spec("2.7.1")
def test_open_with_a_max_frame_size_below_512(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> Open(container_id="peer", max_frame_size=511)
    play << Open << like(Close, error=condition("amqp:invalid-field"))
    assert play.names() == ["HeaderReceived"]


@pytest.mark.spec("2.4.3")
def test_frame_after_the_peers_close(script):
    play = open_script(script())
    play.send(Close(), peer_begin())
    play << like(Close, error=condition("amqp:illegal-state"))
    assert isinstance(play.find(Terminated).error, RemoteProtocolError)


def test_second_close(script):
    play = open_script(script())
    play.send(Close(), Close())
    play << Close
    assert play.engine.finished


# -- the transport ends ---------------------------------------------------------


def ended(play) -> type:
    play.eof()
    play.take()
    error = play.find(Terminated).error
    assert play.engine.finished
    assert play.events() == []
    return type(error)


def test_eof_before_the_header(script):
    assert ended(script()) is ConnectionClosed


def test_eof_in_the_header(script):
    assert ended(script() >> AMQP_HEADER[:5]) is ConnectionClosed


def test_eof_before_the_open(script):
    assert ended(script() >> AMQP_HEADER << AMQP_HEADER) is ConnectionClosed


def test_eof_in_a_frame(script):
    assert ended(script() >> AMQP_HEADER + encoded(THEIRS)[:-1]) is ConnectionClosed


def test_eof_when_open_loses_the_sessions(script):
    play = open_script(script())
    session = begin_script(play)
    link = receiver_script(play, session)
    assert ended(play) is ConnectionClosed
    assert not session.mapped and not link.usable


def test_eof_after_our_close(script):
    play = open_script(script())
    play.engine.close()
    play << Close
    assert ended(play) is type(None)


def test_eof_after_the_peers_close(script):
    play = open_script(script())
    play >> Close()
    assert ended(play) is type(None)


def test_eof_after_a_violation(script):
    play = open_script(script())
    play >> frame(b"", type=9) << Close
    assert ended(play) is RemoteProtocolError


def test_eof_twice(script):
    play = script()
    play.eof().eof()
    assert play.names() == ["Terminated"]


def test_close_before_the_layers_are_through_ends_the_transport(script):
    play = script(initiator=True)
    play << AMQP_HEADER
    play.engine.close()
    assert play.event(Terminated).error is None
    play.engine.open()
    play.quiet()


def test_open_twice(script):
    play = open_script(script())
    with pytest.raises(LocalProtocolError):
        play.engine.open()
    assert play.engine.opened


def test_description_of_a_violation_is_cut_to_what_every_peer_takes(script):
    play = open_script(script(), max_frame_size=512)
    play >> on(0, peer_begin())
    play.event(BeginReceived).session.accept()
    play << Begin
    # The longest quotation there is: a link's name.
    name = "\N{SNOWMAN}" * 2000
    play >> peer_attach(name, 5000, Role.SENDER)
    (close,) = play.take()
    assert isinstance(close.body, Close)
    assert len(encoded(close.body)) <= 512
    assert close.body.error == condition("amqp:connection:framing-error")


def test_handshake_that_fails_is_no_close(script):
    play = script()
    play >> b"HELLO WO" << AMQP_HEADER
    assert isinstance(play.find(Terminated).error, TransportError)


# -- capabilities that one side cannot do without ----------------------------------------------


@pytest.mark.spec("2.7.1")
def test_required_capabilities_are_desired(script):
    play = script(initiator=True, desired_capabilities=["a"], required_capabilities=["b", "a"])
    play.engine.open()
    play << AMQP_HEADER << like(Open, desired_capabilities=["a", "b"])
    play >> AMQP_HEADER >> Open(container_id="peer", offered_capabilities=["b", "a", "c"])
    play.find(OpenReceived)
    assert play.engine.opened


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize("offered", [None, [], ["a"]])
@pytest.mark.parametrize("initiator", [False, True])
def test_peer_without_a_required_capability_is_closed(script, initiator, offered):
    play = script(initiator=initiator, required_capabilities=["a", "b"])
    play.engine.open()
    if initiator:
        play << AMQP_HEADER << Open
        play >> AMQP_HEADER
    else:
        play >> AMQP_HEADER << AMQP_HEADER << Open
    play >> Open(container_id="peer", offered_capabilities=offered)
    play << like(Close, error=condition("amqp:not-implemented"))
    assert "OpenReceived" not in play.names()
    play >> Close()
    error = play.find(Terminated).error
    assert isinstance(error, RemoteProtocolError) and error.condition == "amqp:not-implemented"


@pytest.mark.parametrize("idle", [None, 1])
def test_open_that_comes_after_our_close_is_not_judged(script, idle):
    play = script(initiator=True, required_capabilities=["a"])
    play.engine.open()
    play.engine.close()
    play << AMQP_HEADER << Open << Close
    play >> AMQP_HEADER >> Open(container_id="peer", idle_time_out=idle) >> Close()
    assert play.find(Terminated).error is None


@pytest.mark.spec("2.4.5")
@pytest.mark.parametrize("opened", [False, True])
def test_empty_frame_before_the_peers_open(script, opened):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    if opened:
        play.engine.open()
        play << Open
    play >> EMPTY_FRAME
    if not opened:
        play << Open
    play << like(Close, error=condition("amqp:illegal-state"))


@pytest.mark.spec("2.4.5")
def test_empty_frame_after_the_peers_close(script):
    play = open_script(script())
    play.send(Close(), EMPTY_FRAME)
    play << like(Close, error=condition("amqp:illegal-state"))


def test_empty_frame_after_our_close_is_dropped(script):
    play = open_script(script())
    play.engine.close()
    play << Close
    play >> EMPTY_FRAME
    assert play.engine.state is ConnectionState.CLOSE_SENT
