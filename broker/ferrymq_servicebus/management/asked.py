"""Requests about an entity, with arguments of the types that their operations need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from ferrymq_broker.management.operation import Call
from ferrymq_broker.nodes.request import Request
from ferrymq_codec.containers import Array
from ferrymq_servicebus.management.failures import invalid

# The longest list of an argument.
MOST_ITEMS: Final = 1000
# The property with the name of the link whose messages or session the request is about.
_LINK: Final = "associated-link-name"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its sections, the native address of its entity, and the map in its body."""

    request: Request
    native: str
    arguments: dict[str, object]

    @property
    def link(self) -> str:
        """The name of the link that the request is about; empty without one."""
        name = self.request.application_properties.get(_LINK)
        return name if isinstance(name, str) else ""

    def call(self, arguments: dict[str, object] | None = None) -> Call:
        """Return the same request for an operation of the broker, with these arguments."""
        return Call(self.request.party, self.native, {} if arguments is None else arguments)

    def session(self) -> str | None:
        """Return the id of the session, None without one. Raises `RequestFailed`."""
        if self.arguments.get("session-id") is None:
            return None
        return self.text("session-id")

    def of_session(self) -> dict[str, object]:
        """Return the arguments of the broker that name the session and its owner; none if the
        request names no session."""
        id = self.session()
        if id is None:
            return {}
        return {"session": id, "link": self.link} if self.link else {"session": id}

    def text(self, key: str) -> str:
        """Return a string. Raises `RequestFailed` if there is none."""
        value = self.arguments.get(key)
        if not isinstance(value, str):
            raise invalid(f"{key}: a string is needed")
        return str(value)

    def number(self, key: str, default: int) -> int:
        """Return an integer. Raises `RequestFailed`."""
        value = self.arguments.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid(f"{key}: an integer is needed")
        return int(value)

    def flag(self, key: str) -> bool:
        """Return whether a boolean is true."""
        return self.arguments.get(key) is True

    def numbers(self, key: str) -> list[int]:
        """Return the integers of an array. Raises `RequestFailed`."""
        found: list[int] = []
        for item in self._items(key):
            if isinstance(item, bool) or not isinstance(item, int):
                raise invalid(f"{key}: an array of longs is needed")
            found.append(int(item))
        return found

    def tokens(self, key: str) -> list[bytes]:
        """Return the lock tokens of an array of uuids. Raises `RequestFailed`.

        A token is a delivery-tag: a UUID whose first three fields are little-endian.
        """
        found: list[bytes] = []
        for item in self._items(key):
            if not isinstance(item, UUID):
                raise invalid(f"{key}: an array of uuids is needed")
            found.append(item.bytes_le)
        return found

    def maps(self, key: str) -> list[dict[str, object]]:
        """Return the maps of a list. Raises `RequestFailed`."""
        found: list[dict[str, object]] = []
        for item in self._items(key):
            if not isinstance(item, dict):
                raise invalid(f"{key}: a list of maps is needed")
            found.append({str(name): value for name, value in item.items()})
        return found

    def map(self, key: str) -> dict[str, object] | None:
        """Return a map, None without one. Raises `RequestFailed`."""
        value = self.arguments.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise invalid(f"{key}: a map is needed")
        return {str(name): item for name, item in value.items()}

    def _items(self, key: str) -> list[object]:
        value = self.arguments.get(key)
        if not isinstance(value, Array | list) or len(value) == 0:
            raise invalid(f"{key}: an array with at least one item is needed")
        if len(value) > MOST_ITEMS:
            raise invalid(f"{key}: {len(value)} items are too many; {MOST_ITEMS} are allowed")
        return list(value)


# An operation returns the body of its response, None if there is nothing to return (status 204).
Handler: TypeAlias = Callable[[Asked], dict[str, object] | None]


def longs(values: Iterable[int]) -> Array:
    """Return an array of longs."""
    return Array("long", values)
