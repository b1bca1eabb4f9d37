"""Aliases: additional names of addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.management.authorisation import (
    ANY,
    canonical,
    expect_send,
    forbidden,
    may,
)
from ferrymq_broker.management.entity import EntityType, deleted
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    NO_ROOM,
    ManagementError,
)
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps, finish, sift
from ferrymq_broker.values.names import DYNAMIC, MAX_ADDRESS_LENGTH
from ferrymq_broker.values.rights import CREATE, DELETE, MANAGE

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# The rights that are needed at the name of the alias. Other rights there have no meaning, because
# rules are about nodes.
_SEEN: Final = CREATE | MANAGE | DELETE
_RIGHTS: Final = {"READ": _SEEN, "CREATE": CREATE, "UPDATE": MANAGE, "DELETE": DELETE}


class AliasEntities(EntityType):
    """Aliases of addresses, which need not have a node yet."""

    short = "alias"
    attributes: tuple[str, ...] = ("name", "address")

    def __init__(self, space: AddressSpace) -> None:
        self.space = space

    def operations(self) -> dict[str, Operation]:
        """Return CREATE, READ, UPDATE and DELETE."""
        return {
            "CREATE": Operation(self.create, ("address",)),
            "READ": Operation(self.read),
            "UPDATE": Operation(self.update, ("address",)),
            "DELETE": Operation(self.delete),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """Check the rights at the alias's name, and for a new address the right to send there.

        A party with any right at the address may read the alias. To change the address of an alias
        that is used for dead letters, the party needs the right to manage the new address.
        """
        access = call.party.access
        if access.open:
            return
        name = call.meant()
        right = _RIGHTS.get(operation, MANAGE)
        if not access.permits(right, name) and not (
            operation == "READ"
            and name in self.space.aliases
            and may(call.party, ANY, self.space, name)
        ):
            raise forbidden(operation, self.short, name)
        address = call.arguments.get("address")
        if operation in ("CREATE", "UPDATE") and isinstance(address, str):
            expect_send(call.party, self.space, address)
            if not access.may_lead(right, name, canonical(self.space, address)):
                raise forbidden(operation, self.short, name)
            if self.space.dead_letter_index.names(name):
                access.require(MANAGE, canonical(self.space, address), address)

    def visible(self, party: Party) -> list[str]:
        """Return the result of `sight` at once."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Return the aliases that the party may change, or whose addresses it may use."""
        access = party.access
        if access.open:
            return self.identities()
        return (
            yield from sift(
                self.identities(),
                lambda name: access.permits(_SEEN, name) or may(party, ANY, self.space, name),
            )
        )

    def identities(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self.space.aliases)

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the address of an alias."""
        address = self.space.aliases.get(identity)
        return None if address is None else {"address": address}

    def create(self, call: Call) -> Result:
        """Handle CREATE: make a free name an alias of an address."""
        name = call.required_name()
        address = self._address(call, name)
        before = self.space.aliases.get(name)
        if before is not None:
            if before != address:
                raise ManagementError(
                    CONFLICT, f"the alias {name[:200]!r} already leads to {before!r}"
                )
            self.space.agenda.changes.claim()
            return Result(self.shown(name), description="exists already")
        if name.startswith(("$", DYNAMIC)) or len(name) > MAX_ADDRESS_LENGTH:
            raise ManagementError(BAD_REQUEST, f"the name {name[:200]!r} is reserved or too long")
        space = self.space
        if name in space.nodes or name in space.redirects or name in space.declared.policies:
            raise ManagementError(
                CONFLICT, f"{name[:200]!r} is the name of a node, so it cannot be an alias"
            )
        most = self.space.max_nodes
        if len(self.space.aliases) >= most:
            raise ManagementError(
                NO_ROOM, f"there are {most} aliases already, which is the limit (max_nodes)"
            )
        self.space.set_alias(name, address)
        return Result(self.shown(name), CREATED, "created")

    def update(self, call: Call) -> Result:
        """Handle UPDATE: change the address. Attached links stay at the old address."""
        name = call.required_name()
        if name not in self.space.aliases:
            raise self.missing(name)
        self.space.set_alias(name, self._address(call, name))
        description = "updated"
        declared = self.space.declared_aliases.get(name)
        if declared is not None:
            description += (
                f"; but the configuration declares it with {declared[:200]!r}, which counts "
                "again after the next start"
            )
        return Result(self.shown(name), description=description)

    def delete(self, call: Call) -> Result:
        """Handle DELETE: remove the alias. Attached links stay at the old address."""
        call.expect_only()
        name = call.required_name()
        if not self.space.drop_alias(name):
            raise self.missing(name)
        if name in self.space.declared_aliases:
            return deleted(
                "deleted; but the configuration declares it, so the next start makes it again"
            )
        return deleted()

    def _address(self, call: Call, name: str) -> str:
        call.expect_only("address", "name", "identity", "type")
        address = call.text("address")
        if not address or len(address) > MAX_ADDRESS_LENGTH:
            raise ManagementError(BAD_REQUEST, "address: it is empty or too long")
        if self.space.passes(address, name):
            raise ManagementError(
                BAD_REQUEST, f"address: the alias {name[:200]!r} would lead in a circle"
            )
        # Raises `BrokerError` if too many aliases follow each other already.
        if self.space.canonical(address).startswith("$"):
            raise ManagementError(BAD_REQUEST, f"address: {address[:200]!r} is reserved")
        return address
