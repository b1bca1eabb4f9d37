"""Dispositions of ranges, ours and the peer's (AMQP 1.0 §2.7.6)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import (
    DeliveryReceived,
    DetachReceived,
    OutcomeReceived,
    SettlementReceived,
)
from ferrymq.errors import EncodeError, LocalProtocolError
from ferrymq_types.messaging import Accepted, Modified, Received, Rejected, Released
from ferrymq_types.transport import (
    Detach,
    Disposition,
    End,
    Error,
    Role,
    SenderSettleMode,
    Transfer,
)
from tests.support.scenes import (
    MAX32,
    begin_script,
    open_script,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, like


def receive(play, session, count: int, first: int = 0) -> list:
    for i in range(count):
        play >> transfer(0, (first + i) & MAX32, b"%d" % i)
    return [e.delivery for e in play.events() if isinstance(e, DeliveryReceived)]


def ours(first: int, last: int, state, settled: bool = True) -> Disposition:
    """A disposition that we send as a receiver."""
    return Disposition(role=Role.RECEIVER, first=first, last=last, settled=settled, state=state)


# -- ours -------------------------------------------------------------------------


@pytest.mark.spec("2.7.6")
def test_neighbours_are_joined(play, session):
    receiver_script(play, session)
    for delivery in receive(play, session, 50):
        delivery.settle(Accepted())
    play << ours(0, 49, Accepted())
    assert not session.incoming.unsettled


@pytest.mark.spec("2.7.6")
def test_only_neighbours_are_joined(play, session):
    receiver_script(play, session)
    deliveries = receive(play, session, 6)
    for i in (0, 1, 3, 4, 2):
        deliveries[i].settle(Accepted())
    play << ours(0, 1, Accepted()) << ours(3, 4, Accepted()) << ours(2, 2, Accepted())
    assert list(dict(session.incoming.unsettled.items())) == [5]


def test_only_one_state_is_joined(play, session):
    receiver_script(play, session)
    states = [Accepted(), Accepted(), Released(), Released(), None, None, Accepted()]
    for delivery, state in zip(receive(play, session, 7), states, strict=True):
        delivery.settle(state)
    play << ours(0, 1, Accepted()) << ours(2, 3, Released())
    play << ours(4, 5, None) << ours(6, 6, Accepted())


def test_states_with_content_are_not_joined(play, session):
    receiver_script(play, session)
    deliveries = receive(play, session, 4)
    states = [Accepted(), Modified(delivery_failed=True), Modified(delivery_failed=True),
              Rejected(error=Error(condition="amqp:not-allowed"))]  # fmt: skip
    for delivery, state in zip(deliveries, states, strict=True):
        delivery.settle(state)
    for i, state in enumerate(states):
        play << ours(i, i, state)


def test_settled_and_unsettled_are_not_joined(play, session):
    receiver_script(play, session)
    one, two = receive(play, session, 2)
    one.update(Accepted())
    two.settle(Accepted())
    play << ours(0, 0, Accepted(), settled=False) << ours(1, 1, Accepted())


@pytest.mark.spec("2.8.10")
def test_joined_across_the_wrap(play, session):
    receiver_script(play, session)
    for delivery in receive(play, session, 4, first=MAX32 - 1):
        delivery.settle(Accepted())
    play << ours(MAX32 - 1, 1, Accepted())


def test_settling_twice_is_once(play, session):
    receiver_script(play, session)
    (delivery,) = receive(play, session, 1)
    delivery.settle(Accepted())
    delivery.settle(Released())
    delivery.update(Released())
    play << ours(0, 0, Accepted())


def test_dispositions_go_out_before_the_detach(play, session):
    link = receiver_script(play, session)
    (delivery,) = receive(play, session, 1)
    delivery.settle(Accepted())
    link.detach()
    play << ours(0, 0, Accepted()) << Detach


def test_dispositions_go_out_before_the_end(play, session):
    receiver_script(play, session)
    (delivery,) = receive(play, session, 1)
    delivery.settle(Accepted())
    session.end()
    play << ours(0, 0, Accepted()) << End


@pytest.mark.parametrize("gone", ["link", "session", "connection"])
def test_settling_what_is_gone(play, session, gone):
    link = receiver_script(play, session)
    (delivery,) = receive(play, session, 1)
    if gone == "link":
        link.detach()
    elif gone == "session":
        session.end()
    else:
        play.eof()
    play.take()
    delivery.update(Received(section_number=0, section_offset=0))
    delivery.settle(Accepted())
    play.quiet()


def test_state_that_cannot_be_encoded_changes_nothing(play, session):
    receiver_script(play, session)
    (delivery,) = receive(play, session, 1)
    with pytest.raises(EncodeError):
        delivery.settle(Modified(message_annotations={"x": object()}))
    play.quiet()
    assert not delivery.settled and delivery.state is None
    delivery.settle(Accepted())
    play << ours(0, 0, Accepted())


@pytest.mark.spec("2.7.1")
def test_state_larger_than_a_frame_changes_nothing(script):
    play = open_script(script(), max_frame_size=512)
    session = begin_script(play)
    receiver_script(play, session)
    (delivery,) = receive(play, session, 1)
    state = Rejected(error=Error(condition="amqp:not-allowed", description="x" * 600))
    with pytest.raises(LocalProtocolError):
        delivery.settle(state)
    play.quiet()
    assert not delivery.settled and delivery.state is None


def test_the_same_for_what_we_sent(play, session):
    link = sender_script(play, session)
    delivery = link.send(b"")
    play.take()
    with pytest.raises(EncodeError):
        delivery.settle(Modified(message_annotations={"x": object()}))
    play.quiet()
    assert not delivery.settled and delivery.state is None


@pytest.mark.spec("2.7.6")
def test_senders_settlements_are_joined(play, session):
    link = sender_script(play, session)
    deliveries = [link.send(b"") for _ in range(5)]
    play.take()
    for delivery in deliveries:
        delivery.settle()
    play << Disposition(role=Role.SENDER, first=0, last=4, settled=True)
    assert not session.outgoing.unsettled


def test_sender_settles_with_what_the_receiver_said(play, session):
    link = sender_script(play, session)
    delivery = link.send(b"")
    play.take()
    play >> Disposition(role=Role.RECEIVER, first=0, state=Released())
    assert play.event(OutcomeReceived).delivery is delivery
    delivery.settle()
    play << Disposition(role=Role.SENDER, first=0, last=0, settled=True, state=Released())


# -- the peer's ---------------------------------------------------------------------


def told(play, kind) -> list[int]:
    return [e.delivery.id for e in play.events() if isinstance(e, kind)]


@pytest.fixture
def sent(play, session):
    link = sender_script(play, session)
    deliveries = [link.send(b"") for _ in range(10)]
    play.take()
    return deliveries


@pytest.mark.spec("2.7.6")
@pytest.mark.parametrize(
    ("first", "last", "ids"),
    [
        (3, None, [3]),
        (3, 3, [3]),
        (3, 5, [3, 4, 5]),
        (0, 9, list(range(10))),
        (8, 100, [8, 9]),
        (MAX32, 1, [0, 1]),
        (10, 20, []),
        (0, 0x7FFFFFFF, list(range(10))),
        # By serial arithmetic these end before they begin, so they name nothing.
        (5, 4, []),
        (0, MAX32, []),
    ],
)
def test_range(play, session, sent, first, last, ids):
    play >> Disposition(role=Role.RECEIVER, first=first, last=last, settled=True, state=Accepted())
    assert told(play, OutcomeReceived) == ids
    assert sorted(dict(session.outgoing.unsettled.items())) == sorted(set(range(10)) - set(ids))
    for delivery in sent:
        settled = delivery.id in ids
        assert delivery.remote_settled is settled
        assert delivery.remote_state == (Accepted() if settled else None)


@pytest.mark.spec("2.7.6")
@pytest.mark.parametrize(
    ("first", "last", "ids"),
    [(3, None, [3]), (2, 4, [2, 3, 4]), (0, 0x7FFFFFFF, [0, 1, 2, 3, 4]), (0, MAX32, [])],
)
def test_range_of_the_sender(play, session, first, last, ids):
    receiver_script(play, session)
    deliveries = receive(play, session, 5)
    play >> Disposition(role=Role.SENDER, first=first, last=last, settled=True)
    assert told(play, SettlementReceived) == ids
    for delivery in deliveries:
        assert delivery.remote_settled is (delivery.id in ids)
    assert sorted(dict(session.incoming.unsettled.items())) == sorted(set(range(5)) - set(ids))


def test_widest_ranges_cost_what_is_alive_not_what_they_name(play, session, sent):
    # Were the range walked, each of these would take minutes.
    for first in range(2000):
        play >> Disposition(role=Role.RECEIVER, first=first * 1000, last=first * 1000 + 0x7FFFFFFF)
        play >> Disposition(role=Role.RECEIVER, first=0, last=MAX32)
        play >> Disposition(role=Role.SENDER, first=0, last=0x7FFFFFFF)
    assert len(session.outgoing.unsettled) == 10


def test_state_without_settlement(play, session, sent):
    play >> Disposition(role=Role.RECEIVER, first=0, state=Received(section_number=1,
                                                                     section_offset=5))  # fmt: skip
    delivery = play.event(OutcomeReceived).delivery
    assert isinstance(delivery.remote_state, Received)
    assert not delivery.remote_settled and delivery.id in session.outgoing.unsettled


def test_settlement_without_a_state_keeps_the_earlier_one(play, session, sent):
    play >> Disposition(role=Role.RECEIVER, first=0, state=Accepted())
    play >> Disposition(role=Role.RECEIVER, first=0, settled=True)
    assert sent[0].remote_settled and sent[0].remote_state == Accepted()


@pytest.mark.spec("2.6.12")
def test_what_is_settled_is_forgotten(play, session, sent):
    play >> Disposition(role=Role.RECEIVER, first=0, settled=True, state=Accepted())
    play.events()
    play >> Disposition(role=Role.RECEIVER, first=0, settled=True, state=Released())
    assert play.events() == []
    assert sent[0].remote_state == Accepted()
    sent[0].settle()
    play.quiet()
    assert sent[0].settled


@pytest.mark.parametrize("role", list(Role))
def test_unknown_ids_are_ignored(play, session, role):
    play >> Disposition(role=role, first=77, last=99, settled=True, state=Accepted())
    play.quiet()
    assert play.events() == [] and session.mapped


def test_roles_number_their_deliveries_apart(play, session):
    receiver_script(play, session, "in")
    sender = sender_script(play, session, "out")
    (received,) = receive(play, session, 1)
    delivery = sender.send(b"")
    play.take()
    assert received.id == delivery.id == 0
    play >> Disposition(role=Role.RECEIVER, first=0, settled=True, state=Accepted())
    assert play.names() == ["OutcomeReceived"]
    assert delivery.remote_settled and not received.remote_settled
    play >> Disposition(role=Role.SENDER, first=0, settled=True)
    assert play.names() == ["SettlementReceived"]
    assert received.remote_settled


def test_receiver_may_settle_before_it_has_all_frames(script):
    play = open_script(script(), max_frame_size=512)
    session = begin_script(play)
    link = sender_script(play, session)
    play >> peer_flow(incoming_window=1)
    delivery = link.send(b"x" * 2000)
    play.take()
    play >> Disposition(role=Role.RECEIVER, first=0, settled=True, state=Released())
    assert delivery.remote_settled and not delivery.sent
    play >> peer_flow(next_incoming_id=1, incoming_window=50)
    assert play.take()[-1].body.more is False
    assert delivery.sent


@pytest.mark.spec("2.7.6")
def test_deliveries_of_a_closed_link_are_not_told(play, session, sent):
    link = sent[0].link
    link.detach()
    play << Detach
    play >> Disposition(role=Role.RECEIVER, first=0, last=9, settled=True, state=Accepted())
    assert play.events() == []


@pytest.mark.spec("2.6.4", "2.7.6")
@pytest.mark.parametrize("both", [False, True])
def test_deliveries_of_a_detached_link_are_live(play, session, sent, both):
    link = sent[0].link
    link.detach(closed=False)
    play << Detach
    if both:
        play >> Detach(handle=0)
        play.event(DetachReceived)
        assert session.links == {}
    assert link.unsettled == {delivery.tag: delivery for delivery in sent}
    play >> Disposition(role=Role.RECEIVER, first=0, last=1, settled=True, state=Accepted())
    assert [e.delivery for e in play.events()] == sent[:2]
    assert sent[0].remote_settled and sent[0].remote_state == Accepted()
    # What is settled is no longer there to be resumed.
    assert set(link.unsettled) == {delivery.tag for delivery in sent[2:]}
    sent[2].settle(Released())
    play << like(Disposition, role=Role.SENDER, first=2, settled=True, state=Released())
    assert sent[2].tag not in link.unsettled


@pytest.mark.spec("2.7.6")
@pytest.mark.parametrize(
    "detach",
    [Detach(handle=0, closed=True), Detach(handle=0, error=Error(condition="amqp:not-found"))],
    ids=["closed", "error"],
)
def test_deliveries_of_a_link_that_the_peer_ended_are_not_live(play, session, sent, detach):
    link = sent[0].link
    link.detach(closed=False)
    play << Detach
    play >> detach
    play.event(DetachReceived)
    if detach.closed:
        # The close is confirmed (§2.6.6).
        play.take()
    assert not session.outgoing.unsettled
    play >> Disposition(role=Role.RECEIVER, first=0, last=9, settled=True, state=Accepted())
    assert play.events() == []


@pytest.mark.spec("2.6.4", "2.7.6")
def test_what_we_received_on_a_detached_link_is_live(play, session):
    link = receiver_script(play, session)
    one, two = receive(play, session, 2)
    play.send(Detach(handle=0), Disposition(role=Role.SENDER, first=0, settled=True))
    assert play.event(DetachReceived).closed is False
    assert play.event(SettlementReceived).delivery is one
    link.detach(closed=False)
    play << Detach
    assert link.unsettled == {two.tag: two}
    two.settle(Accepted())
    play << like(Disposition, role=Role.RECEIVER, first=1, settled=True, state=Accepted())
    assert link.unsettled == {} and not session.incoming.unsettled


def test_a_terminus_that_expires_forgets_its_deliveries(play, session, sent):
    link = sent[0].link
    link.detach(closed=False)
    play << Detach
    link.expire()
    assert link.unsettled == {} and not session.outgoing.unsettled
    play >> Disposition(role=Role.RECEIVER, first=0, last=9, settled=True, state=Accepted())
    assert play.events() == []


@pytest.mark.spec("2.6.5")
def test_disposition_for_a_delivery_of_a_failed_link(play, session):
    receiver_script(play, session, snd=SenderSettleMode.UNSETTLED)
    receive(play, session, 1)
    play >> transfer(0, 1, settled=True)
    play << like(Detach, error=condition("amqp:not-allowed"))
    play >> Disposition(role=Role.SENDER, first=0, settled=True)
    play << like(End, error=condition("amqp:session:errant-link"))


@pytest.mark.spec("2.6.5")
def test_delivery_ids_of_a_failed_link_mean_nothing_once_it_is_gone(play, session):
    receiver_script(play, session, snd=SenderSettleMode.UNSETTLED)
    receive(play, session, 1)
    play >> transfer(0, 1, settled=True)
    play << Detach
    play >> Detach(handle=0, closed=True)
    play >> Disposition(role=Role.SENDER, first=0, settled=True)
    play.quiet()
    assert session.mapped


# -- states of the sender -----------------------------------------------------------


@pytest.mark.spec("2.6.12")
def test_sender_states_an_outcome_and_settles_when_it_is_confirmed(play, session, sent):
    sent[0].update(Released())
    play << Disposition(role=Role.SENDER, first=0, last=0, settled=False, state=Released())
    assert session.outgoing.unsettled.find(0) is sent[0] and not sent[0].settled
    play >> Disposition(role=Role.RECEIVER, first=0, settled=False, state=Accepted())
    assert play.event(OutcomeReceived).delivery.remote_state == Accepted()
    # The outcome takes effect at the sender: its own counts.
    sent[0].settle()
    play << like(Disposition, role=Role.SENDER, first=0, settled=True, state=Released())


@pytest.mark.spec("2.7.5")
def test_our_final_state_cannot_be_altered(play, session, sent):
    sent[0].update(Accepted())
    play << Disposition
    sent[0].update(Accepted())
    play.quiet()
    with pytest.raises(LocalProtocolError, match="outcome"):
        sent[0].update(Released())
    with pytest.raises(LocalProtocolError, match="outcome"):
        sent[0].settle(Released())
    play.quiet()
    assert sent[0].state == Accepted() and not sent[0].settled


def test_state_of_a_delivery_that_waits_for_the_window_goes_with_it(script):
    play = open_script(script())
    session = begin_script(play, incoming_window=0)
    link = sender_script(play, session, credit=0)
    play >> peer_flow(incoming_window=0, handle=0, delivery_count=0, link_credit=5)
    play.events()
    delivery = link.send(b"x")
    delivery.update(Released())
    play.quiet()
    play >> peer_flow(incoming_window=5)
    play << like(Transfer, state=Released(), settled=False)


def test_nothing_is_told_of_what_is_settled(play, session, sent):
    sent[0].settle(Accepted())
    play << Disposition
    sent[0].update(Released())
    play >> Disposition(role=Role.RECEIVER, first=1, settled=True, state=Accepted())
    sent[1].update(Released())
    play.quiet()


@pytest.mark.spec("2.7.5")
def test_state_on_any_frame_counts(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, more=True, state=Modified(delivery_failed=True))
    play >> transfer(0, None, None)
    delivery = play.event(DeliveryReceived).delivery
    assert delivery.remote_state == Modified(delivery_failed=True)


@pytest.mark.spec("2.7.5")
def test_the_peers_final_state_is_not_altered(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, more=True, state=Released())
    play >> transfer(0, None, None, state=Accepted())
    delivery = play.event(DeliveryReceived).delivery
    assert delivery.remote_state == Released()
    play >> Disposition(role=Role.SENDER, first=0, settled=False, state=Accepted())
    assert play.event(SettlementReceived).delivery.remote_state == Released()


@pytest.mark.spec("2.7.6")
def test_disposition_for_a_delivery_that_is_still_coming(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, more=True)
    play >> Disposition(role=Role.SENDER, first=0, settled=True, state=Released())
    assert play.events() == []
    play >> transfer(0, None, None)
    delivery = play.event(DeliveryReceived).delivery
    assert delivery.remote_settled and delivery.remote_state == Released()
    assert not session.incoming.unsettled
    delivery.settle(Accepted())
    play.quiet()


def test_dispositions_wait_for_the_output_to_be_taken(play, session):
    receiver_script(play, session)
    deliveries = receive(play, session, 2)
    deliveries[0].settle(Accepted())
    assert play.engine.has_output
    deliveries[1].settle(Accepted())
    play << like(Disposition, first=0, last=1)
    assert not play.engine.has_output
