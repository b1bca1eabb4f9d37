"""Fences: who may not use those of a group commits nothing with one."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, AmqpValue, MessageAnnotations
from ferrymq_types.transactions import Discharge
from tests.broker.access.guarded import UNAUTHORIZED, guarded, user
from tests.broker.harness import Network
from tests.broker.transactions.kit import Controller, post, reason

RULES = """
[[queue]]
name = "out"

[[rule]]
who = ["user:ann", "user:bob"]
may = "send"
where = "*"

[[rule]]
who = "user:ann"
may = "send"
where = "$fence/mine.*"
"""


def write(net: Network, name: str, group: str) -> tuple[object, str]:
    """The outcome of a commit with a fence of a group, and why it was refused."""
    client = user(net, name)
    control = Controller(client)
    txn = control.declare()
    post(client.sender("out"), txn, b"x")
    fence: dict[str | int, object] = {
        "ferrymq:fence-group": group,
        "ferrymq:fence-member": "0",
        "ferrymq:fence-sequence": 1,
    }
    delivery = control.tell(
        MessageAnnotations(value=fence), AmqpValue(value=Discharge(txn_id=txn, fail=False))
    )
    why = "" if delivery.remote_state == Accepted() else reason(delivery)
    # Committed or rolled back, it is over.
    assert reason(control.discharge(txn)).startswith("amqp:transaction:unknown-id")
    return delivery.remote_state, why


@pytest.fixture
def net() -> Network:
    return guarded(RULES)


def test_a_group_is_used_by_those_who_may(net: Network) -> None:
    state, _ = write(net, "ann", "mine.a")
    assert state == Accepted()
    assert net.queue("out").message_count() == 1


@pytest.mark.parametrize(("name", "group"), [("ann", "yours"), ("bob", "mine.a"), ("bob", "x")])
def test_others_roll_back(net: Network, name: str, group: str) -> None:
    write(net, "ann", "mine.a")
    _, why = write(net, name, group)
    assert why == f"{UNAUTHORIZED}: send at '$fence/{group}' is not allowed to you"
    assert net.queue("out").message_count() == 1
    assert net.space.fences.names() == [("mine.a", "0", "")]
