"""Room that a node has only as far as the nodes behind it have: topics and exchanges.

A queue with a bound gives those who publish to it directly their share of its room. Those who
publish through a topic or an exchange starve there; a gate is what such a node puts among the
starved of the queue, to be told in its turn.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.node import BOUNDLESS, Node, Producer
from ferrymq_types.transport import Error


@final
class Backpressure(Producer):
    """Stands between `front`, which has producers, and `behind`, which has the room."""

    __slots__ = ("front", "behind", "_waits")

    def __init__(self, front: Node, behind: Node) -> None:
        self.front = front
        self.behind = behind
        # Whether it is among the starved of the node behind.
        self._waits = False
        if behind.fronts is None:
            behind.fronts = {front: None}
        else:
            behind.fronts[front] = None

    def wait(self) -> None:
        """Be told when the node behind has more room."""
        if not self._waits:
            self._waits = True
            self.behind.wait_for_room(self)

    def supply(self) -> None:
        """Share room that the node behind has again among the producers in front."""
        self._waits = False
        self.front.grant_room()

    def evict(self, error: Error) -> None:
        """Do nothing: the node behind is going away, and no link in front is attached to it."""

    def withdraw(self) -> None:
        """Stop waiting: nothing is published through it any more."""
        behind = self.behind
        if self._waits:
            behind.stop_waiting_for_room(self)
        self._waits = False
        if behind.fronts is not None:
            behind.fronts.pop(self.front, None)


@final
class BackpressureGroup:
    """The backpressure of one node, `front`, by the nodes behind it that had bounds when it last
    asked."""

    __slots__ = ("front", "_backpressures")

    def __init__(self, front: Node) -> None:
        self.front = front
        self._backpressures: dict[Node, Backpressure] = {}

    def room(self, nodes: list[Node]) -> i64:
        """Return what the fullest of the nodes behind has left; `front.grant_room` is called for
        more."""
        least: i64 = BOUNDLESS
        before = self._backpressures
        backpressures: dict[Node, Backpressure] = {}
        for node in nodes:
            room = node.room()
            if room == BOUNDLESS:
                continue
            backpressure = before.pop(node, None)
            if backpressure is None:
                backpressure = Backpressure(self.front, node)
            backpressures[node] = backpressure
            backpressure.wait()
            # What its own producers have been promised, the node in front knows itself.
            room -= node.pledged() - self.front.pledged()
            if room < least:
                least = room
        for stale in before.values():
            stale.withdraw()
        self._backpressures = backpressures
        return least

    def spare_room(self, nodes: list[Node]) -> i64:
        """Return the `room` that is left beyond all promises, for a publisher that does not wait
        for more."""
        least: i64 = BOUNDLESS
        for node in nodes:
            room = node.room()
            if room != BOUNDLESS:
                room -= node.pledged()
                if room < least:
                    least = room
        return least

    def regain_room(self) -> None:
        """Less is promised in front: others of the nodes behind may have it."""
        for node in self._backpressures:
            node.regain_room()

    def withdraw(self) -> None:
        """Stop waiting for room: no producer is left to be told."""
        for backpressure in self._backpressures.values():
            backpressure.withdraw()
        self._backpressures = {}
