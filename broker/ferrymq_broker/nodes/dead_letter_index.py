"""The addresses that dead and expired messages of queues go to: it takes a right of its own to
read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq_broker.access.patterns import node_of
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, TopicPolicy

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Space


@final
class DeadLetterIndex:
    """The addresses that queues of one virtual host have for their dead letters, and that the
    patterns of the configuration would give to theirs. Each counts as long as it is named."""

    __slots__ = ("_space", "_named", "_nodes", "_aligned")

    def __init__(self, space: Space) -> None:
        self._space = space
        # By the name a queue has for it, how often it is named.
        self._named: dict[str, int] = {}
        # The nodes they are, which takes following aliases: how many names each has.
        self._nodes: dict[str, int] = {}
        self._aligned = True

    def add(self, names: list[str]) -> None:
        """Count a queue that sends its dead letters to these addresses."""
        for name in names:
            count = self._named.get(name, 0)
            self._named[name] = count + 1
            if count == 0 and self._aligned:
                self._place(name)

    def drop(self, names: list[str]) -> None:
        """Forget a queue that sends its dead letters to these addresses no longer."""
        for name in names:
            count = self._named.get(name, 0)
            if count > 1:
                self._named[name] = count - 1
            elif count == 1:
                del self._named[name]
                if self._aligned:
                    self._displace(self._node(name))

    def realign(self) -> None:
        """Resolve the addresses again: an alias leads elsewhere."""
        self._aligned = False

    def names(self, name: str) -> bool:
        """Return whether letters go to what has this name, or to a part of that, or get where they
        go by an alias of this name."""
        return any(
            node_of(named) == name or self._space.passes(named, name) for named in self._named
        )

    def has(self, address: str) -> bool:
        """Return whether an address, of a node or of a part of one, with aliases followed, is
        one."""
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
            # Aliases in a circle: no letter gets anywhere.
            return name


def dead_letter_addresses_of(policy: NodePolicy) -> list[str]:
    """Return where the letters of a node with this policy go, or of the subscriptions of such a
    topic."""
    if isinstance(policy, TopicPolicy):
        policy = policy.subscription
    if not isinstance(policy, QueuePolicy):
        return []
    return [name for name in (policy.dead_letter, policy.expired) if name]
