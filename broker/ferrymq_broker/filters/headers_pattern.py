"""A map that application properties have to match, like a binding of a headers exchange."""

from __future__ import annotations

from typing import Final, final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.values import plain, same

# The key of the entry that tells whether all or any of the other entries have to match.
MATCH: Final = "x-match"

_MOST: Final = 256


@final
class HeadersPattern:
    """A map of application properties (Apache filters §1.3).

    The entry ``x-match`` is ``all`` (the default) or ``any``: all of the other entries have to
    match, or at least one. An entry matches if the message has a property of that name, kind and
    value, or of any value if the map has null. Raises `BrokerError` for another ``x-match``, for
    keys that are no strings and for more than 256 entries.
    """

    __slots__ = ("every", "wanted", "key")

    def __init__(self, entries: dict[str, object]) -> None:
        how = entries.get(MATCH, "all")
        if how != "all" and how != "any":
            raise BrokerError("amqp:invalid-field", f"x-match must be all or any, not {how!r:.60}")
        if len(entries) > _MOST:
            raise BrokerError("amqp:invalid-field", f"more than {_MOST} properties to match")
        self.every: bool = how == "all"
        self.wanted: dict[str, object] = {}
        for name, value in entries.items():
            if not isinstance(name, str):
                raise BrokerError("amqp:invalid-field", f"{name!r:.60} is no name of a property")
            if name != MATCH:
                self.wanted[name] = plain(value)
        self.key: str = ("all " if self.every else "any ") + repr(sorted_items(self.wanted))

    def matches(self, properties: dict[str, object]) -> bool:
        """Return whether application properties match. A map without entries matches with ``all``,
        and does not match with ``any``."""
        every = self.every
        for name, value in self.wanted.items():
            if name in properties and (value is None or same(properties[name], value)):
                if not every:
                    return True
            elif every:
                return False
        return every


def sorted_items(entries: dict[str, object]) -> list[tuple[str, object]]:
    """Return the entries sorted by name."""
    return [(name, entries[name]) for name in sorted(entries)]
