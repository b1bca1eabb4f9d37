"""Begin and end of sessions, and their channels (AMQP 1.0 §2.5)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import (
    BeginReceived,
    EndReceived,
    SessionTerminated,
    Terminated,
)
from ferrymq.engine.states import SessionState
from ferrymq.errors import LocalProtocolError, RemoteProtocolError, Scope
from ferrymq_types.transport import Begin, Close, End, Error
from tests.support.scenes import (
    begin_script,
    open_script,
    peer_begin,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, like, on

BROKEN = Error(condition="amqp:internal-error", description="it broke")


@pytest.fixture
def server(script):
    return open_script(script(channel_max=3, handle_max=9, incoming_window=50))


@pytest.fixture
def client(script):
    return open_script(script(initiator=True, channel_max=3))


@pytest.mark.spec("2.5.1")
def test_peer_begins(server):
    server >> on(2, peer_begin())
    session = server.event(BeginReceived).session
    assert not session.initiated and not session.mapped
    session.accept()
    server << on(
        0,
        Begin(
            remote_channel=2,
            next_outgoing_id=0,
            incoming_window=50,
            outgoing_window=0x7FFFFFFF,
            handle_max=9,
        ),
    )
    assert session.mapped


@pytest.mark.spec("2.5.1")
def test_we_begin(client):
    session = client.engine.begin()
    client << on(0, like(Begin, remote_channel=None))
    assert session.state is SessionState.BEGIN_SENT
    client >> on(3, peer_begin(0))
    assert client.event(BeginReceived).session is session
    assert session.initiated and session.mapped


@pytest.mark.spec("2.5.3")
def test_peer_ends(server):
    session = begin_script(server, 1)
    link = receiver_script(server, session)
    server >> on(1, End(error=BROKEN))
    ended = server.event(EndReceived)
    assert (ended.session, ended.error) == (session, BROKEN)
    assert not session.mapped and not link.usable and session.links == {}
    session.end()
    server << on(0, End())
    assert server.event(SessionTerminated).session is session


@pytest.mark.spec("2.5.3")
def test_we_end(server):
    session = begin_script(server, 1)
    session.end()
    session.end()
    server << on(0, End())
    assert session.state is SessionState.END_SENT
    server >> on(1, End())
    assert server.names() == ["EndReceived", "SessionTerminated"]


@pytest.mark.spec("2.5.3")
def test_simultaneous_end(server):
    session = begin_script(server, 1)
    session.end(BROKEN)
    server >> on(1, End())
    server << on(0, End(error=BROKEN))
    assert session.state is SessionState.UNMAPPED
    assert server.names() == ["EndReceived", "SessionTerminated"]


@pytest.mark.spec("2.5.5")
def test_frames_on_their_way_when_we_ended_are_discarded(server):
    session = begin_script(server)
    receiver_script(server, session)
    session.end(BROKEN)
    server << End
    assert session.state is SessionState.DISCARDING
    server >> transfer(0, 0) >> transfer(77, 0) >> peer_flow(echo=True, handle=9)
    server >> End()
    assert server.names() == ["EndReceived", "SessionTerminated"]
    assert server.engine.opened


@pytest.mark.spec("2.5.2")
def test_channels_are_used_again(server):
    for _ in range(3):
        session = begin_script(server, 3)
        assert session.channel == 0
        server >> on(3, End())
        session.end()
        server << on(0, End())
        server.events()


def test_lowest_channel_is_taken(client):
    sessions = [client.engine.begin() for _ in range(3)]
    assert [s.channel for s in sessions] == [0, 1, 2]
    client << on(0, Begin) << on(1, Begin) << on(2, Begin)
    client >> on(0, peer_begin(1))
    sessions[1].end()
    client << on(1, End)
    client >> on(0, End())
    assert client.engine.begin().channel == 1
    client << on(1, Begin)


def test_a_channel_is_used_again_as_late_as_possible(script):
    """RabbitMQ has left a begin unanswered on a channel right behind its ends."""
    client = open_script(script(initiator=True, channel_max=3))
    client.engine.channels.numbers.spread = True
    sessions = [client.engine.begin() for _ in range(3)]
    assert [s.channel for s in sessions] == [0, 1, 2]
    client << on(0, Begin) << on(1, Begin) << on(2, Begin)
    client >> on(0, peer_begin(1)) >> on(1, peer_begin(0))
    for channel in (1, 0):
        sessions[channel].end()
        client << on(channel, End)
        client >> on(0 if channel else 1, End())
    assert [client.engine.begin().channel for _ in range(3)] == [3, 1, 0]
    client << on(3, Begin) << on(1, Begin) << on(0, Begin)
    with pytest.raises(LocalProtocolError, match="all channels up to 3 are in use"):
        client.engine.begin()


@pytest.mark.spec("2.7.1")
def test_peers_channel_max_binds_us(script):
    play = open_script(script(initiator=True, channel_max=100), channel_max=1)
    play.engine.begin()
    play.engine.begin()
    play << Begin << on(1, Begin)
    with pytest.raises(LocalProtocolError) as caught:
        play.engine.begin()
    assert caught.value.scope is Scope.CONNECTION
    play.quiet()
    assert len(play.engine.channels.by_local) == 2


@pytest.mark.spec("2.7.1")
def test_channel_above_our_channel_max(server):
    server >> on(4, peer_begin()) << like(Close, error=condition("amqp:connection:framing-error"))


def test_begin_on_a_channel_in_use(server):
    begin_script(server, 2)
    server >> on(2, peer_begin()) << like(Close, error=condition("amqp:illegal-state"))


def test_no_channel_left_to_answer_on(script):
    play = open_script(script(channel_max=5), channel_max=0)
    begin_script(play, 0)
    play >> on(1, peer_begin())
    play << like(Close, error=condition("amqp:resource-limit-exceeded"))


@pytest.mark.spec("2.7.2")
@pytest.mark.parametrize("remote_channel", [0, 1, 9, 0xFFFF])
def test_answer_to_a_begin_that_was_never_sent(client, remote_channel):
    if remote_channel == 0:
        client.engine.begin()
        client << Begin
        client >> on(2, peer_begin(0))
    client >> on(1, peer_begin(remote_channel))
    client << like(Close, error=condition("amqp:not-found"))


def test_peer_answers_its_own_begin(server):
    begin_script(server, 0)
    server >> on(1, peer_begin(0)) << like(Close, error=condition("amqp:not-found"))


def test_frame_on_a_channel_after_its_end(server):
    session = begin_script(server)
    server >> End() >> peer_flow()
    server << like(Close, error=condition("amqp:connection:framing-error"))
    assert not session.mapped


def test_failed_session_is_reported_at_once_and_ends_quietly(server):
    session = begin_script(server)
    link = sender_script(server, session)
    server >> peer_flow(handle=42)
    server << like(End, error=condition("amqp:session:unattached-handle"))
    failed = server.event(SessionTerminated)
    assert failed.session is session
    assert isinstance(failed.error, RemoteProtocolError)
    assert not link.usable
    session.end()
    server >> End()
    assert server.events() == []
    assert server.engine.channels.by_local == {}
    begin_script(server)


def test_sessions_do_not_disturb_each_other(server):
    one = begin_script(server, 1)
    two = begin_script(server, 2)
    server >> on(1, transfer(9, 0)) << on(0, End)
    server.events()
    assert two.mapped and not one.mapped
    receiver_script(server, two)
    server >> on(2, transfer(0, 0), b"x")
    assert server.names() == ["DeliveryReceived"]


def test_connection_that_ends_loses_all_sessions(server):
    sessions = [begin_script(server, i) for i in range(3)]
    server.eof()
    events = server.events()
    assert [e.session for e in events if isinstance(e, SessionTerminated)] == sessions
    assert isinstance(events[-1], Terminated)
    for session in sessions:
        session.accept()
        session.end()
    server.quiet()
