"""Transactions that take too long, over the wire (AMQP 1.0 §4.3, §4.5.8)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Composite, condition_of
from tests.raw.client import Client
from tests.raw.process import Broker
from tests.wire.control import Control, exchange, named, outcomes_by_id, waiting

TIMEOUT = "amqp:transaction:timeout"


CONFIG = "[limits]\ntransaction-timeout = 0.3\n"


def is_timeout(state: Composite) -> bool:
    """Whether a delivery was rejected because its transaction took too long."""
    error = condition_of(state.field(0))
    return state.name == "rejected" and error is not None and error[0] == TIMEOUT


@pytest.mark.spec("4.3", "4.5.8")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_a_posting_and_the_discharge_of_what_took_too_long_in_one_write(
    broker: Broker, peer: Client, address: str, fail: bool
) -> None:
    peer.sender(address)
    control = Control(peer)
    late, later = control.declare(), control.declare()
    while True:
        (state,) = outcomes_by_id(exchange(peer, control.post(later))).values()
        if is_timeout(state):
            break
    # So is the one that was declared before.
    other = control.declare()
    answers = exchange(peer, control.post(late), control.discharge(late, fail))
    assert not named(answers, "detach")
    posting, discharged = outcomes_by_id(answers).values()
    assert is_timeout(posting)
    assert discharged.name == "accepted" if fail else is_timeout(discharged)
    # The other transaction of the control link is as it was.
    (discharged,) = outcomes_by_id(exchange(peer, control.discharge(other))).values()
    assert discharged.name == "accepted"
    assert waiting(broker.port, address) == []
