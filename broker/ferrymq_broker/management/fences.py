"""Fences: how far writers have got that number their transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.access.access import fence_refusal
from ferrymq_broker.access.rights import MANAGE
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.entity import EntityType, deleted
from ferrymq_broker.management.errors import BAD_REQUEST, NOT_FOUND, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps, finish, sift
from ferrymq_broker.nodes.fences import MAX_DIGEST, FenceRecord, Passed

if TYPE_CHECKING:
    from ferrymq_broker.access.access import ConnectionAccess
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# Between group, member and target in the identity.
_BETWEEN: Final = "\n"


class FenceEntities(EntityType):
    """The last sequence of each member of each group, for each target."""

    short = "fence"
    attributes = (
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
        """READ, REPEAT and DELETE."""
        key = ("group", "member", "target")
        return {
            "READ": Operation(self.read, key),
            "REPEAT": Operation(self.repeat, (*key, "sequence", "rows", "digest")),
            "DELETE": Operation(self.delete, key),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """Let those read and forget a fence who may commit with it, or manage the broker."""
        if operation == "DELETE" and _is_of_a_group(call):
            group, target = call.name or call.text("group"), call.text("target", "")
        else:
            group, _, target = self._asked(call)
        if not self._permits(call.party.access, group, target):
            raise fence_refusal(group, target)

    def visible(self, party: Party) -> list[str]:
        """As `sight`."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Those that the party may read."""
        access = party.access

        def is_seen(identity: str) -> bool:
            group, _, target = self._key(identity)
            return self._permits(access, group, target)

        return (yield from sift(self.identities(), is_seen))

    def identities(self) -> list[str]:
        """By group, member and target."""
        return [_identity(*name) for name in self.space.fences.names()]

    def show(self, identity: str) -> dict[str, object] | None:
        """How far it has got."""
        group, member, target = self._key(identity)
        passed = self.space.fences.find(group, member, target)
        return None if passed is None else _shown(group, member, target, passed)

    def read(self, call: Call) -> Result:
        """READ: the sequence a member has committed last at a target.

        Where there is none for the target, the answer is the one that rules in its place: that of
        a writer that named no target.
        """
        call.expect_only("group", "member", "target")
        group, member, target = self._asked(call)
        ruling, passed = self.space.fences.ruling(group, member, target)
        if passed is None:
            raise _missing(group, member, target)
        return Result(
            self.complete(_identity(group, member, ruling), _shown(group, member, ruling, passed))
        )

    def repeat(self, call: Call) -> Result:
        """REPEAT: a writer has come again with what it has committed, and does not write it again.

        Its rows are counted. Refused if they are not those that were committed.
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
        """DELETE: the member begins anew; all members at all targets, of a group alone."""
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
            raise ManagementError(NOT_FOUND, f"there is no fence of {group[:200]!r}")
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
                # Aliases lead in a circle: nobody can send there.
                target = ""
        return access.permits_fence(group, target)

    def _asked(self, call: Call) -> tuple[str, str, str]:
        """Group, member and target that a request names."""
        if call.name:
            return self._key(call.name)
        group = call.text("group")
        if _BETWEEN in group:
            raise ManagementError(BAD_REQUEST, "group: has a line break in it")
        return group, call.text("member"), call.text("target", "")

    def _key(self, identity: str) -> tuple[str, str, str]:
        """Group, member and target of an identity."""
        group, _, rest = identity.partition(_BETWEEN)
        member, _, target = rest.partition(_BETWEEN)
        if target and self.space.fences.find(group, rest) is not None:
            # A member may have a line break in its name where there is no target.
            return group, rest, ""
        return group, member, target

    def missing(self, identity: str) -> ManagementError:
        """Nothing of it has been committed."""
        return _missing(*self._key(identity))


# Fences that are forgotten in one step.
_STEP: Final = 250


def _is_of_a_group(call: Call) -> bool:
    """Whether a request names a group and no member."""
    if call.name:
        return _BETWEEN not in call.name
    return "member" not in call.arguments


def _identity(group: str, member: str, target: str) -> str:
    parts = (group, member, target) if target else (group, member)
    return _BETWEEN.join(parts)


def _shown(group: str, member: str, target: str, passed: Passed) -> dict[str, object]:
    # Of fences that do not say what was written there are no rows and no digest.
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
        NOT_FOUND, f"nothing of member {member[:200]!r} of {group[:200]!r}{at} has been committed"
    )
