"""The spelling of entities: clients may write capitals as they like, the broker may not."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import PART
from ferrymq_servicebus.entities import SUB_QUEUES

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.topics.subscription import Subscription


@final
class EntityNames:
    """The native addresses of all nodes of a virtual host, found whatever their capitals are.

    Make it before nodes are stored or declared: it notes each node that is added from then on. If
    two nodes differ in capitals only, each is found by its own spelling, and the first one by all
    others.
    """

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._spelled: dict[str, str] = {}
        for node in space.nodes.values():
            self._on_change(node, True)
        space.on_change.append(self._on_change)

    def _on_change(self, node: Node, there: bool) -> None:
        folded = node.address.casefold()
        if there:
            self._spelled.setdefault(folded, node.address)
        elif self._spelled.get(folded) == node.address:
            del self._spelled[folded]

    def spelled(self, address: str) -> str:
        """Return the spelling in which the node at a native address was made; the address as it
        is if there is no such node.

        For a sub-queue or a subscription that does not exist, the spelling of its owner counts.
        """
        if address in self._space.nodes:
            return address
        found = self._spelled.get(address.casefold())
        if found is not None:
            return found
        for name in SUB_QUEUES:
            end = -len(name) - 1
            if address[end:].casefold() == f"/{name}".casefold():
                return f"{self.spelled(address[:end])}/{name}"
        topic, separator, part = address.rpartition(PART)
        if not separator or not topic:
            return address
        topic = self.spelled(topic)
        node = self._space.nodes.get(topic)
        if isinstance(node, Topic):
            subscription = _subscription(node, part)
            part = part if subscription is None else subscription.name
        return f"{topic}{PART}{part}"


def _subscription(topic: Topic, name: str) -> Subscription | None:
    """Return the subscription of a name whose capitals do not matter."""
    found = topic.declared_subscription(name)
    if found is not None:
        return found
    folded = name.casefold()
    for subscription in topic.subscriptions():
        if subscription.name.casefold() == folded:
            return subscription
    return None
