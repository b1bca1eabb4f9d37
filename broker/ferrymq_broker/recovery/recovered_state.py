"""What has been found in the store so far, by the ids of records."""

from __future__ import annotations

from typing import final

from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.store.errors import StoreDamaged


@final
class RecoveredState:
    """`nodes` by id; `queues` are those of them and the ones behind subscriptions.

    `aside` are nodes of virtual hosts that are not configured: what they have stays where it is.
    """

    __slots__ = ("nodes", "queues", "aside")

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.queues: dict[int, Queue] = {}
        self.aside: set[int] = set()


@final
class Fields:
    """The map that a record is, read with care. Everything raises `StoreDamaged`."""

    __slots__ = ("what", "map")

    def __init__(self, what: str, map: dict[str, object]) -> None:
        self.what = what
        self.map = map

    def text(self, key: str) -> str:
        """A string, empty if it is missing."""
        value = self.map.get(key, "")
        if not isinstance(value, str):
            raise self.wrong(key)
        return str(value)

    def number(self, key: str) -> int:
        """An integer, 0 if it is missing."""
        value = self.map.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(key)
        return int(value)

    def flag(self, key: str) -> bool:
        """Whether it is so, false if it is missing."""
        value = self.map.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key)
        return value

    def named(self, key: str) -> dict[str, object]:
        """A map with strings for keys, empty if it is missing."""
        value = self.map.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key)
        return {str(name): item for name, item in value.items()}

    def wrong(self, key: str) -> StoreDamaged:
        """Return the error for a value that cannot be."""
        return StoreDamaged(f"{self.what}: {key!r} is {self.map.get(key)!r}")
