"""Termini that outlive their links."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from ferrymq_broker.connections.durable_links.terminus import Terminus
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.entity import IndexedType, Show, deleted
from ferrymq_broker.management.errors import CONFLICT, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.nodes.topics.subscription_identity import escape
from ferrymq_broker.values.rights import MANAGE

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.link_terms import Party


class TerminusEntities(IndexedType[Terminus]):
    """The termini that are kept after their links end, attached or not. DELETE ends a terminus
    without a link: messages that its source holds go back to the node, delivery states that its
    target remembers are forgotten."""

    short = "terminus"
    attributes: tuple[str, ...] = (
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
        """Return READ and DELETE."""
        return {"READ": Operation(self.read), "DELETE": Operation(self.delete)}

    def authorise(self, operation: str, call: Call) -> None:
        """Allow users their own termini; others need the right to manage the broker."""
        access = call.party.access
        if access.permits(MANAGE, ADDRESS):
            return
        name = call.meant()
        entry = self._find(name)
        if entry is None or not _is_own(entry, call.party):
            raise forbidden(operation, self.short, name)

    def visible(self, party: Party) -> list[str]:
        """Return the party's own termini, or with the right to manage all."""
        if party.access.permits(MANAGE, ADDRESS):
            return self.identities()
        return [
            _name_of(terminus)
            for terminus in self.broker.shared.termini.of(self.space.name)
            if _is_own(terminus, party)
        ]

    def _find(self, identity: str) -> Terminus | None:
        """Find a terminus without going through all, because every client may ask."""
        owner, _, rest = identity.partition("/")
        direction, slash, link = rest.partition("/")
        if not slash or direction not in ("in", "out"):
            return None
        user, at, container = owner.partition("@")
        key = (
            self.space.name,
            unquote(user) if at else None,
            unquote(container if at else user),
            link,
            direction == "out",
        )
        terminus = self.broker.shared.termini.find(key)
        # A name can be percent-encoded in several ways. Only the broker's way is accepted.
        return terminus if terminus is not None and _name_of(terminus) == identity else None

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the attributes of a terminus; None if it does not exist."""
        terminus = self._find(identity)
        return None if terminus is None else terminus.describe()

    def shower(self, identities: list[str]) -> Show:
        """Return a function that shows each of these, without going through all."""
        return self.show

    def entries(self) -> dict[str, Terminus]:
        """Return the termini by name, oldest first."""
        return {
            _name_of(terminus): terminus
            for terminus in self.broker.shared.termini.of(self.space.name)
        }

    def describe(self, entry: Terminus) -> dict[str, object]:
        """Return the attributes of a terminus."""
        return entry.describe()

    def delete(self, call: Call) -> Result:
        """Handle DELETE: end a terminus as if it had expired."""
        call.expect_only()
        identity = call.required_name()
        terminus = self._find(identity)
        if terminus is None:
            raise self.missing(identity)
        if terminus.attached:
            raise ManagementError(
                CONFLICT, f"a link is attached to the terminus {identity[:200]!r}; detach it first"
            )
        terminus.end()
        return deleted()


def _name_of(terminus: Terminus) -> str:
    """Return the name of a terminus, which is different for each owner."""
    _, user, container, link, sends = terminus.key
    owner = escape(container) if user is None else f"{escape(user)}@{escape(container)}"
    return f"{owner}/{'out' if sends else 'in'}/{link}"


def _is_own(terminus: Terminus, party: Party) -> bool:
    """Return whether the terminus belongs to the party's user. A party without a user owns none."""
    return party.user is not None and terminus.key[1] == party.user
