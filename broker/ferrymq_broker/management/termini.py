"""Termini that outlive their links, attached or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.access.rights import MANAGE
from ferrymq_broker.connections.remembered.terminus import Terminus
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.entity import IndexedType, deleted
from ferrymq_broker.management.errors import CONFLICT, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.nodes.topics.identity import escape

if TYPE_CHECKING:
    from ferrymq_broker.addresses.space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.terms import Party


class Termini(IndexedType[Terminus]):
    """What links have left behind, or would. DELETE ends one that no link has: what a source holds
    goes back, what a target remembers is forgotten."""

    short = "terminus"
    attributes = (
        "name",
        "link-name",
        "container",
        "user",
        "direction",
        "address",
        "durable",
        "expiry-policy",
        "timeout",
        "attached",
        "expires",
        "unsettled",
    )

    def __init__(self, broker: Broker, space: AddressSpace) -> None:
        self.broker = broker
        self.space = space

    def operations(self) -> dict[str, Operation]:
        """READ and DELETE."""
        return {"READ": Operation(self.read), "DELETE": Operation(self.delete)}

    def authorise(self, operation: str, call: Call) -> None:
        """Everybody may do so with his own; others' take the right to manage the broker."""
        access = call.party.access
        if access.permits(MANAGE, ADDRESS):
            return
        name = call.meant()
        entry = self.entries().get(name)
        if entry is None or not _is_own(entry, call.party):
            raise forbidden(operation, self.short, name)

    def visible(self, party: Party) -> list[str]:
        """The party's own, or all."""
        everything = party.access.permits(MANAGE, ADDRESS)
        return [
            name for name, entry in self.entries().items() if everything or _is_own(entry, party)
        ]

    def entries(self) -> dict[str, Terminus]:
        """By whose link it is, in the order they were made."""
        found: dict[str, Terminus] = {}
        for terminus in self.broker.termini.of(self.space.name):
            _, user, container, name, sends = terminus.key
            # No two owners come out the same.
            owner = escape(container) if user is None else f"{escape(user)}@{escape(container)}"
            found[f"{owner}/{'out' if sends else 'in'}/{name}"] = terminus
        return found

    def describe(self, entry: Terminus) -> dict[str, object]:
        """Whose it is, how it is kept, how much it has."""
        return entry.describe()

    def delete(self, call: Call) -> Result:
        """DELETE: as if its time were over."""
        call.expect_only()
        identity = call.required_name()
        terminus = self.entries().get(identity)
        if terminus is None:
            raise self.missing(identity)
        if terminus.attached:
            raise ManagementError(CONFLICT, f"a link has the terminus {identity[:200]!r}")
        terminus.end()
        return deleted()


def _is_own(terminus: Terminus, party: Party) -> bool:
    """Whether it belongs to who the party has proved to be: who is nobody has none."""
    return party.user is not None and terminus.key[1] == party.user
