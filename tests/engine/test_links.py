"""Attach and detach of links: names, handles, refusals (AMQP 1.0 §2.6)."""

from __future__ import annotations

import pytest

from ferrymq.engine import ReceiverLink, SenderLink
from ferrymq.engine.events import AttachReceived, DetachReceived, LinkFailed
from ferrymq.engine.states import LinkState
from ferrymq.errors import LocalProtocolError, RemoteProtocolError
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Role,
)
from tests.support.scenes import (
    MAX32,
    begin_script,
    open_script,
    peer_attach,
    peer_begin,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, like, on

BROKEN = Error(condition="amqp:internal-error", description="it broke")


@pytest.fixture
def play(script):
    return open_script(script(handle_max=5))


@pytest.mark.spec("2.6.3")
def test_peer_attaches_as_sender(play, session):
    play >> peer_attach("a", 4, Role.SENDER, max_message_size=1000)
    link = play.event(AttachReceived).link
    assert isinstance(link, ReceiverLink) and not link.initiated and not link.usable
    link.accept(offered_capabilities=["queue"], max_message_size=99)
    play << Attach(
        name="a",
        handle=0,
        role=Role.RECEIVER,
        source=Source(address="from"),
        target=Target(address="to"),
        max_message_size=99,
        offered_capabilities=["queue"],
    )
    assert link.usable
    assert link.remote_max_message_size == 1000


@pytest.mark.spec("2.6.3")
def test_peer_attaches_as_receiver(play, session):
    play >> peer_attach("a", 4, Role.RECEIVER)
    link = play.event(AttachReceived).link
    assert isinstance(link, SenderLink)
    link.accept(source=Source(address="actual"), properties={"key": "value"})
    play << like(
        Attach,
        role=Role.SENDER,
        source=Source(address="actual"),
        target=Target(address="to"),
        initial_delivery_count=0,
        properties={"key": "value"},
    )


@pytest.mark.spec("2.6.3")
def test_we_attach(play, session):
    sender = session.attach_sender("s", target=Target(address="q"), desired_capabilities=["x"])
    receiver = session.attach_receiver("r", source=Source(address="q"), max_message_size=7)
    play << like(Attach, name="s", handle=0, role=Role.SENDER, initial_delivery_count=0,
                 target=Target(address="q"), desired_capabilities=["x"])  # fmt: skip
    play << like(Attach, name="r", handle=1, role=Role.RECEIVER, initial_delivery_count=None,
                 source=Source(address="q"), max_message_size=7)  # fmt: skip
    assert not sender.usable and not receiver.usable
    play >> peer_attach("r", 0, Role.SENDER, initial_delivery_count=40)
    assert play.event(AttachReceived).link is receiver
    play >> peer_attach("s", 1, Role.RECEIVER)
    assert play.event(AttachReceived).link is sender
    assert sender.usable and receiver.usable
    assert sender.initiated and receiver.delivery_count == 40


@pytest.mark.spec("2.6.1")
def test_one_name_in_both_directions(play, session):
    incoming = receiver_script(play, session, "same")
    outgoing = sender_script(play, session, "same")
    assert incoming is not outgoing
    assert incoming.usable and outgoing.usable
    assert len(session.links) == 2


@pytest.mark.spec("2.6.1", "2.5")
def test_one_name_on_two_sessions_is_one_link(play, session):
    other = begin_script(play, 1)
    first = receiver_script(play, session, "same")
    play >> on(1, peer_attach("same", 3, Role.SENDER))
    # Names belong to the two containers: the link has moved.
    play << like(Detach, handle=0, error=condition("amqp:link:stolen"))
    assert play.event(LinkFailed).link is first
    second = play.event(AttachReceived).link
    second.accept()
    play << on(1, like(Attach, name="same"))
    assert second.usable and not first.usable
    play >> transfer(0, 0) >> Detach(handle=0)
    assert play.event(DetachReceived).link is first
    assert (session.links, other.links) == ({}, {("same", False): second})
    assert play.engine.channels.links == {("same", False): second}


@pytest.mark.spec("2.6.1")
def test_names_of_the_other_direction_are_others(play, session):
    other = begin_script(play, 1)
    first = receiver_script(play, session, "same")
    second = sender_script(play, other, "same")
    assert first.usable and second.usable


@pytest.mark.spec("2.5")
def test_we_attach_no_name_twice_either(play, session):
    other = begin_script(play, 1)
    sender_script(play, session, "same")
    with pytest.raises(LocalProtocolError, match="attached already"):
        other.attach_sender("same", target=None)
    play.quiet()


@pytest.mark.spec("2.6.1")
def test_a_name_is_free_when_its_session_is_gone(play, session):
    other = begin_script(play, 1)
    receiver_script(play, session, "same")
    play >> End()
    session.end()
    play << End
    play.events()
    play >> on(1, peer_attach("same", 0, Role.SENDER))
    play.event(AttachReceived).link.accept()
    play << on(1, Attach)
    assert len(other.links) == 1


@pytest.mark.spec("2.6.1")
def test_a_stolen_link_that_cannot_be_answered_costs_its_own_session(script):
    play = open_script(script())
    session = begin_script(play, handle_max=0)
    other = begin_script(play, 1)
    receiver_script(play, session, "a")
    play >> peer_attach("b", 1, Role.SENDER)
    play.event(AttachReceived)
    play >> on(1, peer_attach("b", 0, Role.SENDER))
    play << like(End, error=condition("amqp:resource-limit-exceeded"))
    play.find(AttachReceived).link.accept()
    play << on(1, Attach)
    assert other.mapped and not session.mapped


@pytest.mark.spec("2.6.4")
def test_we_detach_and_attach_again_without_waiting(play, session):
    old = sender_script(play, session, "a")
    old.detach(closed=False)
    new = session.attach_sender("a", target=Target(address="other"))
    play << Detach << like(Attach, name="a", handle=1)
    play >> Detach(handle=0)
    assert play.event(DetachReceived).link is old
    play >> peer_attach("a", 0, Role.RECEIVER, target=Target(address="other"))
    assert play.event(AttachReceived).link is new
    assert new.usable and session.links == {("a", True): new}


def test_links_of_both_sides_with_one_name_are_one_link(play, session):
    ours = session.attach_sender("a", target=None)
    play >> peer_attach("a", 0, Role.RECEIVER)
    play << Attach
    assert play.event(AttachReceived).link is ours
    assert ours.usable


@pytest.mark.spec("2.6.4")
def test_peer_closes_the_link(play, session):
    link = receiver_script(play, session)
    play >> Detach(handle=0, closed=True, error=BROKEN)
    gone = play.event(DetachReceived)
    assert (gone.link, gone.closed, gone.error) == (link, True, BROKEN)
    assert link.state is LinkState.DETACH_RCVD and not link.usable
    link.close()
    play << Detach(handle=0, closed=True)
    assert session.links == {} and link.state is LinkState.DETACHED
    link.close()
    play.quiet()


@pytest.mark.spec("2.6.4")
def test_peer_suspends_the_link(play, session):
    link = receiver_script(play, session)
    play >> Detach(handle=0)
    assert play.event(DetachReceived).closed is False
    link.detach(closed=False)
    play << Detach(handle=0, closed=False)


@pytest.mark.spec("2.6.4")
def test_we_close_the_link(play, session):
    link = receiver_script(play, session)
    link.close(BROKEN)
    play << Detach(handle=0, closed=True, error=BROKEN)
    assert link.state is LinkState.DETACH_SENT and not link.usable
    play >> transfer(0, 0) >> peer_flow(handle=0, echo=True)
    play.quiet()
    play >> Detach(handle=0, closed=True)
    assert play.event(DetachReceived).link is link
    assert session.links == {}


def test_both_detach_at_once(play, session):
    link = receiver_script(play, session)
    link.detach()
    play >> Detach(handle=0, closed=True)
    play << Detach
    assert link.state is LinkState.DETACHED
    assert play.names() == ["DetachReceived"]


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize("role", list(Role))
def test_refusal(play, session, role):
    play >> peer_attach("a", 3, role)
    link = play.event(AttachReceived).link
    link.refuse(Error(condition="amqp:not-found", description="no such queue"))
    # The terminus that was asked of us is the null one.
    null = "target" if role is Role.SENDER else "source"
    play << like(Attach, name="a", **{null: None})
    play << Detach(
        handle=0, closed=True, error=Error(condition="amqp:not-found", description="no such queue")
    )
    assert not link.usable
    play >> Detach(handle=3, closed=True)
    assert session.links == {}


@pytest.mark.spec("2.6.3")
def test_peer_refuses(play, session):
    link = session.attach_sender("a", target=Target(address="q"))
    play << Attach
    play.send(
        peer_attach("a", 0, Role.RECEIVER, target=None),
        Detach(handle=0, closed=True, error=Error(condition="amqp:not-found")),
    )
    attached = play.event(AttachReceived)
    assert attached.link is link and link.remote_attach.target is None
    assert play.event(DetachReceived).error == condition("amqp:not-found")
    link.detach()
    play << Detach


# -- handles --------------------------------------------------------------------


@pytest.mark.spec("2.6.2")
def test_handles_are_used_again(play, session):
    for _ in range(3):
        link = receiver_script(play, session, handle=5)
        assert link.handle == 0
        play >> Detach(handle=5, closed=True)
        link.detach()
        play << Detach
        play.events()


@pytest.mark.spec("2.6.2")
def test_lowest_handle_is_taken(play, session):
    links = [session.attach_sender(name, target=None) for name in "abc"]
    assert [link.handle for link in links] == [0, 1, 2]
    play.take()
    play >> peer_attach("b", 0, Role.RECEIVER) >> Detach(handle=0)
    links[1].detach()
    assert session.attach_sender("d", target=None).handle == 1
    play.take()


@pytest.mark.spec("2.7.3")
def test_handle_in_use(play, session):
    receiver_script(play, session, "a", handle=3)
    play >> peer_attach("b", 3, Role.SENDER)
    play << like(End, error=condition("amqp:session:handle-in-use"))


@pytest.mark.spec("2.7.2")
@pytest.mark.parametrize("handle", [6, MAX32])
def test_handle_above_our_handle_max(play, session, handle):
    play >> peer_attach("a", handle, Role.SENDER)
    play << like(Close, error=condition("amqp:connection:framing-error"))


@pytest.mark.spec("2.8.17")
@pytest.mark.parametrize(
    "performative",
    [transfer(2, 0), peer_flow(handle=2), Detach(handle=2)],
    ids=["transfer", "flow", "detach"],
)
def test_unattached_handle(play, session, performative):
    play >> performative
    play << like(End, error=condition("amqp:session:unattached-handle"))


def test_handle_is_unattached_after_the_peers_detach(play, session):
    receiver_script(play, session)
    play.send(Detach(handle=0), Detach(handle=0))
    play << like(End, error=condition("amqp:session:unattached-handle"))


@pytest.mark.spec("2.7.2")
def test_peers_handle_max_binds_us(script):
    play = open_script(script())
    session = begin_script(play, handle_max=0)
    session.attach_sender("a", target=None)
    play << Attach
    with pytest.raises(LocalProtocolError):
        session.attach_sender("b", target=None)
    play.quiet()
    assert list(session.links) == [("a", True)]


def test_no_handle_left_to_answer_with(script):
    play = open_script(script())
    session = begin_script(play, handle_max=0)
    receiver_script(play, session, "a")
    play >> peer_attach("b", 1, Role.SENDER)
    link = play.event(AttachReceived).link
    with pytest.raises(LocalProtocolError):
        link.accept()
    play.quiet()
    assert link.state is LinkState.ATTACH_RCVD


# -- the same name again ------------------------------------------------------------


@pytest.mark.spec("2.6.1")
def test_peer_attaches_a_name_again(play, session):
    old = receiver_script(play, session, "a", handle=0)
    play >> peer_attach("a", 1, Role.SENDER)
    play << like(Detach, handle=0, error=condition("amqp:link:stolen"))
    failed = play.event(LinkFailed)
    assert failed.link is old and isinstance(failed.error, RemoteProtocolError)
    new = play.event(AttachReceived).link
    assert new is not old and not old.usable
    new.accept()
    play << like(Attach, name="a", handle=1)
    assert session.links == {("a", False): new}
    # The stolen link is still answered by the peer, on its own handle.
    play >> transfer(0, 0) >> Detach(handle=0, closed=True)
    assert play.event(DetachReceived).link is old
    assert session.links == {("a", False): new}
    new.set_credit(1)
    play << Flow
    play >> transfer(1, 1, b"t")
    assert play.names() == ["DeliveryReceived"]


def test_name_again_before_our_answer(play, session):
    play.send(peer_attach("a", 0, Role.SENDER), peer_attach("a", 1, Role.SENDER))
    play << like(Attach, handle=0) << like(Detach, handle=0, error=condition("amqp:link:stolen"))
    old = play.event(AttachReceived).link
    # Answers to what is over do no harm.
    old.accept()
    old.refuse(BROKEN)
    old.detach()
    play.quiet()
    play.event(LinkFailed)
    play.event(AttachReceived).link.accept()
    play << like(Attach, handle=1)


def test_name_again_after_a_detach_that_we_have_not_answered(play, session):
    old = receiver_script(play, session, "a", handle=0)
    play.send(Detach(handle=0, closed=True), peer_attach("a", 0, Role.SENDER))
    # Nobody stole anything: the old link is answered and gone.
    play << Detach(handle=0, closed=True)
    assert play.event(DetachReceived).link is old
    old.detach()
    new = play.event(AttachReceived).link
    new.accept()
    play << Attach
    assert new.usable and play.events() == []


def test_name_again_after_our_detach(play, session):
    old = receiver_script(play, session, "a", handle=0)
    old.detach()
    play << Detach
    play >> peer_attach("a", 1, Role.SENDER)
    new = play.event(AttachReceived).link
    new.accept()
    play << Attach
    play >> Detach(handle=0)
    assert play.event(DetachReceived).link is old
    assert new.usable and session.links == {("a", False): new}


def test_stolen_link_that_cannot_be_answered_costs_the_session(script):
    play = open_script(script())
    session = begin_script(play, handle_max=0)
    receiver_script(play, session, "a")
    play.send(peer_attach("b", 1, Role.SENDER), peer_attach("b", 2, Role.SENDER))
    play << like(End, error=condition("amqp:resource-limit-exceeded"))
    assert play.engine.opened


# -- attach of a sender ---------------------------------------------------------------


@pytest.mark.spec("2.7.3")
def test_sender_must_tell_its_initial_delivery_count(play, session):
    play >> Attach(name="a", handle=0, role=Role.SENDER, source=None, target=None)
    play << like(End, error=condition("amqp:invalid-field"))


@pytest.mark.spec("2.7.3")
def test_initial_delivery_count_is_taken_over(play, session):
    link = receiver_script(play, session, initial_delivery_count=MAX32)
    assert link.delivery_count == MAX32
    play >> transfer(0, 0)
    assert link.delivery_count == 0


def test_answer_to_a_session_that_is_gone(play, session):
    play.send(peer_attach("a", 0, Role.SENDER), End())
    link = play.event(AttachReceived).link
    link.accept()
    link.refuse(BROKEN)
    link.detach()
    play.quiet()
    session.end()
    play << End


def test_links_work_only_while_the_session_is_mapped(play, session):
    link = receiver_script(play, session)
    session.end()
    play << End
    assert not link.usable
    link.set_credit(5)
    link.drain_credit()
    link.detach()
    play.quiet()
    with pytest.raises(LocalProtocolError):
        session.attach_sender("b", target=None)


def test_we_attach_before_the_begin_is_answered(script):
    play = open_script(script(initiator=True))
    session = play.engine.begin()
    link = session.attach_receiver("a", source=Source(address="q"))
    link.set_credit(10)
    (
        play
        << Begin
        << Attach
        << Flow(
            next_incoming_id=None,
            incoming_window=2048,
            next_outgoing_id=0,
            outgoing_window=0x7FFFFFFF,
            handle=0,
            delivery_count=None,
            link_credit=10,
        )
    )
    play >> on(9, peer_begin(0)) >> on(9, peer_attach("a", 4, Role.SENDER))
    play >> on(9, transfer(4, 0))
    assert play.names() == ["BeginReceived", "AttachReceived", "DeliveryReceived"]
