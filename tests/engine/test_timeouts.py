"""Idle time-outs, keep-alives and the bounds on handshake and close (AMQP 1.0 §2.4.5).

The clock is the script's: no test waits.
"""

from __future__ import annotations

import pytest

from ferrymq.engine.events import Terminated
from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq.errors import ConnectionClosed, RemoteProtocolError, TransportError
from ferrymq_types.transport import Begin, Close, Open
from tests.support.scenes import begin_script, open_script, peer_begin
from tests.support.script import AMQP_HEADER, SASL_HEADER, condition, like, on


@pytest.mark.spec("2.7.1")
def test_half_of_the_idle_time_out_is_announced(script):
    play = script(idle_time_out=30.0)
    play >> AMQP_HEADER << AMQP_HEADER
    play.engine.open()
    play >> Open(container_id="peer") << like(Open, idle_time_out=15000)


@pytest.mark.spec("2.4.5")
def test_silent_peer_is_closed(script):
    play = open_script(script(idle_time_out=30.0))
    play.tick(29.9).quiet()
    play >> EMPTY_FRAME
    play.tick(29.9).quiet()
    play.tick(0.1) << like(Close, error=condition("amqp:resource-limit-exceeded"))
    assert not play.engine.finished
    play.tick(10.0)
    error = play.event(Terminated).error
    assert isinstance(error, RemoteProtocolError)
    assert error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.spec("2.4.5")
def test_silent_peer_that_answers_the_close(script):
    play = open_script(script(idle_time_out=30.0))
    play.tick(30.0) << Close
    play >> Close()
    assert isinstance(play.find(Terminated).error, RemoteProtocolError)


def test_peer_may_be_silent_without_an_idle_time_out(script):
    play = open_script(script())
    assert play.engine.next_deadline() is None
    play.tick(1e9).quiet()


@pytest.mark.spec("2.4.5")
def test_keepalive_never_later_than_half_of_the_peers_time_out(script):
    play = open_script(script(), idle_time_out=8000)
    last = play.now
    for _ in range(20):
        due = play.engine.next_deadline()
        assert due is not None
        play.tick(due - play.now)
        for item in play.take():
            assert item.data == EMPTY_FRAME
            assert play.now - last <= 4.0
            last = play.now
    assert play.now - last < 4.0


@pytest.mark.spec("2.4.5")
@pytest.mark.parametrize("at", [0.125, 1.875, 2.0, 2.125, 3.875])
def test_traffic_puts_the_keepalive_off(script, at):
    play = open_script(script(), idle_time_out=8000)
    play.tick(at)
    play.take()
    play.engine.begin()
    play << Begin
    last = play.now
    while not play.take():
        due = play.engine.next_deadline()
        assert due is not None
        play.tick(due - play.now)
    assert 2.0 <= play.now - last <= 4.0


@pytest.mark.spec("2.4.5")
def test_silence_before_the_peers_open_counts(script):
    play = script(initiator=True)
    play.engine.open()
    play << AMQP_HEADER << Open
    play.tick(5.0)
    play >> AMQP_HEADER >> Open(container_id="server", idle_time_out=4000)
    play.tick(1.0) << EMPTY_FRAME


@pytest.mark.parametrize("idle", [None, 0])
def test_no_keepalive_for_a_peer_without_a_time_out(script, idle):
    play = open_script(script(), idle_time_out=idle)
    assert play.engine.next_deadline() is None


@pytest.mark.spec("2.4.1")
def test_no_keepalive_before_the_peers_open(script):
    # We have opened; until the peer says so, nobody knows of a time-out.
    play = script(initiator=True)
    play.engine.open()
    play << AMQP_HEADER << Open
    play >> AMQP_HEADER
    assert play.engine.next_deadline() == play.now + 10.0
    play.tick(9.9).quiet()


