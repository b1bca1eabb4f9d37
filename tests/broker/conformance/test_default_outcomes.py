"""What becomes of messages that a receiver leaves without an outcome (the broker book §2.3.7)."""

from __future__ import annotations

from typing import Final

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from ferrymq_types.unions import Outcome
from tests.broker.harness import Network, header

WAYS: Final = ("settle", "detach", "close", "end", "close connection", "lose")

# The default-outcome, and how many are then in the queue and among the dead letters.
FATES: Final[list[tuple[Outcome | None, int, int]]] = [
    (Released(), 1, 0),
    (Modified(delivery_failed=True), 1, 0),
    (Rejected(), 0, 1),
    (Accepted(), 0, 0),
    (None, 1, 0),
]


@pytest.mark.spec("broker-2.3.7", "3.5.3", "3.3")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("outcome", "left", "dead"), FATES, ids=str)
def test_the_default_outcome_is_the_fate_of_what_is_left(
    net: Network, how: str, outcome: Outcome | None, left: int, dead: int
) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    net.declare("dlq")
    client = net.connect()
    net.connect().sender("q").send(b"a")
    receiver = client.receiver("q", default_outcome=outcome)
    assert receiver.remote_source.default_outcome == (outcome or Released())
    receiver.link.set_credit(1)
    net.run()
    assert receiver.bodies() == [b"a"]
    if how == "settle":
        receiver.settle(None)
    elif how in ("detach", "close"):
        receiver.close(closed=how == "close")
    elif how == "end":
        client.session.end()
        net.run()
    elif how == "close connection":
        client.close()
    else:
        client.lose()
    queues = net.queue("q"), net.queue("dlq")
    assert [(queue.available, queue.acquired) for queue in queues] == [(left, 0), (dead, 0)]
    if left:
        (again,) = net.connect().receiver("q", credit=1).take()
        failed = isinstance(outcome, Modified) or (outcome is None and how == "lose")
        assert header(again.payload).delivery_count == (1 if failed else 0)
