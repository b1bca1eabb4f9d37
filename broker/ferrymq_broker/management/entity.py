"""A type of entity: what of it there is, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

from ferrymq_broker.access.rights import MANAGE
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.errors import NO_CONTENT, NOT_FOUND, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.nodes.link_terms import Party

T = TypeVar("T")
# Returns the attributes of an entity by its identity; None if there is none of that identity.
Show: TypeAlias = Callable[[str], dict[str, object] | None]

PREFIX: Final = "org.ferrymq."


class EntityType:
    """Entities of one type in one virtual host. Subclasses say which there are.

    `name` is how they are called in full, ``org.ferrymq.queue``; `short`, ``queue``, will do in
    requests. `base` is the type it is a kind of. `attributes` are all that a READ may show. What is
    not `listed` is another view of what is: it can be asked for by its name in full.
    """

    short: str = "entity"
    base: str = PREFIX + "entity"
    attributes: tuple[str, ...] = ()
    listed: bool = True

    @property
    def name(self) -> str:
        """The name in full."""
        return PREFIX + self.short

    def operations(self) -> dict[str, Operation]:
        """What can be done with one of them, by name."""
        return {"READ": Operation(self.read)}

    def authorise(self, operation: str, call: Call) -> None:
        """Raise `ManagementError` or `BrokerError` if the party may not do what it asks for.

        What is the broker's, or other clients', takes the right to manage it.
        """
        if not call.party.access.permits(MANAGE, ADDRESS):
            raise forbidden(operation, self.short, call.meant())

    def visible(self, party: Party) -> list[str]:
        """Those of `identities` that the party may READ."""
        return self.identities() if party.access.permits(MANAGE, ADDRESS) else []

    def sight(self, party: Party) -> Steps[list[str]]:
        """`visible` step by step, for types of which there may be many."""
        found = self.visible(party)
        yield None
        return found

    def identities(self) -> list[str]:
        """Those there are, in an order that stays."""
        return []

    def show(self, identity: str) -> dict[str, object] | None:
        """The attributes of one; None if there is none of that identity."""
        return None

    def shower(self, identities: list[str]) -> Show:
        """Return what shows each of these as `show` does; for tables, which have many."""
        return self.show

    def read(self, call: Call) -> Result:
        """READ."""
        call.expect_only()
        return Result(self.shown(call.required_name()))

    def shown(self, identity: str) -> dict[str, object]:
        """The attributes as READ answers. Raises `ManagementError` if it does not exist."""
        attributes = self.show(identity)
        if attributes is None:
            raise self.missing(identity)
        return self.complete(identity, attributes)

    def complete(self, identity: str, attributes: dict[str, object]) -> dict[str, object]:
        """The attributes with those every entity has."""
        return {"name": identity, **attributes, "identity": identity, "type": self.name}

    def missing(self, identity: str) -> ManagementError:
        """There is none of that name."""
        return ManagementError(NOT_FOUND, f"there is no {self.short} {identity[:200]!r}")


class IndexedType(EntityType, Generic[T]):
    """Entities that are found by going through all of them, once for each table."""

    def entries(self) -> dict[str, T]:
        """Those there are, by identity, in an order that stays."""
        return {}

    def describe(self, entry: T) -> dict[str, object]:
        """The attributes of one."""
        return {}

    def identities(self) -> list[str]:
        """As in `entries`."""
        return list(self.entries())

    def show(self, identity: str) -> dict[str, object] | None:
        """The attributes of one; None if there is none of that identity."""
        return self.shower([identity])(identity)

    def shower(self, identities: list[str]) -> Show:
        """Return what shows each of these, having gone through all entries once."""
        return self.shower_of(self.entries())

    def shower_of(self, entries: dict[str, T]) -> Show:
        """Return what shows these entries by identity."""

        def show(identity: str) -> dict[str, object] | None:
            entry = entries.get(identity)
            return None if entry is None else self.describe(entry)

        return show


def deleted(description: str = "deleted") -> Result:
    """The answer to a DELETE that was done."""
    return Result({}, NO_CONTENT, description)
