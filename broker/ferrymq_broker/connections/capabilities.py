"""The capabilities that the broker offers: in its open, and to links that ask for them (AMQP 1.0
§2.7.1-3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ferrymq.engine.pairing import LINK_PAIR
from ferrymq_broker.nodes.queues.queue import Queue

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.values.policy import QueuePolicy

# Anonymous Terminus for Message Routing 1.0 §2.1.
ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
SHARED_SUBSCRIPTIONS: Final = "SHARED-SUBS"
DELAYED_DELIVERY: Final = "DELAYED_DELIVERY"
# A queue that takes back, as a new message, what a client has received from it: nothing of it is
# seen as a duplicate, replaces a newer value, leaves the order of its group or pushes others out.
REQUEUE: Final = "ferrymq:requeue"

# The offered-capabilities of the broker's open.
OFFERED: Final = (ANONYMOUS_RELAY, LINK_PAIR, SHARED_SUBSCRIPTIONS)

# The capabilities that links may ask for, and the kinds of nodes that have them. Delayed delivery
# is not a capability of the whole broker, because streams cannot delay messages.
_OF_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    SHARED_SUBSCRIPTIONS: ("topic",),
    "AMQP_FILTEX_PROP_V1_0": ("queue", "topic", "stream"),
    "AMQP_FILTEX_SQL_V1_0": ("queue", "topic", "stream"),
}
_OF_TARGETS: Final[dict[str, tuple[str, ...]]] = {DELAYED_DELIVERY: ("queue", "topic")}


def offered_by_source(node: Node, desired: Sequence[str] | None) -> list[str] | None:
    """Return the desired capabilities that a link from this node has."""
    return _offered(_OF_SOURCES, node, desired)


def offered_by_target(node: Node | None, desired: Sequence[str] | None) -> list[str] | None:
    """Return the desired capabilities that a link to this node has."""
    if node is None:
        return None
    offered = _offered(_OF_TARGETS, node, desired)
    if desired and REQUEUE in desired and isinstance(node, Queue) and _takes_back(node.policy):
        return [*(offered or ()), REQUEUE]
    return offered


def _takes_back(policy: QueuePolicy) -> bool:
    return (
        policy.duplicate_window == 0
        and not policy.last_value_key
        and not policy.groups
        and (policy.max_length == policy.max_bytes == 0 or policy.overflow in ("reject", "block"))
    )


def _offered(
    known: dict[str, tuple[str, ...]], node: Node, desired: Sequence[str] | None
) -> list[str] | None:
    if not desired:
        return None
    kind = node.kind
    return [name for name in desired if kind in known.get(name, ())] or None
