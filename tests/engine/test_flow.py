"""Link credit, drain and echo (AMQP 1.0 §2.6.7, §2.7.4)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import CreditReceived, DrainCompleted
from ferrymq.errors import LocalProtocolError
from ferrymq_types.transport import Attach, Detach, Flow, Role, Transfer
from tests.support.scenes import (
    MAX32,
    open_script,
    peer_attach,
    peer_begin,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import like, on

# -- we send: the peer gives credit ---------------------------------------------


@pytest.mark.spec("2.6.7")
def test_credit_is_what_the_receiver_allows_less_what_is_under_way(play, session):
    link = sender_script(play, session, credit=5)
    for _ in range(3):
        link.send(b"")
    play.take()
    assert link.credit == 2
    # The receiver has seen one of the three and allows four from there.
    play >> peer_flow(handle=0, delivery_count=1, link_credit=4)
    assert play.event(CreditReceived).link is link
    assert link.credit == 2
    play >> peer_flow(handle=0, delivery_count=3, link_credit=10)
    assert link.credit == 10


@pytest.mark.spec("2.6.7")
def test_credit_taken_back(play, session):
    link = sender_script(play, session, credit=5)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=0)
    assert link.credit == 0
    with pytest.raises(LocalProtocolError):
        link.send(b"")


def test_credit_taken_back_below_what_is_under_way(play, session):
    link = sender_script(play, session, credit=5)
    for _ in range(3):
        link.send(b"")
    play.take()
    play >> peer_flow(handle=0, delivery_count=0, link_credit=1)
    assert link.credit == 0


@pytest.mark.spec("2.7.4")
def test_delivery_count_null_means_our_initial_one(play, session):
    link = sender_script(play, session, credit=5)
    link.send(b"")
    play.take()
    play >> peer_flow(handle=0, delivery_count=None, link_credit=5)
    assert link.credit == 4


@pytest.mark.spec("2.8.10")
def test_delivery_counts_wrap(play, session):
    link = sender_script(play, session, credit=0)
    link.delivery_count = 1
    # The receiver is two behind.
    play >> peer_flow(handle=0, delivery_count=MAX32, link_credit=5)
    assert link.credit == 3


def test_greatest_credit(play, session):
    link = sender_script(play, session, credit=0)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=MAX32)
    assert link.credit == MAX32
    link.send(b"")
    play << Transfer


@pytest.mark.spec("2.6.3")
def test_credit_before_our_attach(play, session):
    play >> peer_attach("a", 0, Role.RECEIVER) >> peer_flow(handle=0, link_credit=3)
    assert play.names() == ["AttachReceived", "CreditReceived"]
    link = session.links["a", True]
    assert link.credit == 3
    link.accept()
    play << Attach
    link.send(b"x")
    play << on(0, Transfer, b"x")


def test_flow_for_a_link_without_credit_gives_none(play, session):
    link = sender_script(play, session, credit=5)
    play >> peer_flow(handle=0)
    assert link.credit == 5
    assert play.events() == []


def test_properties_of_a_flow(play, session):
    link = sender_script(play, session, credit=0)
    play >> peer_flow(handle=0, link_credit=1, properties={"key": 1})
    assert link.flow_properties == {"key": 1}


@pytest.mark.spec("2.7.4")
def test_echo(play, session):
    link = sender_script(play, session, credit=5)
    link.available = 7
    link.send(b"")
    play.take()
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5, echo=True)
    play << like(Flow, handle=0, delivery_count=1, link_credit=4, available=7, echo=False)


def test_echo_counts_what_waits_as_not_sent(play, session):
    link = sender_script(play, session, credit=5)
    play >> peer_flow(incoming_window=1)
    for _ in range(3):
        link.send(b"")
    play << Transfer
    play >> peer_flow(handle=0, incoming_window=1, delivery_count=0, link_credit=5, echo=True)
    play << like(Flow, delivery_count=1, link_credit=4)


@pytest.mark.spec("2.6.7")
def test_drain_gives_the_credit_back(play, session):
    link = sender_script(play, session, credit=5)
    link.send(b"")
    play << Transfer
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5, drain=True)
    assert play.event(CreditReceived).link.drain
    link.send(b"")
    link.drained()
    play << Transfer << like(Flow, handle=0, delivery_count=5, link_credit=0, drain=True)
    assert link.credit == 0 and link.delivery_count == 5
    with pytest.raises(LocalProtocolError):
        link.send(b"")


@pytest.mark.spec("2.6.7")
def test_drain_of_no_credit_is_answered_too(play, session):
    link = sender_script(play, session, credit=0)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=0, drain=True)
    link.drained()
    play << like(Flow, delivery_count=0, link_credit=0)


def test_drained_without_a_drain_is_nothing(play, session):
    link = sender_script(play, session, credit=5)
    link.drained()
    play.quiet()
    assert link.credit == 5


def test_drain_ends_with_the_next_flow(play, session):
    link = sender_script(play, session, credit=5)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5, drain=True)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5)
    assert not link.drain


# -- we receive: we give credit ---------------------------------------------------


@pytest.mark.spec("2.6.7")
def test_we_give_credit(play, session):
    link = receiver_script(play, session, credit=0, initial_delivery_count=9)
    link.set_credit(5)
    play << like(Flow, handle=0, delivery_count=9, link_credit=5, drain=False)
    play >> transfer(0, 0)
    assert link.credit == 4
    link.set_credit(5)
    play << like(Flow, delivery_count=10, link_credit=5)


@pytest.mark.spec("2.6.7")
def test_we_drain(play, session):
    link = receiver_script(play, session, credit=5)
    link.drain_credit()
    play << like(Flow, handle=0, delivery_count=0, link_credit=5, drain=True)
    play >> transfer(0, 0)
    play >> peer_flow(handle=0, delivery_count=5, link_credit=0, drain=True, available=0)
    assert play.names() == ["DeliveryReceived", "DrainCompleted"]
    assert link.credit == 0 and link.delivery_count == 5 and not link.drain


@pytest.mark.spec("2.6.7")
def test_drain_is_over_when_deliveries_have_used_the_credit(play, session):
    link = receiver_script(play, session, credit=2)
    link.drain_credit()
    play << Flow
    play >> transfer(0, 0) >> transfer(0, 1)
    assert play.names() == ["DeliveryReceived", "DeliveryReceived", "DrainCompleted"]
    # The sender's flow, if it comes as well, is no second end.
    play >> peer_flow(handle=0, delivery_count=2, link_credit=0, drain=True)
    assert play.events() == []
    assert link.credit == 0


def test_drain_is_over_when_the_last_delivery_is_aborted(play, session):
    link = receiver_script(play, session, credit=1)
    link.drain_credit()
    play << Flow
    play >> transfer(0, 0, more=True) >> transfer(0, None, None, aborted=True)
    assert play.names() == ["DeliveryAborted", "DrainCompleted"]


def test_drain_without_credit(play, session):
    link = receiver_script(play, session, credit=0)
    link.drain_credit()
    play << like(Flow, link_credit=0, drain=True)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=0, drain=True)
    assert play.event(DrainCompleted).link is link


def test_new_credit_ends_a_drain(play, session):
    link = receiver_script(play, session, credit=5)
    link.drain_credit()
    play << Flow
    link.set_credit(8)
    play << like(Flow, link_credit=8, drain=False)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=8)
    assert play.events() == []


def test_drained_credit_is_not_to_be_used(play, session):
    link = receiver_script(play, session, credit=5)
    link.drain_credit()
    play << Flow
    play >> peer_flow(handle=0, delivery_count=5, link_credit=0, drain=True)
    play >> transfer(0, 0)
    assert not link.usable
    play.take()


def test_sender_tells_what_it_has(play, session):
    link = receiver_script(play, session)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=100, available=33)
    assert link.available == 33
    play >> peer_flow(handle=0, delivery_count=0, link_credit=100)
    assert link.available == 0


def test_echo_of_a_receiver(play, session):
    receiver_script(play, session, credit=6)
    play >> transfer(0, 0)
    play >> peer_flow(handle=0, delivery_count=1, echo=True)
    play << like(Flow, handle=0, delivery_count=1, link_credit=5)


def test_senders_count_never_runs_backwards(play, session):
    link = receiver_script(play, session, credit=5)
    play >> transfer(0, 0) >> transfer(0, 1)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5)
    assert link.delivery_count == 2 and link.credit == 3


@pytest.mark.spec("2.6.7")
def test_what_comes_is_no_longer_available(play, session):
    link = receiver_script(play, session, credit=10)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=10, available=2)
    for id, left in ((0, 1), (1, 0), (2, 0)):
        play >> transfer(0, id)
        assert link.available == left
    link.set_credit(1)
    play << like(Flow, link_credit=1, available=0)


@pytest.mark.parametrize("credit", [-1, 1 << 32])
def test_credit_that_is_no_32_bit_number(play, session, credit):
    link = receiver_script(play, session, credit=5)
    with pytest.raises(LocalProtocolError):
        link.set_credit(credit)
    play.quiet()
    assert link.credit == 5


@pytest.mark.spec("2.7.4")
def test_delivery_count_is_null_until_the_sender_has_told_it(script):
    play = open_script(script(initiator=True))
    session = play.engine.begin()
    link = session.attach_receiver("a", source=None)
    link.set_credit(5)
    play.take()
    play >> peer_begin(0)
    link.set_credit(6)
    play << like(Flow, delivery_count=None, link_credit=6)
    play >> peer_attach("a", 0, Role.SENDER, initial_delivery_count=70)
    link.set_credit(7)
    play << like(Flow, delivery_count=70, link_credit=7)


@pytest.mark.spec("2.6.7")
def test_what_waits_for_the_window_waits_for_credit_that_is_taken_back(play, session):
    link = sender_script(play, session, credit=5)
    other = sender_script(play, session, "other", credit=5)
    play >> peer_flow(next_incoming_id=0, incoming_window=1)
    for tag in (b"a", b"b", b"c"):
        link.send(b"", tag=tag)
    other.send(b"", tag=b"d")
    play << like(Transfer, delivery_tag=b"a")
    # Two of the three may come; the window is shut still.
    play >> peer_flow(handle=0, delivery_count=0, link_credit=2, incoming_window=1, echo=True)
    play << like(Flow, delivery_count=1, link_credit=1)
    play >> peer_flow(next_incoming_id=1, incoming_window=2)
    play << like(Transfer, delivery_tag=b"b")
    play << like(Transfer, delivery_tag=b"d")
    play.quiet()
    assert link.parked == 1
    with pytest.raises(LocalProtocolError, match="no credit"):
        link.send(b"")
    play >> peer_flow(
        handle=0, delivery_count=2, link_credit=2, next_incoming_id=3, incoming_window=100
    )
    play << like(Transfer, delivery_tag=b"c")
    assert (link.credit, link.parked) == (1, 0)


@pytest.mark.spec("2.6.7")
def test_what_waits_for_credit_ends_with_its_link(play, session):
    link = sender_script(play, session, credit=5)
    play >> peer_flow(next_incoming_id=0, incoming_window=0)
    delivery = link.send(b"", tag=b"a")
    play.take()
    play >> peer_flow(handle=0, delivery_count=0, link_credit=0, incoming_window=10)
    play.quiet()
    assert session.outgoing.find(link, b"a")
    link.detach(closed=False)
    play << like(Detach, closed=False)
    assert link.unsettled == {b"a": delivery}
    assert not session.outgoing.find(link, b"a")
