"""The kind of node that a terminus asks for by its capabilities.

JMS clients send ``queue`` or ``topic`` for every destination. If the node at the address is of
another kind, the attach is refused, so that the mistake is found before messages are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node

QUEUE: Final = "queue"
TOPIC: Final = "topic"
TEMPORARY_TOPIC: Final = "temporary-topic"

# The capabilities that name a kind, and the kinds of nodes that match them. For an exchange and a
# stream, ``topic`` is right when publishing, and for a stream also when reading.
_KINDS: Final[dict[str, tuple[str, ...]]] = {
    QUEUE: ("queue",),
    "temporary-queue": ("queue",),
    TOPIC: ("topic", "exchange", "stream"),
    TEMPORARY_TOPIC: ("topic",),
    "stream": ("stream",),
    "exchange": ("exchange",),
}
_TOLD_APART: Final = ("queue", "topic", "exchange", "stream")


def check_kind(node: Node, capabilities: Sequence[str]) -> list[str]:
    """Return the capabilities that the node has by its kind.

    Raises `BrokerError` if some of them name kinds and the node is of none of these kinds.
    """
    kind = node.kind
    fitting: list[str] = []
    wanted = ""
    if kind not in _TOLD_APART:
        return fitting
    for capability in capabilities:
        kinds = _KINDS.get(capability)
        if kinds is None:
            continue
        if kind in kinds:
            fitting.append(capability)
        else:
            wanted = capability
    if wanted and not fitting:
        raise BrokerError(
            "amqp:precondition-failed", f"{node.address[:200]!r} is a {kind}, not a {wanted}"
        )
    return fitting


def wants_topic(capabilities: Sequence[str]) -> bool:
    """Return whether the dynamic node must be a topic."""
    return TOPIC in capabilities or TEMPORARY_TOPIC in capabilities


def add_missing(granted: list[str], fitting: list[str]) -> None:
    """Append those of `fitting` to `granted` that are missing."""
    for capability in fitting:
        if capability not in granted:
            granted.append(capability)
