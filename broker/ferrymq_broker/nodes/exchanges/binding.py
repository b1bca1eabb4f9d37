"""Bindings: each binding connects an exchange to a node that gets its messages."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.nodes.node import Node


@final
class Destination:
    """A node that one exchange is bound to; `bindings` is the number of bindings.

    `seen` is the number of the last routing that found this node. By that, a message goes to the
    node once, however many bindings match.
    """

    __slots__ = ("node", "bindings", "seen")

    def __init__(self, node: Node) -> None:
        self.node: Node = node
        self.bindings: i64 = 0
        self.seen: i64 = 0


@final
class Binding:
    """A binding: messages with a matching `key`, or with headers that match `arguments`, go to
    `destination`.

    Two bindings of an exchange are equal if destination, key and arguments are equal. `order` is
    higher than that of every earlier binding of the exchange. `stored` is whether the binding has a
    record.
    """

    __slots__ = ("key", "arguments", "target", "order", "stored")

    def __init__(
        self, target: Destination, key: str, arguments: dict[str, object], order: i64
    ) -> None:
        self.target: Destination = target
        self.key: str = key
        self.arguments: dict[str, object] = arguments
        self.order: i64 = order
        self.stored: bool = False

    @property
    def destination(self) -> str:
        """The address of the node."""
        return self.target.node.address

    def identity(self) -> str:
        """A text that is the same for equal bindings only."""
        return identity_of(self.destination, self.key, self.arguments)

    def describe(self) -> dict[str, object]:
        """Return the fields of the binding by their public names."""
        return {"destination": self.destination, "key": self.key, "arguments": self.arguments}


def identity_of(destination: str, key: str, arguments: dict[str, object]) -> str:
    """Return the text that identifies a binding in its exchange."""
    if not arguments:
        return repr((destination, key))
    return repr((destination, key, sorted(arguments.items(), key=_name)))


def _name(item: tuple[str, object]) -> str:
    return item[0]
