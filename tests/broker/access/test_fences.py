"""Fences: who may not use those of a group commits nothing with one."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, AmqpValue, MessageAnnotations
from ferrymq_types.transactions import Discharge
from tests.broker.access.guarded import UNAUTHORIZED, user
from tests.broker.harness import Network
from tests.broker.transactions.kit import Controller, post, reason

RULES = """
[[queue]]
name = "out"

[[alias]]
name = "another-name"
to = "out"

[[rule]]
who = "*"
may-not = "send"
where = "$fence/closed.*"

[[rule]]
who = ["user:ann", "user:bob"]
may = "send"
where = "*"

[[rule]]
who = "user:ann"
may = "send"
where = "$fence/mine.*"

[[rule]]
who = "user:dan"
may = "send"
where = "out"
"""


def write(net: Network, name: str, group: str, target: str = "") -> tuple[object, str]:
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
    if target:
        fence["ferrymq:fence-target"] = target
    delivery = control.tell(
        MessageAnnotations(value=fence), AmqpValue(value=Discharge(txn_id=txn, fail=False))
    )
    why = "" if delivery.remote_state == Accepted() else reason(delivery)
    # Committed or rolled back, it is over.
    assert reason(control.discharge(txn)).startswith("amqp:transaction:unknown-id")
    return delivery.remote_state, why


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


@pytest.mark.parametrize("target", ["out", "another-name", "*"])
def test_who_may_send_to_the_target_may_use_its_fences(net: Network, target: str) -> None:
    state, why = write(net, "bob", "any-name-at-all", target)
    assert (state, why) == (Accepted(), "")


def test_a_rule_may_still_refuse_a_group(net: Network) -> None:
    _, why = write(net, "bob", "closed.x", "out")
    assert why.startswith(f"{UNAUTHORIZED}: send at 'out', or at '$fence/closed.x'")


@pytest.mark.parametrize("target", ["$management", "dynamic.made-up", "private"])
def test_what_may_not_be_sent_to_is_no_target(net: Network, target: str) -> None:
    """Else who may do nothing could fill the table of fences."""
    net.declare("private")
    _, why = write(net, "dan", "g", target)
    assert why == f"{UNAUTHORIZED}: send at '{target}', or at '$fence/g', is not allowed to you"
    assert len(net.space.fences) == 0
