"""Credit that is taken back because a node has less room than its producers may use.

A node without a bound gives credit and counts none of it. It may get a bound later: by another
policy, by the first subscription of a topic that makes senders wait, by a binding. What its
producers have then is counted, and what is above the room is taken back. What is on its way by then
is taken in: credit was a promise (AMQP 1.0 §2.6.7).
"""

from __future__ import annotations

from typing import final

from ferrymq_broker.nodes.node import BOUNDLESS, Node, Producer
from ferrymq_broker.slices import LINK, SlicedTask, Slices


def narrow(node: Node) -> None:
    """Take back credit for a node, and for all that lead to it, that there is no room for."""
    producers: list[Producer] = []
    for way in _ways_to(node):
        if way.producers and not way.deleted and way.room() != BOUNDLESS:
            producers.extend(way.producers)
    if producers:
        node.agenda.slices.do(_Narrowing(producers))


def _ways_to(node: Node) -> list[Node]:
    """List the nodes through which messages come to a node, itself first."""
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
    """The producers of nodes that have less room: first all are counted, then all are cut down."""

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