@pytest.mark.spec("2.4.1")
def test_no_keepalive_before_our_open(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> Open(container_id="peer", idle_time_out=1000)
    for _ in range(4):
        play.tick(0.25).quiet()
    play.engine.open()
    play << Open


@pytest.mark.spec("2.4.3")
def test_no_keepalive_after_our_close(script):
    play = open_script(script(), idle_time_out=1000)
    play.engine.close()
    play << Close
    for _ in range(8):
        play.tick(0.25).quiet()


def test_keepalive_goes_on_until_we_answer_the_peers_close(script):
    play = open_script(script(), idle_time_out=1000)
    play >> Close()
    play.tick(0.5) << EMPTY_FRAME


def test_peer_that_does_not_answer_our_close(script):
    play = open_script(script(close_timeout=3.0))
    play.engine.close()
    play << Close
    assert play.engine.next_deadline() == play.now + 3.0
    play.tick(2.9)
    assert play.events() == []
    play.tick(0.1)
    assert play.event(Terminated).error is None
    assert play.engine.next_deadline() is None


def test_close_without_a_bound(script):
    play = open_script(script(close_timeout=None))
    play.engine.close()
    play << Close
    assert play.engine.next_deadline() is None


@pytest.mark.parametrize("initiator", [False, True])
@pytest.mark.parametrize("stage", ["nothing", "header", "open"])
def test_handshake_that_takes_too_long(script, initiator, stage):
    play = script(initiator=initiator, handshake_timeout=5.0)
    if initiator:
        play << AMQP_HEADER
    if stage != "nothing":
        play >> AMQP_HEADER
        play.take()
    if stage == "open":
        # One of the two opens is not the exchange of opens.
        if initiator:
            play.engine.open()
            play << Open
        else:
            play >> Open(container_id="peer")
    play.events()
    play.tick(4.9)
    assert play.events() == []
    play.tick(0.1)
    assert isinstance(play.event(Terminated).error, TransportError)
    if stage != "nothing":
        # A close comes before the end, and an open before a close (AMQP 1.0 §2.4.3).
        if stage != "open" or not initiator:
            play << Open
        play << like(Close, error=condition("amqp:resource-limit-exceeded"))


@pytest.mark.spec("2.4.5")
def test_part_of_a_frame_is_no_sign_of_life(script):
    play = open_script(script(idle_time_out=1.0))
    for byte in EMPTY_FRAME[:7]:
        play.tick(0.2)
        play >> bytes((byte,))
        if not play.engine.opened:
            break
    play << like(Close, error=condition("amqp:resource-limit-exceeded"))
    play.events()


def test_handshake_bound_covers_sasl(script):
    play = script(sasl_mechanisms=["PLAIN"], handshake_timeout=5.0)
    play >> SASL_HEADER << SASL_HEADER
    play.take()
    play.tick(5.0)
    assert isinstance(play.find(Terminated).error, TransportError)


def test_handshake_bound_ends_with_the_handshake(script):
    play = open_script(script(handshake_timeout=5.0))
    assert play.engine.next_deadline() is None


def test_nearest_deadline_comes_first(script):
    play = script(idle_time_out=30.0, handshake_timeout=5.0, close_timeout=3.0)
    start = play.now
    assert play.engine.next_deadline() == start + 5.0
    open_script(play, idle_time_out=4000)
    assert play.engine.next_deadline() == start + 1.0
    play.tick(2.0) << EMPTY_FRAME
    assert play.engine.next_deadline() == start + 3.0
    play.engine.close()
    play << Close
    assert play.engine.next_deadline() == start + 3.0
    play.tick(3.0)
    assert play.engine.finished


def test_time_out_that_was_not_due_changes_nothing(script):
    play = open_script(script(idle_time_out=30.0), idle_time_out=4000)
    play.engine.handle_timeout(play.now + 0.5)
    play.quiet()
    assert play.events() == [] and play.engine.opened


def test_time_out_after_the_end(script):
    play = open_script(script(idle_time_out=1.0))
    play.eof()
    assert isinstance(play.find(Terminated).error, ConnectionClosed)
    play.engine.handle_timeout(play.now + 100)
    assert play.events() == []


def test_peer_that_speaks_is_not_silent(script):
    play = open_script(script(idle_time_out=1.0))
    session = begin_script(play)
    for channel in range(1, 20):
        play.tick(0.9)
        play >> on(channel, peer_begin())
    assert session.mapped and play.engine.opened


# -- time-outs that cannot be kept ------------------------------------------------------------


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize("idle", [1, 49])
@pytest.mark.parametrize("initiator", [False, True])
def test_idle_time_out_that_is_far_too_short(script, initiator, idle):
    play = script(initiator=initiator)
    if initiator:
        play.engine.open()
        play << AMQP_HEADER << Open
        play >> AMQP_HEADER
    else:
        play >> AMQP_HEADER << AMQP_HEADER
    play >> Open(container_id="peer", idle_time_out=idle)
    *before, close = play.take()
    assert [type(item.body) for item in before] == ([] if initiator else [Open])
    assert close.body.error == condition("amqp:invalid-field")
    assert f"{idle} ms" in close.body.error.description
    assert "OpenReceived" not in play.names()
    # Nothing is due but the end of the peer's time to answer.
    assert play.engine.next_deadline() == play.now + 10.0


@pytest.mark.spec("2.4.5")
def test_shortest_idle_time_out_is_kept(script):
    play = open_script(script(), idle_time_out=50)
    last = play.now
    looks = 0
    while play.now < 1001.0:
        due = play.engine.next_deadline()
        assert due is not None
        play.tick(due - play.now)
        looks += 1
        if play.take():
            assert play.now - last <= 0.0251
            last = play.now
    # The timer never fires more often than 80 times a second, whatever the peer asks for.
    assert looks <= 81


@pytest.mark.spec("2.7.1")
def test_announced_time_out_is_never_none_by_rounding(script):
    play = script(idle_time_out=0.0001)
    play >> AMQP_HEADER << AMQP_HEADER
    play.engine.open()
    play << like(Open, idle_time_out=1)


@pytest.mark.spec("2.4.5")
@pytest.mark.parametrize("sent", [False, True])
def test_end_that_was_away_too_long_says_so(script, sent):
    play = open_script(script(), idle_time_out=4000).tick(1.0)
    if sent:
        play.engine.begin()
        play << Begin
    # Nobody has called for twice what the peer asked for, which is all that it allows. When
    # exactly something was sent nobody knows: a second later at the most.
    play.now += 9.0 if sent else 8.0
    play.engine.handle_timeout(play.now)
    play << like(Close, error=condition("amqp:resource-limit-exceeded"))
    play >> Close()
    error = play.find(Terminated).error
    assert isinstance(error, TransportError) and "busy" in str(error)


@pytest.mark.spec("2.4.5")
@pytest.mark.parametrize("sent", [False, True])
def test_end_that_comes_back_in_time(script, sent):
    play = open_script(script(), idle_time_out=4000).tick(1.0)
    if sent:
        play.engine.begin()
        play << Begin
    play.now += 8.9 if sent else 7.9
    play.engine.handle_timeout(play.now)
    play.take()
    assert play.engine.opened


# -- the time of our close --------------------------------------------------------------------


@pytest.mark.parametrize("told", [False, True])
def test_time_to_answer_a_close_counts_from_now(script, told):
    play = open_script(script(close_timeout=3.0))
    read = play.now
    play.now += 60.0
    if told:
        play.engine.close(now=play.now)
        assert play.engine.next_deadline() == play.now + 3.0
    else:
        # Without a clock the engine knows of no later time than that of its input.
        play.engine.close()
        assert play.engine.next_deadline() == read + 3.0
    play << Close
