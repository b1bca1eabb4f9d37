"""Fences: how far writers have got that number their transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.management.entity import EntityType, deleted
from ferrymq_broker.management.errors import BAD_REQUEST, NOT_FOUND, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result

if TYPE_CHECKING:
    from ferrymq_broker.addresses.space import AddressSpace

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
