"""The addresses to which queues send dead letters. Reading from these addresses needs a right of
its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.access.patterns import node_of
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, TopicPolicy, is_own_sub_queue

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Space


@final
class DeadLetterIndex:
    """The dead-letter addresses of one virtual host: those of its queues, and those that the
    address patterns of the configuration set for future queues. An address counts as long as a
    queue or a pattern names it."""

    __slots__ = ("_space", "_named", "_nodes", "_aligned")

    def __init__(self, space: Space) -> None:
        self._space = space
        # How often each address is named, by the name that the queue uses.
        self._named: dict[str, int] = {}
        # The nodes behind these names, with aliases resolved: how many names lead to each node.
        self._nodes: dict[str, int] = {}
        self._aligned = True

    def add(self, names: list[str]) -> None:
        """Add the dead-letter addresses of a queue."""
        for name in names:
            count = self._named.get(name, 0)
            self._named[name] = count + 1
            if count == 0 and self._aligned:
                self._place(name)

    def drop(self, names: list[str]) -> None:
        """Remove the dead-letter addresses of a queue."""
        for name in names:
            count = self._named.get(name, 0)
            if count > 1:
                self._named[name] = count - 1
            elif count == 1:
                del self._named[name]
                if self._aligned:
                    self._displace(self._node(name))

    def realign(self) -> None:
        """Resolve all addresses again, because an alias has changed."""
        self._aligned = False

    def names(self, name: str) -> bool:
        """Return whether dead letters go to this name, to a part of the node of this name, or
        through an alias of this name."""
        return any(
            node_of(named) == name or self._space.passes(named, name) for named in self._named
        )

    def has(self, address: str) -> bool:
        """Return whether an address (of a node or of a part of a node, aliases resolved) gets dead
        letters."""
        if self._space.owner_of(address):
            # A sub-queue.
            return True
        if not self._named:
            return False
        if not self._aligned:
            self._nodes = {}
            for name in self._named:
                self._place(name)
            self._aligned = True
        return node_of(address) in self._nodes

    def _place(self, name: str) -> None:
        node = self._node(name)
        self._nodes[node] = self._nodes.get(node, 0) + 1

    def _displace(self, node: str) -> None:
        names = self._nodes.get(node, 0)
        if names > 1:
            self._nodes[node] = names - 1
        else:
            self._nodes.pop(node, None)

    def _node(self, name: str) -> str:
        try:
            return node_of(self._space.canonical(name))
        except BrokerError:
            # The aliases form a circle: no dead letter gets anywhere.
            return name


def dead_letter_addresses_of(policy: NodePolicy) -> list[str]:
    """Return the dead-letter addresses of a policy; for a topic, those of its subscriptions.

    Sub-queues are left out: they are known as such.
    """
    if isinstance(policy, TopicPolicy):
        policy = policy.subscription
    if not isinstance(policy, QueuePolicy):
        return []
    return [
        name
        for name in (policy.dead_letter, policy.expired, policy.forward_failed)
        if name and not is_own_sub_queue(policy, name)
    ]
