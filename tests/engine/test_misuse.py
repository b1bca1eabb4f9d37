"""What the caller may not do: it raises, and nothing is sent and nothing has changed."""

from __future__ import annotations

import pytest

from ferrymq.engine import ConnectionSettings
from ferrymq.engine.events import AttachReceived, BeginReceived
from ferrymq.engine.states import ConnectionState, LinkState, SessionState
from ferrymq.errors import EncodeError, LocalProtocolError, Scope
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Attach, Begin, Close, Detach, End, Error, Flow, Role
from tests.support.scenes import begin_script, open_script, peer_attach, peer_begin, receiver_script
from tests.support.script import AMQP_HEADER, encoded, like

LONG = Error(condition="amqp:internal-error", description="x" * 600)


@pytest.fixture
def play(script):
    return open_script(script(), max_frame_size=512)


@pytest.mark.parametrize("size", [0, 511, 1 << 32])
def test_settings_with_a_frame_size_that_cannot_be(size):
    with pytest.raises(ValueError, match="max_frame_size"):
        ConnectionSettings(container_id="c", initiator=True, max_frame_size=size)


@pytest.mark.parametrize("initiator", [False, True])
def test_begin_before_the_open(script, initiator):
    play = script(initiator=initiator)
    state = play.engine.state
    with pytest.raises(LocalProtocolError) as caught:
        play.engine.begin()
    assert caught.value.scope is Scope.CONNECTION
    if initiator:
        play << AMQP_HEADER
    play.quiet()
    assert play.engine.state is state and play.engine.channels.by_local == {}


@pytest.mark.parametrize("closed_by", ["us", "peer"])
def test_begin_after_a_close(play, closed_by):
    if closed_by == "us":
        play.engine.close()
        play << Close
    else:
        play >> Close()
    state = play.engine.state
    with pytest.raises(LocalProtocolError):
        play.engine.begin()
    play.quiet()
    assert play.engine.state is state


def test_session_accepted_twice(play, session):
    with pytest.raises(LocalProtocolError) as caught:
        session.accept()
    assert caught.value.scope is Scope.SESSION
    play.quiet()
    assert session.mapped


def test_own_session_accepted(play):
    session = play.engine.begin()
    play << Begin
    with pytest.raises(LocalProtocolError):
        session.accept()
    play.quiet()
    assert session.state is SessionState.BEGIN_SENT


@pytest.mark.parametrize("state", ["begun by the peer", "ended"])
def test_attach_on_a_session_that_is_not_ours_to_use(play, state):
    if state == "ended":
        session = begin_script(play)
        session.end()
        play << End
    else:
        play >> peer_begin()
        session = play.event(BeginReceived).session
    with pytest.raises(LocalProtocolError) as caught:
        session.attach_sender("a", target=None)
    assert caught.value.scope is Scope.SESSION
    play.quiet()
    assert session.links == {}


def test_name_attached_twice(play, session):
    first = session.attach_sender("a", target=None)
    play << Attach
    with pytest.raises(LocalProtocolError) as caught:
        session.attach_sender("a", target=None)
    assert caught.value.scope is Scope.LINK
    play.quiet()
    assert session.links == {("a", True): first}


def test_link_accepted_twice(play, session):
    link = receiver_script(play, session)
    for answer in (link.accept, lambda: link.refuse(LONG)):
        with pytest.raises(LocalProtocolError):
            answer()
    play.quiet()
    assert link.usable


def test_own_link_accepted(play, session):
    link = session.attach_sender("a", target=None)
    play << Attach
    with pytest.raises(LocalProtocolError):
        link.accept()
    play.quiet()
    assert link.state is LinkState.ATTACH_SENT
    play >> peer_attach("a", 0, Role.RECEIVER)
    with pytest.raises(LocalProtocolError):
        link.accept()
    play.quiet()
    assert link.usable


# -- what does not fit into the peer's frames, or into its type -------------------------


@pytest.mark.spec("2.7.1")
def test_attach_larger_than_the_peers_frames(play, session):
    with pytest.raises(LocalProtocolError) as caught:
        session.attach_sender("a", target=Target(address="q" * 600))
    assert caught.value.condition == "amqp:frame-size-too-small"
    play.quiet()
    assert session.links == {}
    link = session.attach_sender("a", target=Target(address="q"))
    play << like(Attach, handle=0)
    assert link.state is LinkState.ATTACH_SENT


@pytest.mark.spec("2.7.1")
def test_answer_larger_than_the_peers_frames(play, session):
    play >> peer_attach("a", 0, Role.SENDER)
    link = play.event(AttachReceived).link
    with pytest.raises(LocalProtocolError):
        link.accept(properties={"key": "x" * 600})
    play.quiet()
    assert link.state is LinkState.ATTACH_RCVD
    link.refuse(Error(condition="amqp:not-allowed"))
    play << like(Attach, handle=0, target=None) << Detach


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize("scope", list(Scope))
def test_error_larger_than_the_peers_frames_is_cut(play, session, scope):
    link = receiver_script(play, session)
    end = {
        Scope.CONNECTION: play.engine.close,
        Scope.SESSION: session.end,
        Scope.LINK: link.close,
    }[scope]
    end(error=Error(condition="amqp:internal-error", description="x" * 600, info={"k": "v" * 600}))
    (item,) = play.take()
    assert len(encoded(item.body)) <= 512
    assert item.body.error == Error(condition="amqp:internal-error", description="x" * 300)


@pytest.mark.parametrize("scope", list(Scope))
def test_error_that_cannot_be_encoded(play, session, scope):
    link = receiver_script(play, session)
    end = {
        Scope.CONNECTION: play.engine.close,
        Scope.SESSION: session.end,
        Scope.LINK: link.close,
    }[scope]
    with pytest.raises(EncodeError):
        end(error=Error(condition="amqp:internal-error", info={"k": object()}))
    play.quiet()
    assert link.usable and session.mapped and play.engine.opened


def test_properties_that_cannot_be_encoded(play, session):
    with pytest.raises(EncodeError):
        session.attach_receiver("a", source=Source(address="q"), properties={"x": object()})
    play.quiet()
    assert session.links == {}
    session.attach_receiver("a", source=Source(address="q")).set_credit(1)
    play << like(Attach, handle=0) << like(Flow, handle=0)


def test_what_is_over_may_be_ended_again(play, session):
    link = receiver_script(play, session)
    play.engine.close()
    play << Close
    for _ in range(2):
        link.detach()
        link.set_credit(1)
        session.end()
        session.accept()
        play.engine.close()
    play.quiet()
    assert play.engine.state is ConnectionState.CLOSE_SENT
