"""LIST-LINKS: the links of a node, and how many messages each of them holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.link_ports import ClientConsumer, ProducerPort
from ferrymq_broker.connections.shown_links import UnsettledCounts
from ferrymq_broker.management.connections import ConnectionEntities, describe_link, links_of
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import ROWS, Steps
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue

# The most links in one answer.
_MOST: Final = 1000


class NodeLinks:
    """The operation LIST-LINKS on the nodes of a virtual host, whose connections are given."""

    def __init__(self, connections: ConnectionEntities) -> None:
        self._connections = connections

    def operations(self, find: Callable[[Call], Node]) -> dict[str, Operation]:
        """Return the operation; `find` returns the node of a request."""
        return {"LIST-LINKS": Operation(lambda call: self._list(call, find), ("count",))}

    def _list(self, call: Call, find: Callable[[Call], Node]) -> Steps[Result]:
        """Handle LIST-LINKS: return the links that consume from the node or publish to it, those
        with the most unsettled deliveries first.

        `total` is how many there are. `elsewhere` is how many messages are held by no link: by
        basic.get, by a lock that has outlived its link, or by a receiver of deferred messages.
        """
        call.expect_only("count")
        node = find(call)
        count = min(call.number("count", _MOST, 1), _MOST)
        found: list[dict[str, object]] = []
        places = [node, *(part for part in node.parts() if part.producers)]
        for handler in self._handlers(node):
            counts = UnsettledCounts()
            for at, link in enumerate(links_of(handler), 1):
                if at % ROWS == 0:
                    yield None
                if any(link.uses(place) for place in places):
                    found.append({**describe_link(link, counts), "identity": link.identity()})
            yield None
        found.sort(key=lambda link: (-_unsettled(link), str(link["identity"])))
        result: dict[str, object] = {"links": found[:count], "total": len(found)}
        if isinstance(node, Queue):
            held = sum(_unsettled(link) for link in found if link["role"] == "receiver")
            result["elsewhere"] = max(int(node.acquired) - held, 0)
        return Result(result)

    def _handlers(self, node: Node) -> list[ClientHandler]:
        """Return the connections that have a link at the node."""
        numbers: set[int] = set()
        for place in (node, *node.parts()):
            for producer in place.producers:
                if isinstance(producer, ProducerPort):
                    numbers.add(int(producer.origin))
            for consumer in place.consumers_of():
                if isinstance(consumer, ClientConsumer):
                    numbers.add(int(consumer.connection_number()))
        return [
            handler
            for handler in self._connections.entries_of("").values()
            if int(handler.client.id) in numbers
        ]


def _unsettled(link: dict[str, object]) -> int:
    unsettled = link.get("unsettled")
    return unsettled if isinstance(unsettled, int) else 0
