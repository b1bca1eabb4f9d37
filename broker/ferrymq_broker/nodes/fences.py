"""Fences: how far each writer of a group has got, so that a writer writes nothing twice.

A writer that may be restarted with the same work numbers its transactions and gives each
transaction a fence: the `group` it belongs to, which `member` it is, the `target` it writes to, and
the number, a `sequence` that grows. At the commit the broker remembers the sequence; a transaction
whose sequence is not higher is refused, because it has been committed before. A writer that does
not know whether its commit was done asks the broker for the sequence.

Each target has fences of its own: the same group and member may write the same sequence to another
target. A fence without a target (the writer names none) applies to every target that has no fence
yet. So a writer that begins to name its target continues from its stored fence.

`rows` and `digest` describe the content: the number of rows, and a digest of them. If a sequence is
repeated with other rows or another digest, the refusal says so. If either side has no digest,
nothing is compared.

`width` is the number of members of the group, 0 if the writer does not say. With another number of
members, each member has other work. Therefore a sequence that a member of one width has committed
is refused to members of another width.

Fences are as durable as the messages: both are in the same batch of the store.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import FENCE

PASSED: Final = "ferrymq:fence-passed"
OTHER_CONTENT: Final = "ferrymq:fence-content"
OTHER_WIDTH: Final = "ferrymq:fence-width"

# The longest name of a group, a member or a target, in characters.
MAX_NAME: Final = 1024
# The longest digest, in bytes.
MAX_DIGEST: Final = 64


@final
class FenceRecord:
    """The fence that a transaction carries. If the writer does not describe the content, `digest`
    is empty and `rows` is 0. `target` is empty if the writer names none."""

    __slots__ = ("group", "member", "sequence", "width", "target", "rows", "digest")

    def __init__(
        self,
        group: str,
        member: str,
        sequence: i64,
        width: i64 = 0,
        target: str = "",
        rows: i64 = 0,
        digest: bytes = b"",
    ) -> None:
        self.group: str = group
        self.member: str = member
        self.sequence: i64 = sequence
        self.width: i64 = width
        self.target: str = target
        self.rows: i64 = rows
        self.digest: bytes = digest


@final
class Passed:
    """The progress of a member: its last `sequence`, as one of `width` members, and when it was
    committed, in milliseconds since the epoch.

    `rows` and `digest` describe the content of that sequence; the digest is empty if the writer
    gave none. `repeated` counts the rows that came again and were not written again. `id` is the id
    of the record.
    """

    __slots__ = ("id", "sequence", "width", "time", "rows", "digest", "repeated")

    def __init__(
        self,
        id: i64,
        sequence: i64,
        width: i64,
        time: i64,
        rows: i64 = 0,
        digest: bytes = b"",
        repeated: i64 = 0,
    ) -> None:
        self.id: i64 = id
        self.sequence: i64 = sequence
        self.width: i64 = width
        self.time: i64 = time
        self.rows: i64 = rows
        self.digest: bytes = digest
        self.repeated: i64 = repeated


@final
class FenceRegistry:
    """The fences of one virtual host, no more than `most`."""

    __slots__ = ("space", "changes", "most", "_groups", "_count")

    def __init__(self, space: str, changes: Changes, most: i64) -> None:
        self.space: str = space
        self.changes: Changes = changes
        self.most: i64 = most
        # By group, target and member.
        self._groups: dict[str, dict[str, dict[str, Passed]]] = {}
        self._count: i64 = 0

    def __len__(self) -> int:
        return self._count

    def find(self, group: str, member: str, target: str = "") -> Passed | None:
        """Return the progress of a member at a target; None if it has committed nothing there."""
        # The client relies on the answer, so it must still be true after a crash.
        self.changes.claim()
        targets = self._groups.get(group)
        members = None if targets is None else targets.get(target)
        return None if members is None else members.get(member)

    def latest(self, group: str, target: str) -> tuple[str, Passed] | None:
        """Return the member of a group that has the highest sequence at a target, with its
        progress; None if no member has committed there."""
        self.changes.claim()
        targets = self._groups.get(group)
        members = None if targets is None else targets.get(target)
        found: tuple[str, Passed] | None = None
        if members is not None:
            for name, passed in members.items():
                if found is None or passed.sequence > found[1].sequence:
                    found = (name, passed)
        return found

    def ruling(self, group: str, member: str, target: str) -> tuple[str, Passed | None]:
        """Return the fence that a new sequence of the member must exceed, and its target. If this
        target has no fence, that is the fence without a target."""
        passed = self.find(group, member, target)
        if passed is None and target:
            older = self.find(group, member)
            if older is not None:
                return "", older
        return target, passed

    def names(self) -> list[tuple[str, str, str]]:
        """Return group, member and target of each fence, in order."""
        return sorted(
            (group, member, target)
            for group, targets in self._groups.items()
            for target, members in targets.items()
            for member in members
        )

    def check(self, fence: FenceRecord) -> None:
        """Raise `BrokerError` if a transaction with this fence must not be committed."""
        check_names(fence)
        known = self.ruling(fence.group, fence.member, fence.target)[1]
        targets = self._groups.get(fence.group)
        members = None if targets is None else targets.get(fence.target)
        if (members is None or fence.member not in members) and self._count >= self.most:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"there are {self.most} fences already, which is the limit; delete fences that "
                "are no longer used",
            )
        if known is not None and fence.sequence <= known.sequence:
            raise refusal(fence, known)
        if members is not None and fence.width != 0:
            for name, other in members.items():
                # A new sequence of this member may change its width; the other members follow.
                if (
                    other.width not in (0, fence.width)
                    and other.sequence >= fence.sequence
                    and name != fence.member
                ):
                    raise BrokerError(
                        OTHER_WIDTH,
                        f"sequence {fence.sequence} of group {fence.group[:200]!r} has been "
                        f"committed by one of {other.width} members; this writer is one of "
                        f"{fence.width} members",
                        {"group": fence.group, "width": int(other.width)},
                    )

    def pass_(self, fence: FenceRecord, now: i64) -> None:
        """Remember that a transaction with this fence is being committed."""
        members = self._groups.setdefault(fence.group, {}).setdefault(fence.target, {})
        known = members.get(fence.member)
        if known is None:
            known = Passed(self.changes.new_id(), fence.sequence, fence.width, now)
            members[fence.member] = known
            self._count += 1
        known.sequence = fence.sequence
        known.width = fence.width
        known.time = now
        known.rows = fence.rows
        known.digest = fence.digest
        self._store(fence.group, fence.member, fence.target, known)

    def repeat(self, fence: FenceRecord) -> Passed:
        """Count the rows of a writer that has repeated committed work and does not write it again.

        Raises `BrokerError`: `amqp:not-found` if this sequence has not been committed, and as
        `check` if a later sequence has been committed, or the same one with other content.
        """
        check_names(fence)
        target, known = self.ruling(fence.group, fence.member, fence.target)
        if known is None or known.sequence < fence.sequence:
            raise BrokerError(
                "amqp:not-found",
                f"member {fence.member[:200]!r} of group {fence.group[:200]!r} has not "
                f"committed sequence {fence.sequence}",
            )
        if known.sequence > fence.sequence or differs(fence, known):
            raise refusal(fence, known)
        known.repeated += known.rows
        self._store(fence.group, fence.member, target, known)
        return known

    def restore(self, group: str, member: str, target: str, passed: Passed) -> None:
        """Restore a stored fence."""
        self._groups.setdefault(group, {}).setdefault(target, {})[member] = passed
        self._count += 1

    def forget(self, group: str, member: str, target: str = "") -> bool:
        """Delete the fence of a member at a target; return false if there was none."""
        targets = self._groups.get(group)
        members = None if targets is None else targets.get(target)
        if targets is None or members is None:
            return False
        known = members.pop(member, None)
        if known is None:
            return False
        if not members:
            del targets[target]
        if not targets:
            del self._groups[group]
        self._count -= 1
        self.changes.drop(FENCE, known.id, 0)
        return True

    def _store(self, group: str, member: str, target: str, passed: Passed) -> None:
        fields: dict[str, object] = {
            "space": self.space,
            "group": group,
            "member": member,
            "sequence": int(passed.sequence),
            "width": int(passed.width),
            "time": int(passed.time),
        }
        if target:
            fields["target"] = target
        if passed.digest:
            fields["rows"] = int(passed.rows)
            fields["digest"] = passed.digest
        if passed.repeated:
            fields["repeated"] = int(passed.repeated)
        self.changes.put(FENCE, passed.id, 0, encode_map(fields))


def check_names(fence: FenceRecord) -> None:
    """Raise `BrokerError` if a name of the fence is invalid."""
    if not fence.group or max(map(len, (fence.group, fence.member, fence.target))) > MAX_NAME:
        raise BrokerError(
            "amqp:invalid-field",
            f"group, member and target of a fence must have 1 to {MAX_NAME} characters",
        )
    if "\n" in fence.group or "\n" in fence.member or "\n" in fence.target:
        raise BrokerError(
            "amqp:invalid-field", "group, member and target of a fence must not have a line break"
        )


def differs(fence: FenceRecord, known: Passed) -> bool:
    """Return whether the content of a fence differs from what has been committed."""
    if not fence.digest or not known.digest:
        return False
    return fence.digest != known.digest or fence.rows != known.rows


def refusal(fence: FenceRecord, known: Passed) -> BrokerError:
    """Return the error for a sequence that is not higher than the committed one."""
    info: dict[str, object] = {
        "group": fence.group,
        "member": fence.member,
        "sequence": int(known.sequence),
        "width": int(known.width),
    }
    if fence.target:
        info["target"] = fence.target
    if known.digest:
        info["rows"] = int(known.rows)
        info["digest"] = known.digest
    who = f"member {fence.member[:200]!r} of group {fence.group[:200]!r}"
    if fence.target:
        who = f"{who} at {fence.target[:200]!r}"
    if fence.sequence == known.sequence and differs(fence, known):
        return BrokerError(
            OTHER_CONTENT,
            f"{who} has committed sequence {known.sequence} with {known.rows} rows and the "
            f"digest {known.digest.hex()}; this transaction has {fence.rows} rows and the "
            f"digest {fence.digest.hex()}",
            info,
        )
    return BrokerError(
        PASSED,
        f"{who} has committed sequence {known.sequence}; sequence {fence.sequence} is not "
        "higher",
        info,
    )
