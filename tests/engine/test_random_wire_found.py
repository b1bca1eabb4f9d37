"""What the play on the random wire found, each as the few frames it comes down to."""

from __future__ import annotations

import pytest

from ferrymq.engine import IncomingDelivery, ReceiverLink
from ferrymq.engine.events import (
    AttachReceived,
    DeliveryAborted,
    DeliveryReceived,
    DetachReceived,
    LinkFailed,
    SettlementReceived,
)
from ferrymq_types.messaging import Accepted, Data, Received, Source
from ferrymq_types.transport import (
    Attach,
    Detach,
    Disposition,
    Flow,
    Role,
    SenderSettleMode,
    Transfer,
)
from tests.support.scenes import (
    begin_script,
    open_script,
    peer_attach,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, encode, like, on

MESSAGE = encode(Data(b"first")) + encode(Data(b"second"))
SECTION = len(encode(Data(b"first")))


def resumed(play, tags: tuple[bytes, ...], complete: bool, **attach) -> ReceiverLink:
    """A receiver link that resumes with deliveries of which everything, or one section, came."""
    unsettled = dict.fromkeys(tags)
    play >> peer_attach("link", 0, Role.SENDER, unsettled=unsettled, **attach)
    link = play.event(AttachReceived).link
    held = {}
    for tag in tags:
        delivery = held[tag] = IncomingDelivery(link, 0, tag, 0)
        delivery.payload = MESSAGE if complete else MESSAGE[:SECTION]
        delivery.complete = complete
    link.resume_from(held)
    link.accept()
    play << like(Attach, role=Role.RECEIVER)
    link.set_credit(10)
    play << like(Flow, link_credit=10)
    return link


@pytest.mark.spec("2.6.13")
def test_after_a_resumed_delivery_was_aborted_the_next_is_whole(play, session):
    resumed(play, (b"a",), complete=False)
    start = Received(section_number=0, section_offset=0)
    play >> on(0, transfer(0, 0, b"a", resume=True, aborted=True, state=start))
    play.event(DeliveryAborted)
    play >> on(0, transfer(0, 1, b"b"), MESSAGE)
    assert play.event(DeliveryReceived).delivery.payload == MESSAGE


@pytest.mark.spec("2.6.13")
def test_after_a_resumed_delivery_that_we_had_the_next_is_whole(play, session):
    resumed(play, (b"a",), complete=True)
    position = Received(section_number=1, section_offset=0)
    play >> on(0, transfer(0, 0, b"a", resume=True, state=position), b"")
    play.event(SettlementReceived)
    play >> on(0, transfer(0, 1, b"b"), MESSAGE)
    assert play.event(DeliveryReceived).delivery.payload == MESSAGE


@pytest.mark.spec("2.6.13")
def test_a_delivery_that_was_resumed_still_has_what_came_before(play, session):
    link = resumed(play, (b"a",), complete=True)
    position = Received(section_number=1, section_offset=0)
    play >> on(0, transfer(0, 0, b"a", resume=True, state=position), MESSAGE[SECTION:])
    delivery = play.event(SettlementReceived).delivery
    assert delivery.payload == MESSAGE and delivery.data() == MESSAGE
    assert link.partial is None


@pytest.mark.spec("2.6.13")
def test_what_we_decide_before_a_delivery_is_resumed_is_said_afterwards(play, session):
    unsettled = {b"a": None}
    play >> peer_attach("link", 0, Role.SENDER, unsettled=unsettled)
    link = play.event(AttachReceived).link
    delivery = IncomingDelivery(link, 0, b"a", 0)
    delivery.payload, delivery.complete = MESSAGE, True
    link.resume_from({b"a": delivery})
    link.accept()
    play << like(Attach, role=Role.RECEIVER)
    link.set_credit(10)
    play << like(Flow, link_credit=10)
    delivery.settle(Accepted())
    play.quiet()
    play >> on(0, transfer(0, 7, b"a", resume=True), MESSAGE)
    play << like(Disposition, role=Role.RECEIVER, first=7, settled=True, state=Accepted())


@pytest.mark.spec("2.8.2")
def test_in_mode_unsettled_a_resumed_delivery_may_be_settled(play, session):
    resumed(play, (b"a",), complete=True, snd_settle_mode=SenderSettleMode.UNSETTLED)
    play >> on(0, transfer(0, 0, b"a", resume=True, settled=True, state=Accepted()))
    assert play.event(SettlementReceived).delivery.remote_settled


@pytest.mark.spec("2.8.2")
def test_in_mode_unsettled_no_frame_may_settle(play, session):
    link = receiver_script(play, session, snd=SenderSettleMode.UNSETTLED)
    play >> on(0, transfer(0, 0, more=True), MESSAGE[:4])
    play >> on(0, transfer(0, 0, settled=True), MESSAGE[4:])
    play << like(Detach, handle=0, error=condition("amqp:not-allowed"))
    assert play.event(LinkFailed).link is link


@pytest.mark.spec("2.8.2")
def test_in_mode_unsettled_a_disposition_settles_what_is_half_sent(script):
    play = open_script(script(), max_frame_size=512)
    session = begin_script(play, incoming_window=0)
    link = sender_script(play, session, credit=0, snd=SenderSettleMode.UNSETTLED)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5, incoming_window=0)
    link.send(bytes(1000), tag=b"a").settle()
    play >> peer_flow(incoming_window=1)
    play << on(0, like(Transfer, delivery_id=0, settled=False, more=True))
    play << like(Disposition, role=Role.SENDER, first=0, settled=True)
    play >> peer_flow(next_incoming_id=1, incoming_window=9)
    play << on(0, like(Transfer, settled=False, more=True))
    play << on(0, like(Transfer, settled=False))
    play.events()


@pytest.mark.spec("2.8.2")
def test_in_mode_unsettled_what_is_settled_while_it_waits_is_sent_unsettled(script):
    play = open_script(script())
    session = begin_script(play, incoming_window=0)
    link = sender_script(play, session, credit=0, snd=SenderSettleMode.UNSETTLED)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5, incoming_window=0)
    link.send(MESSAGE, tag=b"a").settle()
    play.quiet()
    play >> peer_flow(incoming_window=5)
    play << on(0, like(Transfer, delivery_id=0, settled=False), MESSAGE)
    play << like(Disposition, role=Role.SENDER, first=0, settled=True)
    play.events()


@pytest.mark.spec("2.7.3")
def test_what_was_settled_goes_out_before_the_map_that_lacks_it(play, session):
    link = receiver_script(play, session)
    for id in (0, 1):
        play >> on(0, transfer(0, id, bytes((id,))), MESSAGE)
    one, two = (play.event(DeliveryReceived).delivery for _ in range(2))
    link.detach(closed=False)
    play << like(Detach, closed=False)
    one.settle(Accepted())
    again = session.attach_receiver("link", source=Source(address="q"), unsettled={two.tag: two})
    play << like(Disposition, first=0, settled=True, state=Accepted())
    play << like(Attach, name="link")
    assert again.resumption is not None and list(again.resumption.unsettled) == [two.tag]


@pytest.mark.spec("2.6.4")
def test_a_link_attached_again_before_its_detach_was_answered_is_not_closed(play, session):
    receiver_script(play, session)
    play >> Detach(handle=0, closed=False)
    play.event(DetachReceived)
    play >> peer_attach("link", 0, Role.SENDER, unsettled={b"a": None})
    play << like(Detach, closed=False, error=None)
    play.event(AttachReceived)
