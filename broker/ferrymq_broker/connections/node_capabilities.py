"""The kind of node that a terminus asks for by its capabilities.

JMS clients say ``queue`` or ``topic`` of every destination. What is asked for and is not what the
address names is a contradiction, better told at once than found out from messages that get lost.
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

# The capabilities that name a kind, and the kinds of nodes that are such a thing. To publish to an
# exchange or a stream, and to read a stream, is what others call a topic.
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
    """Return those of the capabilities that the node has by its kind.

    Raises `BrokerError` if some name kinds and the node is none of them.
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
    """Return whether a dynamic node is to be a topic."""
    return TOPIC in capabilities or TEMPORARY_TOPIC in capabilities


def add_missing(granted: list[str], fitting: list[str]) -> None:
    """Put those of `fitting` into `granted` that are not there."""
    for capability in fitting:
        if capability not in granted:
            granted.append(capability)
