"""The base classes of entity types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.errors import NO_CONTENT, NOT_FOUND, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.values.rights import MANAGE

T = TypeVar("T")
# Returns the attributes of an entity by its identity; None if it does not exist.
Show: TypeAlias = Callable[[str], dict[str, object] | None]

PREFIX: Final = "org.ferrymq."
# The attributes that every entity has.
COMMON: Final = ("name", "identity", "type")


class EntityType:
    """The entities of one type in one virtual host. Subclasses find them.

    `name` is the full name of the type, ``org.ferrymq.queue``; requests may use `short`, ``queue``,
    too. `base` is its base type. `attributes` are all that a READ may return. A type that is not
    `listed` is another view of entities of a listed type; requests have to use its full name.
    """

    short: str = "entity"
    base: str = PREFIX + "entity"
    attributes: tuple[str, ...] = ()
    listed: bool = True

    @property
    def name(self) -> str:
        """The full name."""
        return PREFIX + self.short

    def operations(self) -> dict[str, Operation]:
        """Return the operations on an entity, by name."""
        return {"READ": Operation(self.read)}

    def authorise(self, operation: str, call: Call) -> None:
        """Raise `ManagementError` or `BrokerError` if the party may not do the operation.

        By default an operation needs the right to manage the broker.
        """
        if not call.party.access.permits(MANAGE, ADDRESS):
            raise forbidden(operation, self.short, call.meant())

    def visible(self, party: Party) -> list[str]:
        """Return the identities that the party may READ."""
        return self.identities() if party.access.permits(MANAGE, ADDRESS) else []

    def sight(self, party: Party) -> Steps[list[str]]:
        """Return the result of `visible`, in steps, for types with many entities."""
        found = self.visible(party)
        yield None
        return found

    def identities(self) -> list[str]:
        """Return all identities, in a stable order."""
        return []

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the attributes of an entity; None if it does not exist."""
        return None

    def shower(self, identities: list[str]) -> Show:
        """Return a function that shows each of these entities as `show` does, for tables."""
        return self.show

    def row_shower(self, identities: list[str], names: list[str]) -> Show:
        """Return a function that shows each of these entities with at least the attributes
        `names`, for tables. Types with many entities leave the others out."""
        return self.shower(identities)

    def read(self, call: Call) -> Result:
        """Handle READ."""
        call.expect_only()
        return Result(self.shown(call.required_name()))

    def shown(self, identity: str) -> dict[str, object]:
        """Return the attributes for READ. Raises `ManagementError` if the entity does not exist."""
        attributes = self.show(identity)
        if attributes is None:
            raise self.missing(identity)
        return self.complete(identity, attributes)

    def complete(self, identity: str, attributes: dict[str, object]) -> dict[str, object]:
        """Return the attributes with those that every entity has."""
        return {"name": identity, **attributes, "identity": identity, "type": self.name}

    def missing(self, identity: str) -> ManagementError:
        """Return the error for an entity that does not exist."""
        return ManagementError(NOT_FOUND, f"there is no {self.short} {identity[:200]!r}")


class IndexedType(EntityType, Generic[T]):
    """Entities without an index: each request goes through all of them once."""

    def entries(self) -> dict[str, T]:
        """Return all entities by identity, in a stable order."""
        return {}

    def describe(self, entry: T) -> dict[str, object]:
        """Return the attributes of an entity."""
        return {}

    def identities(self) -> list[str]:
        """Return the identities in the order of `entries`."""
        return list(self.entries())

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the attributes of an entity; None if it does not exist."""
        return self.shower([identity])(identity)

    def shower(self, identities: list[str]) -> Show:
        """Return a function that shows each of these entities, after going through all once."""
        return self.shower_of(self.entries())

    def shower_of(self, entries: dict[str, T]) -> Show:
        """Return a function that shows these entries by identity."""

        def show(identity: str) -> dict[str, object] | None:
            entry = entries.get(identity)
            return None if entry is None else self.describe(entry)

        return show


def deleted(description: str = "deleted") -> Result:
    """Return the result of a successful DELETE."""
    return Result({}, NO_CONTENT, description)
