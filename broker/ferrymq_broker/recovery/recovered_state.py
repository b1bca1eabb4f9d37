"""The objects recovered so far, by the ids of their records."""

from __future__ import annotations

from typing import final

from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.store.errors import StoreDamaged


@final
class RecoveredState:
    """Recovered `nodes` by id; `queues` has the queues among them and those of subscriptions.

    `sub_queues` has the records of sub-queues, whose owners are restored later.
    `aside` has the ids of nodes of virtual hosts that are not configured: their records stay.
    """

    __slots__ = ("nodes", "queues", "sub_queues", "aside")

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.queues: dict[int, Queue] = {}
        self.sub_queues: list[tuple[int, Fields]] = []
        self.aside: set[int] = set()


@final
class Fields:
    """The fields of a record that is a map, with checks. All methods raise `StoreDamaged`."""

    __slots__ = ("what", "map")

    def __init__(self, what: str, map: dict[str, object]) -> None:
        self.what: str = what
        self.map: dict[str, object] = map

    def text(self, key: str) -> str:
        """Return a string, empty if it is missing."""
        value = self.map.get(key, "")
        if not isinstance(value, str):
            raise self.wrong(key)
        return str(value)

    def number(self, key: str) -> int:
        """Return an integer, 0 if it is missing."""
        value = self.map.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(key)
        return int(value)

    def flag(self, key: str) -> bool:
        """Return a boolean, false if it is missing."""
        value = self.map.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key)
        return value

    def named(self, key: str) -> dict[str, object]:
        """Return a map with strings as keys, empty if it is missing."""
        value = self.map.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key)
        return {str(name): item for name, item in value.items()}

    def wrong(self, key: str) -> StoreDamaged:
        """Return the error for an invalid value."""
        return StoreDamaged(f"{self.what} has the invalid value {self.map.get(key)!r} for {key!r}")
