"""Fences: how far writers have got that number their transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.access.access import fence_address
from ferrymq_broker.access.rights import SEND
from ferrymq_broker.management.authorisation import forbidden
from ferrymq_broker.management.entity import EntityType, deleted
from ferrymq_broker.management.errors import BAD_REQUEST, NOT_FOUND, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.slicing import Steps, finish, sift

if TYPE_CHECKING:
    from ferrymq_broker.addresses.space import AddressSpace
    from ferrymq_broker.nodes.terms import Party

# Between group and member in the identity; the group is up to the first.
_BETWEEN = "\n"


class Fences(EntityType):
    """The last sequence of each member of each group. READ and DELETE take group and member."""

    short = "fence"
    attributes = ("name", "group", "member", "sequence", "width", "time")

    def __init__(self, space: AddressSpace) -> None:
        self.space = space

    def operations(self) -> dict[str, Operation]:
        """READ and DELETE."""
        return {
            "READ": Operation(self.read, ("group", "member")),
            "DELETE": Operation(self.delete, ("group", "member")),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """Who may commit as the group may see and forget how far it has got."""
        group = call.name.partition(_BETWEEN)[0] if call.name else call.arguments.get("group")
        asked = group if isinstance(group, str) else ""
        if not call.party.access.permits(SEND, fence_address(asked)):
            raise forbidden(operation, self.short, asked)

    def visible(self, party: Party) -> list[str]:
        """As `sight`."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Those of groups that the party may commit as."""
        access = party.access
        return (
            yield from sift(
                self.identities(),
                lambda identity: access.permits(
                    SEND, fence_address(identity.partition(_BETWEEN)[0])
                ),
            )
        )

    def identities(self) -> list[str]:
        """By group and member."""
        return [f"{group}{_BETWEEN}{member}" for group, member in self.space.fences.names()]

    def show(self, identity: str) -> dict[str, object] | None:
        """How far it has got."""
        group, _, member = identity.partition(_BETWEEN)
        passed = self.space.fences.find(group, member)
        if passed is None:
            return None
        return {
            "group": group,
            "member": member,
            "sequence": int(passed.sequence),
            "width": int(passed.width),
            "time": int(passed.time),
        }

    def read(self, call: Call) -> Result:
        """READ: the sequence a member has committed last."""
        identity = self._identity(call)
        return Result(self.shown(identity))

    def delete(self, call: Call) -> Result:
        """DELETE: the member begins anew."""
        identity = self._identity(call)
        group, _, member = identity.partition(_BETWEEN)
        if not self.space.fences.forget(group, member):
            raise self.missing(identity)
        return deleted()

    def _identity(self, call: Call) -> str:
        call.expect_only("group", "member")
        if call.name:
            return call.name
        group = call.text("group")
        if _BETWEEN in group:
            raise ManagementError(BAD_REQUEST, "group: has a line break in it")
        return f"{group}{_BETWEEN}{call.text('member')}"

    def missing(self, identity: str) -> ManagementError:
        """Nothing of it has been committed."""
        group, _, member = identity.partition(_BETWEEN)
        return ManagementError(
            NOT_FOUND, f"nothing of member {member[:200]!r} of {group[:200]!r} has been committed"
        )
