"""Brokers with rules, and clients that manage in the names of users."""

from __future__ import annotations

from ferrymq.engine.sasl import Plain
from ferrymq_broker.config.access import AccessRule
from ferrymq_broker.config.apply.rules import make_rule
from tests.broker.harness import Network
from tests.broker.management.asker import Asker

# What a client needs that manages over a dynamic queue.
_ENTRY = [
    AccessRule(who=["*"], may=["send", "receive"], where=["$management"]),
    AccessRule(who=["*"], may=["create"], where=["dynamic.*"]),
]


def rule(who: str, may: str, where: str, *, may_not: str = "") -> AccessRule:
    """Rights and addresses separated by spaces."""
    return AccessRule(who=[who], may=may.split(), may_not=may_not.split(), where=where.split())


def guard(net: Network, *rules: AccessRule) -> None:
    """From now on only what these allow is allowed, and to send requests."""
    net.space.rules[:] = [make_rule(one) for one in [*_ENTRY, *rules]]
    net.broker.guarded = True


def user(net: Network, name: str) -> Asker:
    """A client of the management node that this user has."""
    return Asker(net, net.connect(sasl=Plain(name, "any password"), container_id=f"box-{name}"))
