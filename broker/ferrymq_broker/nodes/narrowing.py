"""Taking back credit when a node has less room than the credit of its producers.

A node without a bound gives credit and does not count it. It may get a bound later: by another
policy, by the first subscription of a topic that makes senders wait, or by a binding. Then the
credit of its producers is counted, and credit above the room is taken back. Messages already on
their way are still accepted, because credit was a promise (AMQP 1.0 §2.6.7).
"""

from __future__ import annotations

from typing import final

from ferrymq_broker.nodes.node import BOUNDLESS, Node, Producer
from ferrymq_broker.slices import LINK, SlicedTask, Slices


def narrow(node: Node) -> None:
    """Take back the credit above the room of a node, from its producers and those of all nodes that
    lead to it."""
    producers: list[Producer] = []
    for way in _ways_to(node):
        if way.producers and not way.deleted and way.room() != BOUNDLESS:
            producers.extend(way.producers)
    if producers:
        node.agenda.slices.do(_Narrowing(producers))


def _ways_to(node: Node) -> list[Node]:
    """Return the nodes through which messages come to a node, the node itself first."""
    found: dict[Node, None] = {node: None}
    waiting = [node]
    while waiting:
        for way in waiting.pop().ways_in():
            if way not in found:
                found[way] = None
                waiting.append(way)
    return list(found)


@final
class _Narrowing(SlicedTask):
    """The task for producers of nodes that have less room: first it counts the credit of all, then
    it reduces it."""

    __slots__ = ("_uncounted", "_counted")

    def __init__(self, producers: list[Producer]) -> None:
        super().__init__()
        producers.reverse()
        self._uncounted = producers
        self._counted: list[Producer] = []

    def go_on(self, slices: Slices) -> bool:
        """Go on with as many producers as the slice allows."""
        while self._uncounted:
            if slices.is_spent():
                return False
            slices.spend(LINK)
            producer = self._uncounted.pop()
            producer.meter()
            self._counted.append(producer)
        while self._counted:
            if slices.is_spent():
                return False
            slices.spend(LINK)
            self._counted.pop().narrow()
        return True
