"""Settlement modes of both ends (AMQP 1.0 §2.6.12, §2.7.3)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import (
    AttachReceived,
    DeliveryReceived,
    OutcomeReceived,
    SettlementReceived,
)
from ferrymq_types.messaging import Accepted, Released
from ferrymq_types.transport import (
    Attach,
    Disposition,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Transfer,
)
from tests.support.scenes import (
    peer_attach,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import like

SND = list(SenderSettleMode)
RCV = list(ReceiverSettleMode)


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("snd", SND)
@pytest.mark.parametrize("rcv", RCV)
@pytest.mark.parametrize("role", list(Role))
def test_we_answer_with_the_modes_the_peer_asked_for(play, session, snd, rcv, role):
    play >> peer_attach("a", 0, role, snd_settle_mode=snd, rcv_settle_mode=rcv)
    link = play.event(AttachReceived).link
    link.accept()
    play << like(Attach, snd_settle_mode=snd, rcv_settle_mode=rcv)
    assert (link.snd_settle_mode, link.rcv_settle_mode) == (snd, rcv)


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("ours", SND)
@pytest.mark.parametrize("theirs", SND)
def test_the_sender_decides_its_own_mode(play, session, ours, theirs):
    link = session.attach_sender("a", target=None, snd_settle_mode=ours)
    play << like(Attach, snd_settle_mode=ours)
    play >> peer_attach("a", 0, Role.RECEIVER, snd_settle_mode=theirs)
    play >> peer_flow(handle=0, link_credit=2)
    assert link.snd_settle_mode is ours
    settled = [link.send(b"").settled, link.send(b"", settled=True).settled]
    expected = {
        SenderSettleMode.UNSETTLED: [False, False],
        SenderSettleMode.SETTLED: [True, True],
        SenderSettleMode.MIXED: [False, True],
    }
    assert settled == expected[ours]
    play << like(Transfer, settled=settled[0]) << like(Transfer, settled=settled[1])


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("ours", RCV)
@pytest.mark.parametrize("theirs", RCV)
def test_the_receiver_decides_its_own_mode(play, session, ours, theirs):
    link = session.attach_receiver("a", source=None, rcv_settle_mode=ours)
    play << like(Attach, rcv_settle_mode=ours)
    snd = SenderSettleMode.SETTLED
    play >> peer_attach("a", 0, Role.SENDER, snd_settle_mode=snd, rcv_settle_mode=theirs)
    assert link.rcv_settle_mode is ours
    # The other one is the sender's to tell.
    assert link.snd_settle_mode is snd


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("theirs", RCV)
def test_a_sender_hears_the_receivers_mode(play, session, theirs):
    link = session.attach_sender("a", target=None)
    play << Attach
    play >> peer_attach("a", 0, Role.RECEIVER, rcv_settle_mode=theirs)
    assert link.rcv_settle_mode is theirs


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("snd", [SenderSettleMode.UNSETTLED, SenderSettleMode.MIXED])
def test_receiving_in_mode_first(play, session, snd):
    receiver_script(play, session, snd=snd, rcv=ReceiverSettleMode.FIRST)
    play >> transfer(0, 0)
    delivery = play.event(DeliveryReceived).delivery
    delivery.settle(Accepted())
    play << Disposition(role=Role.RECEIVER, first=0, last=0, settled=True, state=Accepted())
    assert delivery.settled and not session.incoming.unsettled


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("snd", [SenderSettleMode.UNSETTLED, SenderSettleMode.MIXED])
def test_receiving_in_mode_second(play, session, snd):
    receiver_script(play, session, snd=snd, rcv=ReceiverSettleMode.SECOND)
    play >> transfer(0, 0)
    delivery = play.event(DeliveryReceived).delivery
    delivery.settle(Accepted())
    play << Disposition(role=Role.RECEIVER, first=0, last=0, settled=False, state=Accepted())
    assert not delivery.settled and session.incoming.unsettled.items() == [(0, delivery)]
    play >> Disposition(role=Role.SENDER, first=0, settled=True, state=Accepted())
    assert play.event(SettlementReceived).delivery is delivery
    assert delivery.settled and delivery.remote_settled
    assert not session.incoming.unsettled
    delivery.settle(Released())
    play.quiet()


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("rcv", RCV)
def test_receiving_what_was_sent_settled(play, session, rcv):
    receiver_script(play, session, snd=SenderSettleMode.SETTLED, rcv=rcv)
    play >> transfer(0, 0, settled=True)
    delivery = play.event(DeliveryReceived).delivery
    delivery.settle(Accepted())
    play.quiet()
    assert delivery.settled and not session.incoming.unsettled


@pytest.mark.spec("2.6.12")
def test_sending_to_mode_first(play, session):
    link = sender_script(play, session)
    delivery = link.send(b"")
    play << Transfer
    play >> Disposition(role=Role.RECEIVER, first=0, settled=True, state=Accepted())
    assert play.event(OutcomeReceived).delivery is delivery
    delivery.settle()
    play.quiet()
    assert delivery.settled and delivery.state == Accepted()


@pytest.mark.spec("2.6.12")
def test_sending_to_mode_second(play, session):
    link = sender_script(play, session, rcv=ReceiverSettleMode.SECOND)
    delivery = link.send(b"")
    play << Transfer
    play >> Disposition(role=Role.RECEIVER, first=0, state=Accepted())
    assert play.event(OutcomeReceived).delivery is delivery
    assert session.outgoing.unsettled.items() == [(0, delivery)]
    delivery.settle()
    play << Disposition(role=Role.SENDER, first=0, last=0, settled=True, state=Accepted())
    assert not session.outgoing.unsettled


@pytest.mark.parametrize("snd", SND)
@pytest.mark.parametrize("settled", [False, True])
def test_sending_as_the_receiver_asked(play, session, snd, settled):
    link = sender_script(play, session, snd=snd)
    delivery = link.send(b"", settled=settled)
    forced = {SenderSettleMode.SETTLED: True, SenderSettleMode.UNSETTLED: False}
    expected = forced.get(snd, settled)
    play << like(Transfer, settled=expected)
    assert delivery.settled is expected
    assert (delivery.id in session.outgoing.unsettled) is not expected


def test_sender_may_settle_of_its_own_accord(play, session):
    receiver_script(play, session)
    play >> transfer(0, 0)
    delivery = play.event(DeliveryReceived).delivery
    play >> Disposition(role=Role.SENDER, first=0, settled=True)
    assert play.event(SettlementReceived).delivery is delivery
    delivery.settle(Accepted())
    play.quiet()
