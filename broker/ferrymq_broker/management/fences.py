"""Fences: the last sequence that writers with numbered transactions have committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.access.access import fence_refusal
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.entity import EntityType, deleted
from ferrymq_broker.management.errors import BAD_REQUEST, NOT_FOUND, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps, finish, sift
from ferrymq_broker.nodes.fences import MAX_DIGEST, FenceRecord, Passed
from ferrymq_broker.values.rights import MANAGE

if TYPE_CHECKING:
    from ferrymq_broker.access.access import ConnectionAccess
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# Separates group, member and target in the identity.
_BETWEEN: Final = "\n"


class FenceEntities(EntityType):
    """The last sequence of each member of each group, for each target."""

    short = "fence"
    attributes: tuple[str, ...] = (
        "name",
        "group",
        "member",
        "target",
        "sequence",
        "width",
        "rows",
        "digest",
        "repeated",
        "time",
    )

    def __init__(self, space: AddressSpace) -> None:
        self.space = space

    def operations(self) -> dict[str, Operation]:
        """Return READ, MEMBERS, LATEST, REPEAT and DELETE."""
        key = ("group", "member", "target")
        return {
            "READ": Operation(self.read, key),
            "MEMBERS": Operation(self.members, ("group", "target", "members")),
            "LATEST": Operation(self.latest, ("group", "target")),
            "REPEAT": Operation(self.repeat, (*key, "sequence", "rows", "digest")),
            "DELETE": Operation(self.delete, key),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """Allow parties that may commit with the fence, or manage the broker."""
        if operation in ("DELETE", "LATEST", "MEMBERS") and _is_of_a_group(call):
            group, target = call.name or call.text("group"), call.text("target", "")
        else:
            group, _, target = self._asked(call)
        if not self._permits(call.party.access, group, target):
            raise fence_refusal(group, target)

    def visible(self, party: Party) -> list[str]:
        """Return the result of `sight` at once."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Return the fences that the party may read."""
        access = party.access

        def is_seen(identity: str) -> bool:
            group, _, target = self._key(identity)
            return self._permits(access, group, target)

        return (yield from sift(self.identities(), is_seen))

    def identities(self) -> list[str]:
        """Return the identities, made of group, member and target."""
        return [_identity(*name) for name in self.space.fences.names()]

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the attributes of a fence."""
        group, member, target = self._key(identity)
        passed = self.space.fences.find(group, member, target)
        return None if passed is None else _shown(group, member, target, passed)

    def read(self, call: Call) -> Result:
        """Handle READ: return the last sequence that a member has committed at a target.

        If there is no fence for the target, the answer has the fence without a target, which is
        valid for all targets.
        """
        call.expect_only("group", "member", "target")
        group, member, target = self._asked(call)
        ruling, passed = self.space.fences.ruling(group, member, target)
        if passed is None:
            raise _missing(group, member, target)
        return Result(
            self.complete(_identity(group, member, ruling), _shown(group, member, ruling, passed))
        )

    def members(self, call: Call) -> Result:
        """Handle MEMBERS: return what READ would, for several members of a group at a target.
        Members without a fence are left out."""
        call.expect_only("group", "target", "members")
        group, target = call.name or call.text("group"), call.text("target", "")
        asked = call.arguments.get("members")
        if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
            raise ManagementError(BAD_REQUEST, "members: a list of strings is needed")
        if len(asked) > _MEMBERS:
            raise ManagementError(
                BAD_REQUEST,
                f"members: the list has {len(asked)} items; at most {_MEMBERS} are allowed",
            )
        found: list[dict[str, object]] = []
        for member in asked:
            ruling, passed = self.space.fences.ruling(group, member, target)
            if passed is not None:
                found.append(_shown(group, member, ruling, passed))
        return Result({"fences": found})

    def latest(self, call: Call) -> Result:
        """Handle LATEST: return the fence with the highest sequence that any member of a group has
        committed at a target."""
        call.expect_only("group", "target")
        group, target = call.name or call.text("group"), call.text("target", "")
        found = self.space.fences.latest(group, target)
        if found is None:
            at = f" at {target[:200]!r}" if target else ""
            raise ManagementError(
                NOT_FOUND, f"no member of group {group[:200]!r} has committed anything{at}"
            )
        return Result(_shown(group, found[0], target, found[1]))

    def repeat(self, call: Call) -> Result:
        """Handle REPEAT: count that a writer repeated a committed sequence, and did not write
        again.

        Refused if rows and digest are not those of the committed sequence.
        """
        call.expect_only("group", "member", "target", "sequence", "rows", "digest")
        group, member, target = self._asked(call)
        if "sequence" not in call.arguments:
            raise ManagementError(BAD_REQUEST, "sequence is missing: an integer is needed")
        digest = call.arguments.get("digest", b"")
        if not isinstance(digest, bytes) or len(digest) > MAX_DIGEST:
            raise ManagementError(
                BAD_REQUEST, f"digest: a binary of at most {MAX_DIGEST} bytes is needed"
            )
        fence = FenceRecord(
            group,
            member,
            call.number("sequence", 0),
            0,
            target,
            call.number("rows", 0),
            digest,
        )
        passed = self.space.fences.repeat(fence)
        return Result(_shown(group, member, target, passed))

    def delete(self, call: Call) -> Steps[Result]:
        """Handle DELETE: forget a member at a target; for a group alone, all members at all
        targets."""
        call.expect_only("group", "member", "target")
        fences = self.space.fences
        if not _is_of_a_group(call):
            group, member, target = self._asked(call)
            if not fences.forget(group, member, target):
                raise _missing(group, member, target)
            return deleted()
        group = call.name or call.text("group")
        only = call.text("target", "")

        def is_meant(identity: str) -> bool:
            of, _, target = self._key(identity)
            return of == group and only in ("", target)

        found = yield from sift(self.identities(), is_meant)
        if not found:
            raise ManagementError(NOT_FOUND, f"there is no fence of the group {group[:200]!r}")
        for at, identity in enumerate(found, 1):
            fences.forget(*self._key(identity))
            if at % _STEP == 0:
                yield None
        return deleted()

    def _permits(self, access: ConnectionAccess, group: str, target: str) -> bool:
        if access.permits(MANAGE, ADDRESS):
            return True
        if target:
            try:
                target = self.space.canonical(target)
            except BrokerError:
                # The aliases form a loop, so no client can send there.
                target = ""
        return access.permits_fence(group, target)

    def _asked(self, call: Call) -> tuple[str, str, str]:
        """Return group, member and target of a request."""
        if call.name:
            return self._key(call.name)
        group = call.text("group")
        if _BETWEEN in group:
            raise ManagementError(BAD_REQUEST, "group: it must not have a line break")
        return group, call.text("member"), call.text("target", "")

    def _key(self, identity: str) -> tuple[str, str, str]:
        """Return group, member and target of an identity."""
        group, _, rest = identity.partition(_BETWEEN)
        member, _, target = rest.partition(_BETWEEN)
        if target and self.space.fences.find(group, rest) is not None:
            # Without a target a member may have a line break in its name.
            return group, rest, ""
        return group, member, target

    def missing(self, identity: str) -> ManagementError:
        """Return the error for a fence that does not exist."""
        return _missing(*self._key(identity))


# Fences that are deleted in one step.
_STEP: Final = 250
# The most members of a request.
_MEMBERS: Final = 100


def _is_of_a_group(call: Call) -> bool:
    """Return whether a request names a group but no member."""
    if call.name:
        return _BETWEEN not in call.name
    return "member" not in call.arguments


def _identity(group: str, member: str, target: str) -> str:
    parts = (group, member, target) if target else (group, member)
    return _BETWEEN.join(parts)


def _shown(group: str, member: str, target: str, passed: Passed) -> dict[str, object]:
    # A fence without a digest has no number of rows either.
    told = bool(passed.digest)
    return {
        "group": group,
        "member": member,
        "target": target,
        "sequence": int(passed.sequence),
        "width": int(passed.width),
        "rows": int(passed.rows) if told else None,
        "digest": passed.digest.hex() if told else None,
        "repeated": int(passed.repeated),
        "time": int(passed.time),
    }


def _missing(group: str, member: str, target: str) -> ManagementError:
    at = f" at {target[:200]!r}" if target else ""
    return ManagementError(
        NOT_FOUND, f"member {member[:200]!r} of group {group[:200]!r} has committed nothing{at}"
    )
