"""Totals of subscriptions that have ended: sums over a topic do not fall when one of them goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.nodes.eviction import LinkEnd
from ferrymq_broker.nodes.queues.queue import Queue

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node


@final
class EndedSubscriptions(LinkEnd):
    """Counters of ended subscriptions of one topic: `totals` by public names."""

    __slots__ = ("totals",)

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[str, int] = {}

    def settle(self, node: Node) -> None:
        """Add up what a queue has counted."""
        if isinstance(node, Queue):
            totals = self.totals
            for name, value in node.totals().items():
                totals[name] = totals.get(name, 0) + value
