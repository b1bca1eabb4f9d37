"""What the broker's nodes do not keep of a description: times, metadata, settings without effect.

It lasts as long as the broker runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import PART

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.node import Node

# The settings that are told as they were given.
_TOLD: Final = frozenset(
    {
        "EnableBatchedOperations", "EnablePartitioning", "EnableExpress", "SupportOrdering",
        "UserMetadata", "MaxMessageSizeInKilobytes",
        "DeadLetteringOnFilterEvaluationExceptions", "DuplicateDetectionHistoryTimeWindow",
        "FilteringMessagesBeforePublishing", "EnableSubscriptionPartitioning",
    }
)  # fmt: skip


class Remembered:
    """What is remembered of one entity. `owner` is its node or subscription; times are in seconds
    since the epoch."""

    __slots__ = ("owner", "created", "updated", "told")

    def __init__(self, owner: object, now: float) -> None:
        self.owner = owner
        self.created = now
        self.updated = now
        self.told: dict[str, object] = {}

    def change(self, description: Mapping[str, object], now: float) -> None:
        """Remember another description."""
        self.updated = now
        self.told = {key: value for key, value in description.items() if key in _TOLD}


class Memory:
    """What is remembered of the entities of one virtual host, by address. `since` is the time that
    is told for entities that nothing is known of."""

    def __init__(self, space: AddressSpace, since: float) -> None:
        self._since = since
        self._of: dict[str, Remembered] = {}
        space.on_change.append(self._on_change)

    def of(self, address: str, owner: object) -> Remembered:
        """Return what is remembered of an entity."""
        found = self._of.get(address)
        if found is None or found.owner is not owner:
            return Remembered(owner, self._since)
        return found

    def make(
        self, address: str, owner: object, description: Mapping[str, object], now: float
    ) -> None:
        """Remember a new entity."""
        found = Remembered(owner, now)
        found.change(description, now)
        self._of[address] = found

    def change(
        self, address: str, owner: object, description: Mapping[str, object], now: float
    ) -> None:
        """Remember that an entity was changed."""
        found = self.of(address, owner)
        found.change(description, now)
        self._of[address] = found

    def forget(self, address: str) -> None:
        """Forget an entity that is gone."""
        self._of.pop(address, None)

    def _on_change(self, node: Node, there: bool) -> None:
        if there or not self._of:
            return
        self._of.pop(node.address, None)
        if isinstance(node, Topic):
            start = f"{node.address}{PART}"
            for address in [each for each in self._of if each.startswith(start)]:
                del self._of[address]
