"""Backpressure for topics and exchanges, which have only the room of the nodes behind them.

A queue with a bound shares its room among the producers that publish to it directly. Producers that
publish through a topic or an exchange would get none of that room. Therefore such a node registers
a `Backpressure` with the queue, as one more producer that waits for room and is told in its turn.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.node import BOUNDLESS, Node, Producer
from ferrymq_types.transport import Error


@final
class Backpressure(Producer):
    """The link between a node `front`, which has producers, and a node `behind`, which has the
    room."""

    __slots__ = ("front", "behind", "_waits")

    def __init__(self, front: Node, behind: Node) -> None:
        self.front: Node = front
        self.behind: Node = behind
        # Whether this object waits for room at the node behind.
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
        """Share the new room of the node behind among the producers in front."""
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
    """The `Backpressure` objects of one node, `front`: one for each node behind it that had a bound
    when `front` last asked for its room."""

    __slots__ = ("front", "_backpressures")

    def __init__(self, front: Node) -> None:
        self.front: Node = front
        self._backpressures: dict[Node, Backpressure] = {}

    def room(self, nodes: list[Node]) -> i64:
        """Return the room of the fullest node behind; `front.grant_room` is called when there is
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
            # The node in front counts the credit of its own producers itself.
            room -= node.pledged() - self.front.pledged()
            if room < least:
                least = room
        for stale in before.values():
            stale.withdraw()
        self._backpressures = backpressures
        return least

    def spare_room(self, nodes: list[Node]) -> i64:
        """Return the `room` beyond all promised credit, for a publisher that does not wait for
        more."""
        least: i64 = BOUNDLESS
        for node in nodes:
            room = node.room()
            if room != BOUNDLESS:
                room -= node.pledged()
                if room < least:
                    least = room
        return least

    def regain_room(self) -> None:
        """Offer room that is no longer promised in front to other producers of the nodes behind."""
        for node in self._backpressures:
            node.regain_room()

    def withdraw(self) -> None:
        """Stop waiting for room: no producer is left to be told."""
        for backpressure in self._backpressures.values():
            backpressure.withdraw()
        self._backpressures = {}
