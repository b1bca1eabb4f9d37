"""What an end may do and ours does, or takes from the peer (§2.5–§2.7)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import (
    AttachReceived,
    BeginReceived,
    CloseReceived,
    DeliveryAborted,
    DeliveryReceived,
    DetachReceived,
    EndReceived,
    OutcomeReceived,
)
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    ReceiverSettleMode,
    Role,
    Transfer,
)
from tests.support.scenes import (
    MAX32,
    peer_attach,
    peer_begin,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, frame, like, on


@pytest.mark.spec("2.7.6")
def test_one_disposition_covers_deliveries_of_many_links(play, session):
    links = [sender_script(play, session, name) for name in "abc"]
    sent = [link.send(b"") for _ in range(2) for link in links]
    play.take()
    play >> Disposition(role=Role.RECEIVER, first=0, last=5, settled=True, state=Accepted())
    assert [e.delivery for e in play.events() if isinstance(e, OutcomeReceived)] == sent


@pytest.mark.spec("2.7.6")
def test_ours_covers_many_links_too(play, session):
    for name in "ab":
        receiver_script(play, session, name)
    play.send(transfer(0, 0), transfer(1, 1), transfer(0, 2, b"b"))
    for event in play.events():
        assert isinstance(event, DeliveryReceived)
        event.delivery.settle(Accepted())
    play << like(Disposition, first=0, last=2, settled=True)


@pytest.mark.spec("2.5.5")
def test_frames_between_the_peers_end_and_ours(play, session):
    link = sender_script(play, session)
    link.send(b"x")
    play >> End()
    # What was written before the end was read still goes.
    play << Transfer
    session.end()
    play << End


@pytest.mark.spec("2.5.6")
@pytest.mark.parametrize("first", [0, 1, 4711, MAX32])
def test_the_peer_begins_with_any_transfer_id(play, first):
    play >> on(0, peer_begin(next_outgoing_id=first))
    session = play.event(BeginReceived).session
    session.accept()
    play << Begin
    receiver_script(play, session)
    play >> transfer(0, 0)
    play.event(DeliveryReceived)
    play >> peer_flow(next_outgoing_id=(first + 1) & MAX32, echo=True)
    play << like(Flow, next_incoming_id=(first + 1) & MAX32)


@pytest.mark.spec("2.6.7")
def test_a_sender_that_announced_nothing_may_send(play, session):
    link = receiver_script(play, session)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=100, available=0)
    play >> transfer(0, 0)
    assert play.find(DeliveryReceived).link is link
    outgoing = sender_script(play, session, "out")
    outgoing.available = 0
    outgoing.send(b"x")
    play << Transfer


@pytest.mark.spec("2.6.10")
def test_credit_of_zero_with_an_echo_is_answered_by_how_many_came(play, session):
    link = sender_script(play, session)
    link.send(b"")
    play << Transfer
    play >> peer_flow(handle=0, delivery_count=0, link_credit=0, echo=True)
    play << like(Flow, handle=link.handle, delivery_count=1, link_credit=0)
    # Nothing more will come.
    assert link.credit == 0


@pytest.mark.spec("2.7.3")
def test_an_initial_delivery_count_of_a_receiver_is_ignored(play, session):
    play >> peer_attach("link", 0, Role.RECEIVER, initial_delivery_count=4711)
    link = play.event(AttachReceived).link
    link.accept()
    play << like(Attach, initial_delivery_count=0)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=2)
    assert link.credit == 2
    play.events()


@pytest.mark.spec("2.7.5")
@pytest.mark.parametrize("fields", [{"tag": b"other"}, {"tag": None, "message_format": 1}])
def test_a_later_frame_does_not_contradict_the_first(play, session, fields):
    receiver_script(play, session)
    play >> transfer(0, 0, b"tag", more=True, message_format=0)
    play >> transfer(0, None, fields.get("tag"), message_format=fields.get("message_format"))
    play << like(End, error=condition("amqp:invalid-field"))
    assert "DeliveryReceived" not in play.names()


@pytest.mark.spec("2.7.5")
def test_a_later_frame_may_repeat_tag_and_format(play, session):
    receiver_script(play, session)
    play >> on(0, transfer(0, 0, b"tag", more=True, message_format=7), b"a")
    play >> on(0, transfer(0, 0, b"tag", message_format=7), b"b")
    assert play.event(DeliveryReceived).delivery.payload == b"ab"


@pytest.mark.spec("2.6.14")
def test_a_delivery_that_was_begun_can_be_given_up(play, session):
    receiver_script(play, session)
    play >> on(0, transfer(0, 0, more=True), b"a")
    play >> transfer(0, None, None, aborted=True)
    assert play.event(DeliveryAborted).delivery.tag == b"tag"


@pytest.mark.spec("2.7.4")
def test_echoes_for_the_same_state(play, session):
    play.send(*[peer_flow(echo=True)] * 3)
    answers = play.take()
    assert 1 <= len(answers) <= 3 and all(isinstance(a.body, Flow) for a in answers)
    assert answers[-1].body.next_outgoing_id == 0


@pytest.mark.spec("2.7.8")
def test_the_error_of_an_end_and_of_a_close_says_what_went_wrong(play, session):
    play >> Detach(handle=5)
    (end,) = play.take()
    assert end.body.error.condition == "amqp:session:unattached-handle"
    assert "5" in end.body.error.description
    play >> End()
    play >> on(9, End())
    (close,) = play.take()
    assert isinstance(close.body, Close) and "9" in close.body.error.description
    play >> Close()


@pytest.mark.spec("2.7.5")
def test_a_transfer_cannot_ask_for_mode_second_on_a_link_with_first(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, rcv_settle_mode=ReceiverSettleMode.SECOND)
    play << like(Detach, closed=True, error=condition("amqp:invalid-field"))
    assert "DeliveryReceived" not in play.names()


@pytest.mark.spec("2.8.14")
def test_conditions_nobody_knows_are_passed_on_as_they_are(play, session):
    error = Error(condition="example:out-of-tea", description="or coffee", info={"cups": 0})
    link = sender_script(play, session)
    play >> Detach(handle=0, error=error)
    told = play.find(DetachReceived)
    assert told.link is link and told.error == error
    play >> End(error=error)
    assert play.find(EndReceived).error == error
    session.end()
    play << End
    play >> Close(error=error)
    assert play.find(CloseReceived).error == error


@pytest.mark.spec("2.8.14")
def test_an_error_without_a_condition_is_malformed(play):
    close = b"\x00\x53\x18\xc0\x05\x01\x00\x53\x1d\x45"
    play >> frame(close)
    play << like(Close, error=condition("amqp:decode-error"))


@pytest.mark.spec("2.6.6")
@pytest.mark.parametrize("sends", [True, False])
def test_a_detach_of_ours_that_crosses_a_close_is_followed_by_attach_and_close(
    play, session, sends
):
    link = (sender_script if sends else receiver_script)(play, session, "link")
    link.detach(closed=False)
    play << like(Detach, handle=link.handle, closed=False)
    # Written before the peer saw ours.
    play >> Detach(handle=0, closed=True)
    role = Role.SENDER if sends else Role.RECEIVER
    play << like(Attach, name="link", role=role) << like(Detach, closed=True, error=None)
    # The peer answers both; its user and ours hear nothing of that.
    play.events()
    play.send(
        peer_attach("link", 0, Role.RECEIVER if sends else Role.SENDER),
        Detach(handle=0, closed=True),
    )
    assert play.events() == [] and session.mapped
    assert session.links == {}
