"""Paths of entities as clients write them, and the native addresses of the broker's nodes.

| a client's path | native address |
|---|---|
| ``orders`` | ``orders`` |
| ``news/Subscriptions/audit`` | ``news::audit`` |
| ``orders/$DeadLetterQueue``, ``orders/$Transfer/$DeadLetterQueue`` | the same |
| ``hub/ConsumerGroups/$Default/Partitions/3``, ``hub/Partitions/3`` | ``hub::3`` |
| a path, then ``/$management`` | the native address, then ``/$management`` |

A path may come as a URL of its namespace. Capitals do not matter: a native address has the spelling
in which the entity was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_servicebus.entities import DEAD_LETTERS, TRANSFER_DEAD_LETTERS, entity_of
from ferrymq_servicebus.entity_names import EntityNames

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace

MANAGEMENT: Final = "/$management"
# Nodes that belong to no entity, by their names without capitals.
_OWN: Final = {"$cbs": "$cbs", "$management": "$management"}


@final
class EntityPaths:
    """The paths of the entities of one virtual host."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._names = EntityNames(space)

    def native(self, path: str) -> str:
        """Return the native address for a path; a native address stays as it is."""
        if path.startswith(DYNAMIC) or path in self._space.nodes:
            return path
        path = entity_of(path)
        own = _OWN.get(path.casefold())
        if own is not None:
            return own
        owner, tail = _split(path)
        return self._names.spelled(self._entity(owner)) + tail

    @staticmethod
    def _entity(path: str) -> str:
        steps = path.split("/")
        words = [step.casefold() for step in steps]
        if len(steps) > 2 and words[-2] == "subscriptions":
            return f"{'/'.join(steps[:-2])}{PART}{steps[-1]}"
        number = ""
        if len(steps) > 2 and words[-2] == "partitions":
            number = f"{PART}{steps[-1]}"
            steps, words = steps[:-2], words[:-2]
        if len(steps) > 2 and words[-2] == "consumergroups":
            steps = steps[:-2]
        return "/".join(steps) + number

    def named(self, native: str) -> str:
        """Return the path for a native address."""
        owner, tail = _split(native)
        name, part, inner = owner.partition(PART)
        if part:
            step = "Partitions" if isinstance(self._space.find(name), Stream) else "Subscriptions"
            owner = f"{name}/{step}/{inner}"
        return owner + tail


def entity_of_management(native: str) -> str:
    """Return the native address of the entity whose management node this is; empty for other
    addresses."""
    return native.removesuffix(MANAGEMENT) if native.endswith(MANAGEMENT) else ""


def topic_of(path: str) -> str:
    """Return the path of the topic if a path is that of a subscription; empty otherwise."""
    steps = entity_of(path).split("/")
    named = len(steps) > 2 and steps[-2].casefold() == "subscriptions"
    return "/".join(steps[:-2]) if named else ""


def consumer_group_of(path: str) -> str:
    """Return the consumer group in the path of a partition; empty without one."""
    steps = entity_of(path).split("/")
    if len(steps) > 4 and steps[-2].casefold() == "partitions":
        return steps[-3] if steps[-4].casefold() == "consumergroups" else ""
    return ""


def _split(path: str) -> tuple[str, str]:
    """Return the path of an entity, and what follows it: its management node, or a sub-queue."""
    rest = path
    tail = ""
    if rest.casefold().endswith(MANAGEMENT):
        rest, tail = rest[: -len(MANAGEMENT)], MANAGEMENT
    folded = rest.casefold()
    for name in (TRANSFER_DEAD_LETTERS, DEAD_LETTERS):
        if folded.endswith("/" + name.casefold()):
            return rest[: -len(name) - 1], f"/{name}{tail}"
    return rest, tail
