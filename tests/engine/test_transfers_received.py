"""Transfers of the peer: deliveries of one frame and of many (AMQP 1.0 §2.6.14, §2.7.5)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import AttachReceived, DeliveryReceived, LinkFailed
from ferrymq.errors import RemoteProtocolError
from ferrymq_types.messaging import Accepted, Rejected
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Attach, Detach, Disposition, End, Flow, Role
from tests.support.scenes import (
    peer_attach,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, like, on


def link_fails(play, link, symbol: str) -> None:
    play << like(Detach, handle=link.handle, closed=True, error=condition(symbol))
    failed = play.find(LinkFailed)
    assert failed.link is link
    assert isinstance(failed.error, RemoteProtocolError) and failed.error.condition == symbol
    assert not link.usable


@pytest.mark.spec("2.7.5")
def test_one_frame(play, session):
    link = receiver_script(play, session)
    play >> on(0, transfer(0, 0, b"t", message_format=7, state=Accepted()), b"payload")
    event = play.event(DeliveryReceived)
    delivery = event.delivery
    assert event.link is link and delivery.link is link
    assert (delivery.id, delivery.tag, delivery.message_format) == (0, b"t", 7)
    assert delivery.payload == b"payload"
    assert delivery.remote_state == Accepted()
    assert not delivery.remote_settled and not delivery.settled
    assert link.credit == 99 and link.delivery_count == 1
    assert session.incoming.unsettled.items() == [(0, delivery)]


@pytest.mark.spec("2.7.5")
def test_settled(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, settled=True)
    delivery = play.event(DeliveryReceived).delivery
    assert delivery.remote_settled
    assert not session.incoming.unsettled
    delivery.settle(Accepted())
    assert delivery.settled
    play.quiet()


def test_empty_payload(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, b"")
    delivery = play.event(DeliveryReceived).delivery
    assert delivery.payload == b"" and delivery.tag == b""


@pytest.mark.spec("2.6.14")
def test_many_frames(play, session):
    link = receiver_script(play, session)
    play >> on(0, transfer(0, 0, more=True), b"one ")
    play >> on(0, transfer(0, None, None, more=True), b"two ")
    assert play.events() == [] and link.credit == 100
    # Repeating the delivery-id is allowed.
    play >> on(0, transfer(0, 0, None), b"three")
    assert play.event(DeliveryReceived).delivery.payload == b"one two three"
    assert link.credit == 99


@pytest.mark.spec("2.6.14")
@pytest.mark.parametrize(("frames", "size"), [(17, 60_000), (18, 60_000), (40, 60_000), (600, 3)])
def test_frames_are_put_together_however_many_and_large(play, session, frames, size):
    receiver_script(play, session)
    parts = [bytes([number % 251]) * (size + number) for number in range(frames)]
    for number, part in enumerate(parts):
        first = number == 0
        play >> on(
            0,
            transfer(0, 0 if first else None, b"t" if first else None, more=number < frames - 1),
            part,
        )
    assert play.event(DeliveryReceived).delivery.payload == b"".join(parts)


@pytest.mark.spec("2.7.5")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_settled_on_any_frame_settles_the_delivery(play, session, which):
    receiver_script(play, session)
    for i in range(3):
        settled = True if i == which else None
        first = i == 0
        play >> transfer(0, 0 if first else None, b"t" if first else None,
                         more=i < 2, settled=settled)  # fmt: skip
    assert play.event(DeliveryReceived).delivery.remote_settled
    assert not session.incoming.unsettled


@pytest.mark.spec("2.6.14")
def test_deliveries_of_several_links_may_interleave(play, session):
    for name in "abc":
        receiver_script(play, session, name)
    for i in range(3):
        play >> on(0, transfer(i, i, b"%d" % i, more=True), b"start %d, " % i)
    for i in (2, 0, 1):
        play >> on(0, transfer(i, None, None), b"end %d" % i)
    got = [(e.link.name, e.delivery.id, e.delivery.payload) for e in play.events()]
    assert got == [("c", 2, b"start 2, end 2"), ("a", 0, b"start 0, end 0"),
                   ("b", 1, b"start 1, end 1")]  # fmt: skip


@pytest.mark.spec("2.6.14")
def test_aborted(play, session):
    link = receiver_script(play, session, credit=2)
    play >> on(0, transfer(0, 0, more=True), b"half")
    play >> on(0, transfer(0, None, None, aborted=True), b"ignored")
    assert play.names() == ["DeliveryAborted"]
    # It has used its credit and left nothing behind.
    assert link.credit == 1 and link.delivery_count == 1
    assert not session.incoming.unsettled
    play >> on(0, transfer(0, 1), b"next")
    assert play.event(DeliveryReceived).delivery.payload == b"next"


@pytest.mark.spec("2.7.5")
def test_aborted_outweighs_more(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, more=True) >> transfer(0, None, None, more=True, aborted=True)
    play >> on(0, transfer(0, 1), b"next")
    assert play.names() == ["DeliveryAborted", "DeliveryReceived"]


def test_detach_in_the_middle_of_a_delivery(play, session):
    link = receiver_script(play, session)
    play >> transfer(0, 0, more=True) >> Detach(handle=0)
    assert play.names() == ["DetachReceived"]
    link.detach()
    play << Detach


# -- what may be wrong ---------------------------------------------------------


@pytest.mark.spec("2.7.5")
@pytest.mark.parametrize(("id", "tag"), [(None, b"t"), (0, None), (None, None)])
def test_first_frame_without_id_or_tag(play, session, id, tag):
    receiver_script(play, session)
    play >> transfer(0, id, tag)
    play << like(End, error=condition("amqp:invalid-field"))


@pytest.mark.spec("2.7.5")
def test_other_delivery_inside_an_unfinished_one(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, more=True) >> transfer(0, 1, b"u")
    play << like(End, error=condition("amqp:invalid-field"))


@pytest.mark.spec("2.8.7")
def test_longest_tag(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0, b"t" * 32)
    assert play.event(DeliveryReceived).delivery.tag == b"t" * 32
    play >> transfer(0, 1, b"t" * 33)
    play << like(End, error=condition("amqp:invalid-field"))


def test_delivery_id_of_an_unsettled_delivery(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0) >> transfer(0, 0)
    play << like(End, error=condition("amqp:invalid-field"))


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize("credit", [0, 1, 3])
def test_transfer_without_credit(play, session, credit):
    link = receiver_script(play, session, credit=credit)
    for i in range(credit):
        play >> transfer(0, i)
    assert play.names() == ["DeliveryReceived"] * credit
    play >> transfer(0, credit)
    link_fails(play, link, "amqp:link:transfer-limit-exceeded")
    assert session.mapped


@pytest.mark.spec("2.6.7")
def test_last_credit_carries_all_frames_of_a_delivery(play, session):
    receiver_script(play, session, credit=1)
    for i in range(5):
        play >> transfer(0, 0 if i == 0 else None, b"t" if i == 0 else None, more=i < 4)
    assert play.names() == ["DeliveryReceived"]


@pytest.mark.spec("2.6.7")
def test_credit_taken_back_does_not_reach_what_is_under_way(play, session):
    link = receiver_script(play, session, credit=3)
    play >> transfer(0, 0)
    link.set_credit(0)
    play << like(Flow, delivery_count=1, link_credit=0)
    # The peer had sent these before it saw the flow.
    play >> transfer(0, 1) >> transfer(0, 2)
    assert play.names() == ["DeliveryReceived"] * 3
    assert link.credit == 0
    play >> transfer(0, 3)
    link_fails(play, link, "amqp:link:transfer-limit-exceeded")


def test_credit_given_again_counts_from_now(play, session):
    link = receiver_script(play, session, credit=3)
    for i in range(3):
        play >> transfer(0, i)
    link.set_credit(2)
    play << like(Flow, delivery_count=3, link_credit=2)
    for i in range(3, 5):
        play >> transfer(0, i)
    play >> transfer(0, 5)
    link_fails(play, link, "amqp:link:transfer-limit-exceeded")


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("frames", [1, 2, 11])
def test_message_too_large(play, session, frames):
    link = receiver_script(play, session, max_message_size=100)
    size = 101 // frames + 1
    for i in range(frames):
        play >> on(
            0,
            transfer(0, 0 if i == 0 else None, b"t" if i == 0 else None, more=i < frames - 1),
            b"x" * size,
        )
        if play.engine.has_output:
            break
    link_fails(play, link, "amqp:link:message-size-exceeded")
    assert session.mapped and not session.incoming.unsettled
    # Even what was on its way ends the session: the link was destroyed (§2.6.5).
    play >> transfer(0, None, None)
    play << like(End, error=condition("amqp:session:errant-link"))


@pytest.mark.parametrize("frames", [1, 2, 11])
def test_a_message_too_large_is_rejected(play, session, frames):
    link = receiver_script(play, session, max_message_size=100)
    link.rejects_large = True
    for i in range(frames):
        id, tag = (0, b"t") if i == 0 else (None, None)
        play >> on(0, transfer(0, id, tag, more=i < frames - 1), b"x" * (101 // frames + 1))
        assert play.names() == ["MessageTooLarge"] * (i == frames - 1)
    delivery = next(iter(session.incoming.unsettled.values()))
    assert (delivery.data(), link.credit) == (b"", 99)
    delivery.settle(Rejected())
    play << like(Disposition, first=0, settled=True, state=Rejected())
    # The link goes on.
    play >> on(0, transfer(0, 1), b"x")
    assert play.event(DeliveryReceived).delivery.payload == b"x"


def test_a_message_too_large_is_aborted(play, session):
    link = receiver_script(play, session, max_message_size=100)
    link.rejects_large = True
    play >> on(0, transfer(0, 0, more=True), b"x" * 101)
    play >> transfer(0, None, None, aborted=True)
    assert play.names() == ["DeliveryAborted"]
    assert not session.incoming.unsettled


@pytest.mark.parametrize(
    "options", [{"settled": True}, {"state": TransactionalState(txn_id=b"1")}], ids=str
)
def test_a_message_too_large_that_cannot_be_rejected_ends_the_link(play, session, options):
    link = receiver_script(play, session, max_message_size=100)
    link.rejects_large = True
    play >> on(0, transfer(0, 0, **options), b"x" * 101)
    link_fails(play, link, "amqp:link:message-size-exceeded")


@pytest.mark.spec("2.7.3")
def test_largest_message(play, session):
    receiver_script(play, session, max_message_size=100)
    play >> on(0, transfer(0, 0), b"x" * 100)
    play >> on(0, transfer(0, 1, more=True), b"x" * 50)
    play >> on(0, transfer(0, None, None), b"x" * 50)
    assert play.names() == ["DeliveryReceived"] * 2


def test_transfer_on_a_link_on_which_the_peer_receives(play, session):
    sender_script(play, session)
    play >> transfer(0, 0)
    play << like(End, error=condition("amqp:not-allowed"))


@pytest.mark.spec("2.6.3")
def test_transfers_before_our_attach_wait_for_the_credit_it_gives(play, session):
    play.send(peer_attach("a", 0, Role.SENDER), transfer(0, 0), transfer(0, 1, b"u"))
    link = play.event(AttachReceived).link
    assert play.names() == []
    link.accept()
    link.set_credit(1)
    assert play.event(DeliveryReceived).delivery.id == 0
    play << like(Attach) << like(Flow, link_credit=1)
    link_fails(play, link, "amqp:link:transfer-limit-exceeded")


def test_a_failed_link_leaves_the_others_alone(play, session):
    bad = receiver_script(play, session, "bad", credit=1)
    good = receiver_script(play, session, "good")
    play >> transfer(0, 0) >> on(0, transfer(1, 1, b"u"), b"x")
    play >> transfer(0, 2)
    link_fails(play, bad, "amqp:link:transfer-limit-exceeded")
    play >> transfer(1, 3)
    assert play.names() == ["DeliveryReceived"]
    assert good.usable


def test_memory_of_a_delivery_is_its_payload(play, session):
    receiver_script(play, session)
    play >> on(0, transfer(0, 0), b"payload") >> peer_flow()
    delivery = play.event(DeliveryReceived).delivery
    assert type(delivery.payload) is bytes


@pytest.mark.spec("2.6.5")
def test_the_rest_of_the_delivery_on_which_a_link_failed_was_under_way(play, session):
    """Every sender of several frames is in the middle of them when it learns; Proton is."""
    receiver_script(play, session, max_message_size=10)
    play >> on(0, transfer(0, 0, more=True), b"x" * 11)
    play << like(Detach, error=condition("amqp:link:message-size-exceeded"))
    play >> on(0, transfer(0, None, None, more=True), b"x") >> on(0, transfer(0, 0), b"x")
    play.quiet()
    assert session.mapped
    # A new delivery is another thing.
    play >> transfer(0, 1)
    play << like(End, error=condition("amqp:session:errant-link"))
