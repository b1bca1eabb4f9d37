"""Bindings: each connects an exchange to a node that it hands messages on to."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.node import Node


@final
class Destination:
    """A node with bindings from one exchange; `bindings` is how many.

    `seen` is the number of the last routing that came upon it: so a message goes to it once,
    however many bindings match.
    """

    __slots__ = ("node", "bindings", "seen")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.bindings: i64 = 0
        self.seen: i64 = 0


@final
class Binding:
    """Messages with a matching `key`, or whose headers match the `arguments`, go to `destination`.

    Two bindings of one exchange are the same if destination, key and arguments are. `order` is
    greater than that of all the exchange had before. `stored` is whether there is a record of it.
    """

    __slots__ = ("key", "arguments", "target", "order", "stored")

    def __init__(
        self, target: Destination, key: str, arguments: dict[str, object], order: i64
    ) -> None:
        self.target = target
        self.key = key
        self.arguments = arguments
        self.order: i64 = order
        self.stored = False

    @property
    def destination(self) -> str:
        """The address of the node."""
        return self.target.node.address

    def identity(self) -> str:
        """Equal for equal bindings only."""
        return identity_of(self.destination, self.key, self.arguments)

    def describe(self) -> dict[str, object]:
        """By public names."""
        return {"destination": self.destination, "key": self.key, "arguments": self.arguments}


def identity_of(destination: str, key: str, arguments: dict[str, object]) -> str:
    """Return what tells bindings of one exchange apart."""
    if not arguments:
        return repr((destination, key))
    return repr((destination, key, sorted(arguments.items(), key=_name)))


def _name(item: tuple[str, object]) -> str:
    return item[0]
