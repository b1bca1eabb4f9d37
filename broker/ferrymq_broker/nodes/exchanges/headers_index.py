"""The index of a headers exchange: the bindings that a message with certain headers could match.

A binding that wants *all* of its headers is found under one of them: that which the fewest bindings
are found under. A binding that wants *any* is found under each. So a message is compared with a few
bindings, however many there are.
"""

from __future__ import annotations

from typing import final

from ferrymq_broker.nodes.exchanges.binding import Binding
from ferrymq_broker.nodes.exchanges.headers_match import HeadersMatch, is_annotation
from ferrymq_broker.nodes.message_view import MessageView

Matches = dict[Binding, HeadersMatch]


@final
class HeadersIndex:
    """The bindings of one exchange by the headers that they want."""

    __slots__ = ("_headers", "_annotations", "_always", "_places")

    def __init__(self) -> None:
        # By name and `_key` of the wanted value.
        self._headers: dict[str, dict[object, Matches]] = {}
        # The names that may be those of message-annotations.
        self._annotations: set[str] = set()
        # Bindings that want nothing: they match every message.
        self._always: Matches = {}
        # The names and keys under which each binding is found.
        self._places: dict[Binding, list[tuple[str, object]]] = {}

    def add(self, binding: Binding, match: HeadersMatch) -> None:
        """Add a binding, which is not in the index."""
        places = [(name, _key(value)) for name, value in match.wanted]
        if not match.any:
            if not places:
                self._always[binding] = match
                return
            places = [min(places, key=self._count)]
        self._places[binding] = places
        for name, key in places:
            if is_annotation(name):
                self._annotations.add(name)
            self._headers.setdefault(name, {}).setdefault(key, {})[binding] = match

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        self._always.pop(binding, None)
        for name, key in self._places.pop(binding, []):
            header = self._headers[name]
            matches = header[key]
            del matches[binding]
            if not matches:
                del header[key]
            if not header:
                del self._headers[name]
                self._annotations.discard(name)

    def candidates(self, view: MessageView) -> list[Matches]:
        """Return the bindings that a message may match; some may be there more than once."""
        found: list[Matches] = []
        if self._always:
            found.append(self._always)
        properties = view.application_properties
        for name, value in properties.items():
            self._find(name, value, found)
        if self._annotations:
            for symbol, value in view.message_annotations.items():
                if symbol in self._annotations and symbol not in properties:
                    self._find(str(symbol), value, found)
        return found

    def _find(self, name: str, value: object, found: list[Matches]) -> None:
        header = self._headers.get(name)
        if header is None:
            return
        matches = header.get(None)
        if matches is not None:
            found.append(matches)
        key = _key(value)
        if key is not None:
            matches = header.get(key)
            if matches is not None:
                found.append(matches)

    def _count(self, place: tuple[str, object]) -> int:
        """Return how many bindings are found under a name and key."""
        name, key = place
        return len(self._headers.get(name, {}).get(key, {}))


def _key(value: object) -> object:
    """Return what equal values have in common; None for any value, and for one without a hash: a
    list, a map, or a signaling NaN. A boolean equals no number."""
    if isinstance(value, bool):
        return (value,)
    try:
        hash(value)
    except TypeError:
        return None
    return value
