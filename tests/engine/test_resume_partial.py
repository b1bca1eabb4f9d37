"""Resuming with incomplete maps, and which tags a resumed link makes (§2.6.13, §2.7.3)."""

from __future__ import annotations

import pytest

from ferrymq.engine import IncomingDelivery, OutgoingDelivery, SenderLink
from ferrymq.engine.events import (
    AttachReceived,
    DeliveryAborted,
    DeliveryReceived,
    SettlementReceived,
)
from ferrymq.errors import LocalProtocolError
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import ReceiverSettleMode, Role
from tests.engine.test_resume import Pair, incoming, outgoing
from tests.support.scenes import begin_script, open_script, peer_attach, peer_flow

BODY = b"\x00\x53\x77\x40"


def tag(number: int) -> bytes:
    return bytes([number]) * 30


def partial() -> tuple[Pair, dict[bytes, OutgoingDelivery], dict[bytes, IncomingDelivery]]:
    """More unsettled deliveries than fit, of which the receiver has other ones."""
    pair = Pair(max_frame_size=512)
    link = pair.attach()
    ours = {tag(n): outgoing(link, tag(n), None) for n in range(40)}
    theirs = {tag(n): incoming(pair.receiver, tag(n), BODY, True, Accepted()) for n in (100, 101)}
    theirs[tag(102)] = incoming(pair.receiver, tag(102), b"", False, None)
    pair.lose()
    pair.retained = theirs
    pair.connect()
    return pair, ours, theirs


@pytest.mark.spec("2.6.13")
def test_what_never_arrived_is_withdrawn_until_the_maps_are_whole() -> None:
    pair, ours, _ = partial()
    link = pair.attach(ours)
    for delivery in list(ours.values()):
        link.withdraw(delivery)
        with pytest.raises(LocalProtocolError, match="withdrawn"):
            link.withdraw(delivery)
    assert link.resumption is not None and not link.resumption.unsettled
    assert pair.client.data_to_send() == b""
    # With nothing left to tell, the next map is whole.
    link.detach(closed=False)
    pair.run()
    again = pair.attach({})
    assert again.resumption is not None and again.resumption.whole
    # The receiver has dropped what only it had.
    assert {d.tag for d in pair.resettled} == {tag(n) for n in (100, 101, 102)}
    again.send(BODY, tag=tag(1))
    pair.run()
    assert len(pair.of(DeliveryReceived)) == 1


@pytest.mark.spec("2.6.13")
def test_what_only_the_receiver_knows_can_be_settled() -> None:
    pair, ours, theirs = partial()
    link = pair.attach(ours)
    for unknown in theirs:
        link.settle_unknown(unknown)
    pair.run()
    settled, other = pair.of(SettlementReceived)
    (aborted,) = pair.of(DeliveryAborted)
    assert isinstance(settled, SettlementReceived) and isinstance(other, SettlementReceived)
    assert {settled.delivery.tag, other.delivery.tag} == {tag(100), tag(101)}
    assert settled.delivery.remote_settled and settled.delivery.remote_state == Accepted()
    assert isinstance(aborted, DeliveryAborted) and aborted.delivery.tag == tag(102)
    assert not pair.of(DeliveryReceived)
    with pytest.raises(LocalProtocolError, match="incomplete"):
        link.settle_unknown(b"nobody's")


@pytest.mark.spec("2.6.13")
def test_with_whole_maps_the_receiver_settles_by_itself() -> None:
    pair = Pair()
    pair.attach()
    pair.lose()
    pair.retained = {b"t": incoming(pair.receiver, b"t", BODY, True, Accepted())}
    pair.connect()
    link = pair.attach({})
    with pytest.raises(LocalProtocolError, match="incomplete"):
        link.settle_unknown(b"t")
    assert [d.tag for d in pair.resettled] == [b"t"]


@pytest.mark.spec("2.6.12", "2.6.13")
def test_a_resumed_link_makes_no_tag_again() -> None:
    """The tag of a resumed delivery would overtake the disposition that settles it."""
    pair = Pair()
    link = pair.attach()
    deliveries = [link.send(BODY) for _ in range(3)]
    pair.run()
    pair.lose()
    pair.retained = {}
    pair.connect()
    again = pair.attach({deliveries[1].tag: deliveries[1]})
    again.resume(deliveries[1], BODY)
    assert again.send(BODY).tag == b"\x00\x00\x00\x03"
    # Somebody else's tags say nothing.
    pair.lose()
    pair.connect()
    foreign = [b"\xff" * 8, b"name"[:3]]
    third = pair.attach({one: outgoing(again, one, None) for one in foreign})
    third.continue_tags(again)
    assert third.send(BODY).tag == b"\x00\x00\x00\x04"
    third.number_tags_from(0xFFFFFFFF)
    assert third.send(BODY).tag == (1 << 32).to_bytes(8, "big")


@pytest.mark.spec("2.6.12", "2.6.13")
def test_an_outcome_decided_meanwhile_settles_in_mode_first() -> None:
    """There was no delivery-id to say it with; once there is, one disposition says all."""
    pair = Pair()
    link = pair.attach(mode=ReceiverSettleMode.FIRST)
    delivery = link.send(BODY, tag=b"t")
    pair.run()
    pair.lose()
    pair.retained = pair.receiver.unsettled
    held = pair.retained[b"t"]
    pair.connect()
    again = pair.attach({b"t": delivery}, mode=ReceiverSettleMode.FIRST)
    held.update(Accepted())
    assert not held.settled
    again.resume(delivery, BODY)
    pair.run()
    assert held.settled and delivery.remote_settled and delivery.remote_state == Accepted()


@pytest.mark.spec("2.6.12", "2.6.13")
@pytest.mark.parametrize("resumes", [True, False])
def test_a_tag_in_the_receivers_map_is_not_made_for_something_else(script, resumes) -> None:
    """Its receiver may have written an outcome down under it, and tell that again and again."""
    play = open_script(script())
    begin_script(play)
    theirs = {number.to_bytes(4, "big"): Accepted() for number in (7, 3)}
    play >> peer_attach("link", 0, Role.RECEIVER, unsettled=theirs)
    link = play.event(AttachReceived).link
    assert isinstance(link, SenderLink)
    if resumes:
        link.resume_from({})
    link.accept()
    play >> peer_flow(handle=0, delivery_count=0, link_credit=10)
    assert link.send(BODY).tag == b"\x00\x00\x00\x08"
    play.events()
    play.take()
