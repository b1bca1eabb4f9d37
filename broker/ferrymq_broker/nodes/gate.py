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
class Gate(Producer):
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
            self.behind.starve(self)

    def supply(self) -> None:
        """The node behind has room again: those who starve in front share it."""
        self._waits = False
        self.front.relieve()

    def evict(self, error: Error) -> None:
        """The node behind is going away; nobody in front has a link to it."""

    def withdraw(self) -> None:
        """Nothing is published through it any more."""
        behind = self.behind
        if self._waits:
            behind.feed(self)
        self._waits = False
        if behind.fronts is not None:
            behind.fronts.pop(self.front, None)


@final
class Gates:
    """Those of one node, `front`, to the nodes behind it that had bounds when it last asked."""

    __slots__ = ("front", "_gates")

    def __init__(self, front: Node) -> None:
        self.front = front
        self._gates: dict[Node, Gate] = {}

    def room(self, nodes: list[Node]) -> i64:
        """What the fullest of the nodes behind has left; `front.relieve` is called for more."""
        least: i64 = BOUNDLESS
        before = self._gates
        gates: dict[Node, Gate] = {}
        for node in nodes:
            room = node.room()
            if room == BOUNDLESS:
                continue
            gate = before.pop(node, None)
            if gate is None:
                gate = Gate(self.front, node)
            gates[node] = gate
            gate.wait()
            # What its own producers have been promised, the node in front knows itself.
            room -= node.pledged() - self.front.pledged()
            if room < least:
                least = room
        for stale in before.values():
            stale.withdraw()
        self._gates = gates
        return least

    def spare_room(self, nodes: list[Node]) -> i64:
        """As `room`, for somebody who does not wait for more: what is left beyond all promises."""
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
        for node in self._gates:
            node.regain_room()

    def withdraw(self) -> None:
        """There is nobody left to be told."""
        for gate in self._gates.values():
            gate.withdraw()
        self._gates = {}
