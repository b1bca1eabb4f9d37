"""Session windows and transfer-ids, in both directions (AMQP 1.0 §2.5.6)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import CreditReceived, DeliveryReceived, SessionTerminated
from ferrymq.errors import RemoteProtocolError
from ferrymq_types.transport import Begin, End, Flow, Transfer
from tests.support.scenes import (
    MAX32,
    begin_script,
    open_script,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, like, on

# -- what the peer may send -----------------------------------------------------


@pytest.fixture
def narrow(script):
    """A server that takes four frames at a time."""
    return open_script(script(incoming_window=4))


@pytest.mark.spec("2.5.6")
def test_window_is_opened_again_when_it_is_half_used(narrow):
    session = begin_script(narrow)
    receiver_script(narrow, session)
    narrow >> transfer(0, 0)
    narrow.quiet()
    narrow >> transfer(0, 1)
    narrow << like(Flow, handle=None, next_incoming_id=2, incoming_window=4)
    narrow >> transfer(0, 2)
    narrow.quiet()


@pytest.mark.spec("2.5.6")
def test_whole_window_in_one_read(narrow):
    session = begin_script(narrow)
    receiver_script(narrow, session)
    narrow.send(*[transfer(0, i) for i in range(4)])
    narrow << like(Flow, next_incoming_id=4, incoming_window=4)
    assert narrow.names() == ["DeliveryReceived"] * 4


@pytest.mark.spec("2.5.6")
def test_transfer_beyond_the_window(narrow):
    session = begin_script(narrow)
    receiver_script(narrow, session)
    narrow.send(*[transfer(0, i) for i in range(5)])
    narrow << like(End, error=condition("amqp:session:window-violation"))
    assert narrow.names() == ["DeliveryReceived"] * 4 + ["SessionTerminated"]


@pytest.mark.spec("2.5.6")
def test_every_frame_counts_not_every_delivery(narrow):
    session = begin_script(narrow)
    receiver_script(narrow, session)
    narrow.send(
        transfer(0, 0, more=True),
        transfer(0, None, None, more=True),
        transfer(0, None, None, more=True),
        transfer(0, None, None, aborted=True),
        transfer(0, 1),
    )
    narrow << like(End, error=condition("amqp:session:window-violation"))


@pytest.mark.spec("2.5.6")
def test_frames_for_a_link_that_we_detached_count_too(narrow):
    session = begin_script(narrow)
    link = receiver_script(narrow, session)
    link.detach()
    narrow.take()
    narrow.send(transfer(0, 0), transfer(0, 1))
    narrow << like(Flow, next_incoming_id=2, incoming_window=4)
    assert narrow.events() == []


def test_a_flow_for_other_reasons_opens_the_window_as_well(narrow):
    session = begin_script(narrow)
    link = receiver_script(narrow, session)
    narrow.send(transfer(0, 0), transfer(0, 1))
    link.set_credit(50)
    narrow << like(Flow, handle=0, next_incoming_id=2, incoming_window=4)
    narrow.quiet()


@pytest.mark.spec("2.8.10")
def test_incoming_ids_wrap(narrow):
    session = begin_script(narrow, next_outgoing_id=MAX32)
    receiver_script(narrow, session)
    narrow.send(transfer(0, MAX32), transfer(0, 0))
    narrow << like(Flow, next_incoming_id=1, incoming_window=4)
    first, second = (e.delivery for e in narrow.events() if isinstance(e, DeliveryReceived))
    assert (first.id, second.id) == (MAX32, 0)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_smallest_windows(script, window):
    play = open_script(script(incoming_window=window))
    session = begin_script(play)
    receiver_script(play, session)
    got = 0
    for i in range(10):
        play >> transfer(0, i)
        got += len(play.names())
        play.take()
    assert got == 10
    assert session.mapped


# -- what we may send -------------------------------------------------------------


@pytest.mark.spec("2.5.6")
def test_what_the_window_does_not_admit_waits_in_order(script):
    play = open_script(script())
    session = begin_script(play, incoming_window=2)
    link = sender_script(play, session)
    # The flow that gave the credit opened the window too: close it to two.
    play >> peer_flow(next_incoming_id=0, incoming_window=2)
    deliveries = [link.send(b"%d" % i) for i in range(5)]
    play << on(0, like(Transfer, delivery_id=0), b"0") << on(0, like(Transfer, delivery_id=1), b"1")
    play.quiet()
    assert [d.sent for d in deliveries] == [True, True, False, False, False]
    assert link.parked == 3
    play >> peer_flow(next_incoming_id=2, incoming_window=1)
    play << on(0, like(Transfer, delivery_id=2), b"2")
    play.quiet()
    play >> peer_flow(next_incoming_id=3, incoming_window=9)
    play << on(0, like(Transfer, delivery_id=3), b"3") << on(0, like(Transfer, delivery_id=4), b"4")
    assert link.parked == 0
    assert all(d.sent for d in deliveries)


@pytest.mark.spec("2.5.6")
def test_frames_under_way_are_subtracted_from_the_window(script):
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session)
    for _ in range(3):
        link.send(b"")
    play.take()
    # The peer has seen one of the three and admits three from there.
    play >> peer_flow(next_incoming_id=1, incoming_window=3)
    link.send(b"3")
    link.send(b"4")
    play << on(0, like(Transfer, delivery_id=3), b"3")
    play.quiet()


def test_window_taken_back_below_what_is_under_way(script):
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session)
    for _ in range(3):
        link.send(b"")
    play.take()
    play >> peer_flow(next_incoming_id=1, incoming_window=0)
    link.send(b"3")
    play.quiet()
    play >> peer_flow(next_incoming_id=3, incoming_window=1) << on(0, Transfer, b"3")


@pytest.mark.spec("2.5.6")
def test_peer_that_has_not_seen_our_begin_counts_from_our_initial_id(script):
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session)
    link.send(b"0")
    link.send(b"1")
    play.take()
    play >> peer_flow(next_incoming_id=None, incoming_window=3)
    link.send(b"2")
    link.send(b"3")
    play << on(0, Transfer, b"2")
    play.quiet()
    play >> peer_flow(next_incoming_id=3, incoming_window=1) << on(0, Transfer, b"3")


@pytest.mark.spec("2.5.6")
def test_delivery_stops_in_the_middle_and_goes_on(script):
    play = open_script(script(), max_frame_size=512)
    session = begin_script(play)
    link = sender_script(play, session)
    play >> peer_flow(incoming_window=2)
    body = bytes(range(256)) * 8
    delivery = link.send(body)
    later = link.send(b"later")
    frames = play.take()
    assert len(frames) == 2 and all(f.body.more for f in frames)
    assert not delivery.sent
    play >> peer_flow(next_incoming_id=2, incoming_window=1)
    frames += play.take()
    assert len(frames) == 3
    play >> peer_flow(next_incoming_id=3, incoming_window=50)
    rest = play.take()
    assert b"".join(f.payload for f in frames + rest[:-1]) == body
    assert not rest[-2].body.more
    assert rest[-1].payload == b"later"
    assert delivery.sent and later.sent


@pytest.mark.spec("2.7.5")
def test_delivery_ids_have_no_gap_when_a_waiting_delivery_is_dropped(script):
    play = open_script(script())
    session = begin_script(play)
    one = sender_script(play, session, "one")
    two = sender_script(play, session, "two")
    play >> peer_flow(incoming_window=1)
    one.send(b"sent")
    dropped = one.send(b"dropped")
    waiting = two.send(b"waiting")
    play << on(0, like(Transfer, delivery_id=0), b"sent")
    one.detach()
    play.take()
    play >> peer_flow(next_incoming_id=1, incoming_window=5)
    play << on(0, like(Transfer, handle=two.handle, delivery_id=1), b"waiting")
    assert not dropped.sent and waiting.sent


def test_waiting_delivery_may_be_settled_before_it_goes(script):
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session)
    play >> peer_flow(incoming_window=0)
    delivery = link.send(b"waiting")
    delivery.settle()
    play.quiet()
    play >> peer_flow(incoming_window=5)
    play << on(0, like(Transfer, settled=True), b"waiting")
    assert not session.outgoing.unsettled


@pytest.mark.spec("2.8.10")
def test_outgoing_ids_wrap(script):
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session)
    session.outgoing.next_id = MAX32
    session.outgoing.next_delivery_id = MAX32
    play >> peer_flow(next_incoming_id=MAX32, incoming_window=2)
    for i in range(3):
        link.send(b"%d" % i)
    play << on(0, like(Transfer, delivery_id=MAX32), b"0")
    play << on(0, like(Transfer, delivery_id=0), b"1")
    play.quiet()
    play >> peer_flow(next_incoming_id=1, incoming_window=1)
    play << on(0, like(Transfer, delivery_id=1), b"2")
    session._send_flow()
    play << like(Flow, next_outgoing_id=2)


@pytest.mark.parametrize("window", [0, 1, MAX32])
def test_any_window_may_be_announced(script, window):
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session)
    play >> peer_flow(next_incoming_id=0, incoming_window=window)
    link.send(b"x")
    assert len(play.take()) == min(window, 1)


def test_an_acknowledgement_of_what_was_never_sent_opens_no_endless_window(script):
    play = open_script(script())
    session = begin_script(play)
    sender_script(play, session)
    play >> peer_flow(next_incoming_id=0x7FFFFFFF, incoming_window=1)
    assert session.outgoing.remote_window >= 0
    assert session.mapped


# -- flows of the session -----------------------------------------------------------


@pytest.mark.spec("2.7.4")
def test_echo_of_a_session_flow(script):
    play = open_script(script(incoming_window=10))
    session = begin_script(play, next_outgoing_id=7)
    play >> peer_flow(next_outgoing_id=7, echo=True)
    play << Flow(
        next_incoming_id=7, incoming_window=10, next_outgoing_id=0, outgoing_window=0x7FFFFFFF
    )
    play >> peer_flow(next_outgoing_id=7)
    play.quiet()
    assert session.mapped


@pytest.mark.spec("2.5.6")
def test_a_flow_tells_what_the_peer_will_send_next_and_how_much(script):
    play = open_script(script())
    session = begin_script(play, next_outgoing_id=7, outgoing_window=50)
    incoming = session.incoming
    assert (incoming.next_id, incoming.remote_outgoing_window) == (7, 50)
    receiver_script(play, session)
    play >> transfer(0, 0) >> transfer(0, 1)
    assert (incoming.next_id, incoming.remote_outgoing_window) == (9, 48)
    # Whatever we had reckoned, the flow counts, past the wrap too.
    play >> peer_flow(next_outgoing_id=MAX32, outgoing_window=3)
    assert (incoming.next_id, incoming.remote_outgoing_window) == (MAX32, 3)
    play >> transfer(0, 2)
    assert (incoming.next_id, incoming.remote_outgoing_window) == (0, 2)
    play >> peer_flow(next_outgoing_id=0, outgoing_window=3, echo=True)
    play << like(Flow, next_incoming_id=0)


def test_session_flow_is_no_news(script):
    play = open_script(script())
    begin_script(play)
    play >> peer_flow()
    assert play.events() == []


def test_credit_of_a_flow_counts_beside_its_window(script):
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session, credit=0)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5, incoming_window=0)
    assert play.event(CreditReceived).link.credit == 5
    link.send(b"x")
    play.quiet()
    play >> peer_flow(incoming_window=1) << Transfer


def test_violation_is_told_with_its_session(script):
    play = open_script(script(incoming_window=1))
    session = begin_script(play)
    receiver_script(play, session)
    play.send(transfer(0, 0), transfer(0, 1))
    play << End
    error = play.find(SessionTerminated).error
    assert isinstance(error, RemoteProtocolError)
    assert error.condition == "amqp:session:window-violation"


def test_our_begin_announces_the_setting(script):
    play = open_script(script(initiator=True, incoming_window=77))
    play.engine.begin()
    play << like(Begin, incoming_window=77)
