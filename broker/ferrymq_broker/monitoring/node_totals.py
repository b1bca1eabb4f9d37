"""The figures of all nodes, read a few nodes at a time so that traffic goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from ferrymq_broker.broker import Broker
from ferrymq_broker.nodes.eviction import LinkEnd
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import PART

# Nodes that are read in one pass of the event loop.
AT_ONCE: Final = 500
# The kind of subscriptions, beside the kinds of nodes.
SUBSCRIPTION: Final = "subscription"
# The name for the sum of all subscriptions with random names. No subscription can have this name.
UNNAMED: Final = "~"

# Figures of `Node.describe` that only grow, with their help texts.
COUNTERS: Final = {
    "published": "Messages accepted from producers",
    "delivered": "Deliveries to consumers",
    "accepted": "Deliveries accepted, or sent settled",
    "released": "Deliveries released, or modified without delivery-failed",
    "modified": "Deliveries modified with delivery-failed or undeliverable-here",
    "rejected": "Deliveries rejected",
    "locks-lost": "Locks of messages that lapsed",
    "leases-lost": "Leases of messages that lapsed",
    "refused": "Messages refused",
    "expirations": "Messages that expired",
    "dead-lettered": "Messages moved to a dead-letter address",
    "dropped": "Messages dropped by a policy",
    "overflowed": "Messages removed to make room for newer ones",
    "replaced": "Messages replaced by newer ones with the same key",
    "duplicates": "Messages dropped as duplicates",
    "forwarded": "Messages sent on to another node",
    "unroutable": "Messages that matched no binding",
}
# Figures that rise and fall.
GAUGES: Final = {
    "available": "Messages that wait for a consumer",
    "acquired": "Messages that consumers hold",
    "deferred": "Messages that are deferred",
    "locked": "Messages that are locked",
    "leased": "Messages that are leased",
    "scheduled": "Messages that are scheduled for later",
    "paged-out": "Messages that are on disk only",
    "excess": "Messages above max-length",
    "excess-bytes": "Bytes of messages above max-bytes",
    "bytes": "Bytes of messages in the node",
    "records": "Records in a stream",
    "bytes-for-holds": "Bytes in a stream that are kept only because of holds",
    "consumers": "Links that consume",
    "producers": "Links that publish",
    "subscriptions": "Subscriptions of a topic",
}
_OF_QUEUES: Final = tuple(name for name in COUNTERS if name != "unroutable")
# The counters of each kind. Their sums exist from the start, before the first such node, so that
# the first message is an increase from 0.
BY_KIND: Final[dict[str, tuple[str, ...]]] = {
    "queue": _OF_QUEUES,
    SUBSCRIPTION: _OF_QUEUES,
    "topic": ("published", "refused", "duplicates"),
    "stream": ("published", "delivered"),
    "exchange": ("published", "refused", "unroutable"),
}

# A function that lets the event loop do other work.
Pause = Callable[[], Awaitable[object]]


async def pause() -> None:
    """Yield to the event loop, which does other work meanwhile."""
    await asyncio.sleep(0)


class NodeRow(NamedTuple):
    """The figures of a node, with its virtual host, kind and address.

    Consecutive rows with the same address are summed. A row without an address counts only in the
    sums, and only its counters are used.
    """

    host: str
    kind: str
    address: str
    figures: Callable[[], Mapping[str, int]]


def all_rows(broker: Broker) -> Iterator[NodeRow]:
    """Yield a row for each node that exists now, and for each subscription of topics.

    The subscriptions of a topic are read when its row is reached. The counters of subscriptions
    that have ended by then are read at the same time, so nothing is missing or counted twice.
    """
    nodes = [(host, node) for host, space in broker.spaces.items() for node in space.nodes.values()]
    for host, node in nodes:
        yield NodeRow(host, node.kind, node.address, node.figures)
        if isinstance(node, Topic):
            yield from _rows_of_subscriptions(host, node)


def _rows_of_subscriptions(host: str, topic: Topic) -> Iterator[NodeRow]:
    # Copies, because the caller may let other work run between two rows.
    subscriptions = topic.subscriptions()
    ended = [(*_rows_of_ended(host, topic, named),) for named in (True, False)]
    for one in subscriptions:
        if one.named:
            yield NodeRow(host, SUBSCRIPTION, one.address, one.queue.figures)
    yield from ended[0]
    together = f"{topic.address}{PART}{UNNAMED}"
    for row in ended[1]:
        yield row._replace(address=together)
    for one in subscriptions:
        if not one.named:
            yield NodeRow(host, SUBSCRIPTION, together, one.queue.figures)


def _rows_of_ended(host: str, topic: Topic, named: bool) -> Iterator[NodeRow]:
    ended = topic.ended(named)
    if ended is not None:
        totals = dict(ended.totals)
        yield NodeRow(host, SUBSCRIPTION, "", lambda: totals)
        for node in ended.nodes:
            if isinstance(node, Queue):
                yield NodeRow(host, SUBSCRIPTION, "", node.totals)


class RetiredNodes(LinkEnd):
    """The counters of deleted nodes, for `AddressSpace.on_change`.

    `totals` has the counters of nodes that have ended, by virtual host, kind and name of the
    figure.
    """

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[tuple[str, str, str], int] = defaultdict(int)

    def on_change(self, node: Node, added: bool) -> None:
        """Keep the counters of a node that is removed."""
        if not added:
            self.add(node)

    def settle(self, node: Node) -> None:
        """Add the counters of the node and its subscriptions to the totals."""
        for row in rows_of(node):
            for name, value in row.figures().items():
                if name in COUNTERS and value:
                    self.totals[row.host, row.kind, name] += value


def rows_of(node: Node) -> Iterator[NodeRow]:
    """Yield the rows of a deleted node, which count only in the sums."""
    host = node.space.name
    yield NodeRow(host, node.kind, "", node.figures)
    if isinstance(node, Topic):
        for row in _rows_of_subscriptions(host, node):
            yield row._replace(address="")


class NodeTotals:
    """Figures summed by virtual host and kind of node. Nodes that are added or removed during a
    count are handled by the next count, so counters never fall."""

    def __init__(self) -> None:
        # By the name of the figure, then by virtual host and kind.
        self.figures: dict[str, dict[tuple[str, ...], float]] = {}
        self.nodes: dict[tuple[str, ...], float] = {}

    async def count(self, broker: Broker, retired: RetiredNodes, pause: Pause = pause) -> None:
        """Sum the figures of all nodes, with those of deleted nodes."""
        figures: dict[str, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
        for kind, names in BY_KIND.items():
            for name in names:
                figures[name].update({(space.name, kind): 0.0 for space in broker.served_spaces()})
        for (host, kind, name), value in retired.totals.items():
            figures[name][host, kind] += value
        nodes: dict[tuple[str, ...], float] = defaultdict(float)
        leaving = chain.from_iterable(map(rows_of, list(retired.nodes)))
        for at, row in enumerate(chain(all_rows(broker), leaving)):
            if at % AT_ONCE == AT_ONCE - 1:
                await pause()
            key = (row.host, row.kind)
            if row.address and row.kind != SUBSCRIPTION:
                nodes[key] += 1
            for name, value in row.figures().items():
                if name in COUNTERS or (row.address and name in GAUGES):
                    figures[name][key] += value
        self.figures = figures
        self.nodes = nodes
