"""Figures of all nodes, read a few nodes at a time: whoever asks, the traffic goes on."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ferrymq_broker.broker import Broker
from ferrymq_broker.nodes.node import Node

# Nodes that are read in one pass of the event loop.
AT_ONCE: Final = 500

# Lets the event loop look at everybody else.
Pause = Callable[[], Awaitable[object]]


async def pause() -> None:
    """Go on in another pass."""
    await asyncio.sleep(0)


class Sums:
    """Figures summed by virtual host and kind of node. Nodes that come while it counts are for the
    next count, and so is the end of those that go: counters never fall."""

    def __init__(self) -> None:
        # By the name of the figure, then by virtual host and kind.
        self.figures: dict[str, dict[tuple[str, ...], float]] = {}
        self.nodes: dict[tuple[str, ...], float] = {}

    async def count(
        self,
        broker: Broker,
        retired: Mapping[tuple[str, str, str], int],
        wanted: frozenset[str],
        pause: Pause = pause,
    ) -> None:
        """Count the `wanted` figures of all nodes, with those of nodes that have gone before."""
        figures: dict[str, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
        for (space, kind, name), value in retired.items():
            figures[name][space, kind] += value
        nodes: dict[tuple[str, ...], float] = defaultdict(float)
        for at, (host, node) in enumerate(all_nodes(broker)):
            if at % AT_ONCE == AT_ONCE - 1:
                await pause()
            key = (host, node.kind)
            nodes[key] += 1
            for name, value in node.figures().items():
                if name in wanted:
                    figures[name][key] += value
        self.figures = figures
        self.nodes = nodes


def all_nodes(broker: Broker) -> list[tuple[str, Node]]:
    """Every node that there is now, with the name of its virtual host."""
    return [(name, node) for name, space in broker.spaces.items() for node in space.nodes.values()]
