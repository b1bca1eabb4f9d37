"""The tables by which the four types of exchange find the bindings that match a message.

A table appends the destinations it finds to a list. It marks each one with the number of the
routing, so that each destination is in the list once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.exchanges.binding import Binding, Destination
from ferrymq_broker.nodes.exchanges.headers_index import HeadersIndex
from ferrymq_broker.nodes.exchanges.headers_match import HeadersMatch
from ferrymq_broker.nodes.exchanges.trie import Trie
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage


class BindingTable:
    """The bindings of one exchange, indexed for look-up. `keyed` is whether keys matter."""

    __slots__ = ("keyed",)

    def __init__(self, keyed: bool) -> None:
        self.keyed: bool = keyed

    def check(self, key: str, arguments: dict[str, object]) -> None:
        """Raise `BrokerError` if such a binding is invalid for this type of exchange."""

    def add(self, binding: Binding) -> None:
        """Add a binding."""

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""

    def match(
        self, key: str, message: BrokerMessage | None, number: i64, found: list[Destination]
    ) -> None:
        """Append the destinations of bindings that match.

        Without a message, append the destinations that the key alone could match.
        """


@final
class DirectTable(BindingTable):
    """The table of a direct exchange: the key of the message equals the key of the binding."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        super().__init__(True)
        self._by_key: dict[str, list[Destination]] = {}

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        known = self._by_key.get(binding.key)
        if known is None:
            self._by_key[binding.key] = [binding.target]
        else:
            known.append(binding.target)

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        known = self._by_key[binding.key]
        known.remove(binding.target)
        if not known:
            del self._by_key[binding.key]

    def match(
        self, key: str, message: BrokerMessage | None, number: i64, found: list[Destination]
    ) -> None:
        """Find the destinations of a key with one look-up."""
        known = self._by_key.get(key)
        if known is not None:
            for target in known:
                if target.seen != number:
                    target.seen = number
                    found.append(target)


@final
class FanoutTable(BindingTable):
    """The table of a fanout exchange: all bindings match."""

    __slots__ = ("_targets",)

    def __init__(self) -> None:
        super().__init__(False)
        # The destinations, and how many bindings each has.
        self._targets: dict[Destination, int] = {}

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._targets[binding.target] = self._targets.get(binding.target, 0) + 1

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        left = self._targets[binding.target] - 1
        if left:
            self._targets[binding.target] = left
        else:
            del self._targets[binding.target]

    def match(
        self, key: str, message: BrokerMessage | None, number: i64, found: list[Destination]
    ) -> None:
        """Append all destinations, whatever the key."""
        for target in self._targets:
            target.seen = number
            found.append(target)


@final
class TopicTable(BindingTable):
    """The table of a topic exchange: the key of the binding is a pattern of words."""

    __slots__ = ("_trie",)

    def __init__(self) -> None:
        super().__init__(True)
        self._trie = Trie()

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._trie.add(binding.key, binding.target)

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        self._trie.remove(binding.key, binding.target)

    def match(
        self, key: str, message: BrokerMessage | None, number: i64, found: list[Destination]
    ) -> None:
        """Find the destinations of a key in the trie."""
        self._trie.match(key, number, found)


@final
class HeadersTable(BindingTable):
    """The table of a headers exchange: the arguments of bindings are compared with the headers of
    the message."""

    __slots__ = ("_targets", "_index")

    def __init__(self) -> None:
        super().__init__(False)
        self._targets: dict[Binding, Destination] = {}
        self._index = HeadersIndex()

    def check(self, key: str, arguments: dict[str, object]) -> None:
        """Raise `BrokerError` for an unknown ``x-match``."""
        HeadersMatch(arguments)

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._index.add(binding, HeadersMatch(binding.arguments))
        self._targets[binding] = binding.target

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        self._index.remove(binding)
        del self._targets[binding]

    def match(
        self, key: str, message: BrokerMessage | None, number: i64, found: list[Destination]
    ) -> None:
        """Compare the message with the bindings that one of its headers leads to."""
        if message is None:
            for target in self._targets.values():
                if target.seen != number:
                    target.seen = number
                    found.append(target)
            return
        view = view_of(message)
        for matches in self._index.candidates(view):
            for binding, wanted in matches.items():
                target = binding.target
                if target.seen != number and wanted.matches(view):
                    target.seen = number
                    found.append(target)


def make_table(type: str) -> BindingTable:
    """Return the table of an exchange of this type, one of `policy.EXCHANGE_TYPES`."""
    if type == "fanout":
        return FanoutTable()
    if type == "topic":
        return TopicTable()
    if type == "headers":
        return HeadersTable()
    return DirectTable()
