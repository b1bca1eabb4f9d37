"""What application properties have to be: a map, like the binding of a headers exchange."""

from __future__ import annotations

from typing import Final, final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.values import plain, same

# The entry of the map that says how many of the others have to match.
MATCH: Final = "x-match"

_MOST: Final = 256


@final
class HeadersPattern:
    """A map of application properties (Apache filters §1.3).

    Its entry ``x-match`` says whether ``all`` (without a word on it) or ``any`` of the others have
    to match. One matches if the message has a property of that name and kind and with that value,
    or with any value where the map has null. Raises `BrokerError` for another ``x-match``, for keys
    that are no strings and for more than 256 entries.
    """

    __slots__ = ("every", "wanted", "key")

    def __init__(self, entries: dict[str, object]) -> None:
        how = entries.get(MATCH, "all")
        if how != "all" and how != "any":
            raise BrokerError("amqp:invalid-field", f"x-match is all or any, not {how!r:.60}")
        if len(entries) > _MOST:
            raise BrokerError("amqp:invalid-field", f"more than {_MOST} properties to match")
        self.every = how == "all"
        self.wanted: dict[str, object] = {}
        for name, value in entries.items():
            if not isinstance(name, str):
                raise BrokerError("amqp:invalid-field", f"{name!r:.60} is no name of a property")
            if name != MATCH:
                self.wanted[name] = plain(value)
        self.key = ("all " if self.every else "any ") + repr(sorted_items(self.wanted))

    def matches(self, properties: dict[str, object]) -> bool:
        """Whether these application properties match. Without entries all do, but not any."""
        every = self.every
        for name, value in self.wanted.items():
            if name in properties and (value is None or same(properties[name], value)):
                if not every:
                    return True
            elif every:
                return False
        return every


def sorted_items(entries: dict[str, object]) -> list[tuple[str, object]]:
    """The entries in an order that depends on nothing but their names."""
    return [(name, entries[name]) for name in sorted(entries)]
