"""The nodes and bindings that the configuration declares in one virtual host.

A declared node exists from the start and is not deleted for lack of use. The same is true for a
node that a declared exchange sends messages to. Management may delete a declared node. It is made
again, with its declared policy and bindings, when a client uses its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.exchanges.exchange import Exchange

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.values.policy import NodePolicy

# The origin of declared nodes (`Node.origin`).
CONFIGURATION: Final = "configuration"


@final
class DeclaredBinding:
    """A binding of the exchange at one address to the node at another one."""

    __slots__ = ("exchange", "destination", "key", "arguments")

    def __init__(
        self, exchange: str, destination: str, key: str, arguments: dict[str, object]
    ) -> None:
        self.exchange: str = exchange
        self.destination: str = destination
        self.key: str = key
        self.arguments: dict[str, object] = arguments


@final
class Declarations:
    """The policies of declared nodes by their names, and the declared bindings."""

    __slots__ = ("policies", "_led_to", "_by_exchange", "_by_destination")

    def __init__(self) -> None:
        self.policies: dict[str, NodePolicy] = {}
        # Addresses that declared exchanges send messages to.
        self._led_to: set[str] = set()
        self._by_exchange: dict[str, list[DeclaredBinding]] = {}
        self._by_destination: dict[str, list[DeclaredBinding]] = {}

    def keeps(self, address: str) -> bool:
        """Return whether a node at this address is kept even if it is not used."""
        return address in self.policies or address in self._led_to

    def lead_to(self, node: Node) -> None:
        """Keep a node that a declared exchange sends messages to."""
        self._led_to.add(node.address)
        node.declared = True

    def bind(self, exchange: Exchange, node: Node, key: str, arguments: dict[str, object]) -> None:
        """Bind a node to an exchange now, and again whenever one of the two is made again."""
        binding = DeclaredBinding(exchange.address, node.address, key, arguments)
        self._by_exchange.setdefault(binding.exchange, []).append(binding)
        self._by_destination.setdefault(binding.destination, []).append(binding)
        self.lead_to(node)
        exchange.bind(node.address, key, dict(arguments))

    def forget(self, names: list[str]) -> None:
        """Forget declared nodes, and the declared bindings of exchanges among them. The nodes and
        their bindings stay."""
        for name in names:
            self.policies.pop(name, None)
            for binding in self._by_exchange.pop(name, []):
                there = self._by_destination[binding.destination]
                there.remove(binding)
                if not there:
                    del self._by_destination[binding.destination]
                    self._led_to.discard(binding.destination)

    def bind_again(self, space: AddressSpace, node: Node) -> None:
        """Restore the declared bindings from and to a node that was made again."""
        if isinstance(node, Exchange):
            for binding in self._by_exchange.get(node.address, []):
                _bind(space, node, binding)
        for binding in self._by_destination.get(node.address, []):
            exchange = space.nodes.get(binding.exchange)
            if isinstance(exchange, Exchange):
                _bind(space, exchange, binding)


def _bind(space: AddressSpace, exchange: Exchange, binding: DeclaredBinding) -> None:
    try:
        # A destination that a template makes may have been deleted too.
        space.resolve(binding.destination)
        exchange.bind(binding.destination, binding.key, dict(binding.arguments))
    except BrokerError as error:
        log.warning(
            "a declared binding cannot be made again",
            space=space.name,
            exchange=binding.exchange,
            destination=binding.destination,
            reason=error.description,
        )
