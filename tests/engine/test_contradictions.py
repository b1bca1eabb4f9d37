"""A receiver that states one outcome of a delivery, and then another (AMQP 1.0 §2.7.5, §3.4)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import LinkFailed
from ferrymq_types.messaging import Accepted, Modified, Received, Rejected, Released
from ferrymq_types.transport import Detach, Disposition, Error, Role, Transfer
from tests.support.scenes import peer_flow, sender_script
from tests.support.script import condition, like


def theirs(state, settled: bool = False, last: int = 0) -> Disposition:
    """What the receiver says of the deliveries from 0 on."""
    return Disposition(role=Role.RECEIVER, first=0, last=last, settled=settled, state=state)


def sent(play, session, count: int = 1):
    link = sender_script(play, session)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=count)
    deliveries = [link.send(b"x") for _ in range(count)]
    for _ in deliveries:
        play << like(Transfer)
    return link, deliveries


@pytest.mark.spec("broker-2.3.5")
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("later", [Rejected(), Released(), Modified(delivery_failed=True)])
def test_another_outcome_costs_the_link(play, session, later, settled):
    _, (delivery,) = sent(play, session)
    play >> theirs(Accepted()) >> theirs(later, settled)
    play << like(Detach, closed=True, error=condition("amqp:illegal-state"))
    assert isinstance(delivery.remote_state, Accepted)
    assert any(isinstance(event, LinkFailed) for event in play.events())


@pytest.mark.spec("broker-2.3.5")
def test_a_range_that_contradicts_is_told_once(play, session):
    _, deliveries = sent(play, session, 5)
    play >> theirs(Accepted(), last=4) >> theirs(Released(), settled=True, last=4)
    play << like(Detach, closed=True, error=condition("amqp:illegal-state"))
    assert all(isinstance(delivery.remote_state, Accepted) for delivery in deliveries)


@pytest.mark.parametrize(
    "later", [Rejected(), Rejected(error=Error(condition="amqp:not-allowed")), None]
)
def test_the_same_outcome_may_be_repeated(play, session, later):
    link, (delivery,) = sent(play, session)
    play >> theirs(Rejected(error=Error(condition="amqp:not-allowed"))) >> theirs(later, True)
    assert link.usable and delivery.remote_settled
    assert isinstance(delivery.remote_state, Rejected)


def test_what_is_final_stays(play, session):
    """A report on the way that comes after the outcome is late, and says nothing."""
    link, (delivery,) = sent(play, session)
    play >> theirs(Accepted()) >> theirs(Received(section_number=0, section_offset=1))
    assert link.usable and isinstance(delivery.remote_state, Accepted)


def test_a_receiver_may_come_round_to_our_outcome(play, session):
    link, (delivery,) = sent(play, session)
    delivery.update(Released())
    play << like(Disposition, state=Released(), settled=False)
    play >> theirs(Accepted()) >> theirs(Released(), settled=True)
    assert link.usable and isinstance(delivery.remote_state, Released)
