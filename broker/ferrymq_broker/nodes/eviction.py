"""The end of a deleted node: its links are ended, then its parts and messages are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import mypyc_attr

from ferrymq_broker.slices import LINK, MESSAGE, SlicedTask, Slices

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.node import Node, Producer
    from ferrymq_types.transport import Error


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkEnd:
    """The deleted `nodes` whose counters may still change, because their links and messages are
    removed in slices."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: dict[Node, None] = {}

    def add(self, node: Node) -> None:
        """Keep a node that is deleted, or will be in this pass, until its removal is complete."""
        ending = node.ending
        if ending is not None and ending.over:
            self.settle(node)
        else:
            self.nodes[node] = None
            node.space.leaving[node] = self

    def on_over(self, node: Node) -> None:
        """Release a node whose links and messages are gone."""
        del self.nodes[node]
        self.settle(node)

    def settle(self, node: Node) -> None:
        """Add up the counters of the node, which do not change any more."""


@final
class Eviction(SlicedTask):
    """The task that ends the links of a deleted node, then drops its parts and messages, in slices.

    `over` is whether all of that is done.
    """

    __slots__ = ("over", "_node", "_error", "_producers", "_consumers", "_parts", "_ending")

    def __init__(self, node: Node, error: Error) -> None:
        super().__init__()
        self.over: bool = False
        self._node = node
        self._error = error
        # The next slice is the last one.
        self._producers: list[Producer] = list(node.producers)
        self._producers.reverse()
        self._consumers: list[Consumer] = node.consumers_of()
        self._consumers.reverse()
        self._parts: list[Node] = node.parts()
        self._parts.reverse()
        self._ending: list[Eviction] = []

    def go_on(self, slices: Slices) -> bool:
        """End as many links, parts and messages as the slice allows."""
        error = self._error
        while self._producers:
            if slices.is_spent():
                return False
            self._producers.pop().evict(error)
            slices.spend(LINK)
        while self._consumers:
            if slices.is_spent():
                return False
            consumer = self._consumers.pop()
            slices.spend(LINK + consumer.held * MESSAGE)
            consumer.evict(error)
        while self._parts:
            if slices.is_spent():
                return False
            part = self._parts.pop()
            slices.spend(LINK)
            part.delete(error)
            ending = part.ending
            if ending is not None and not ending.over:
                self._ending.append(ending)
        while self._ending and self._ending[-1].over:
            self._ending.pop()
        if self._ending or not self._node.drop_rest(slices):
            return False
        self.over = True
        leaving = self._node.space.leaving.pop(self._node, None)
        if leaving is not None:
            leaving.on_over(self._node)
        return True
