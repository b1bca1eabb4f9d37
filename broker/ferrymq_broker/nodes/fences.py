"""Fences: how far each writer of a group has got, so that nothing is written twice.

A writer that may be started again with the same work numbers its transactions and gives each its
fence: the `group` it belongs to, which `member` it is, the `target` it writes to, and the number, a
`sequence` that grows. At the commit the broker remembers the sequence; a transaction whose sequence
is not above the one remembered is refused, for it has been committed before. A writer that does not
know whether its commit was done asks for the sequence.

Each target has fences of its own: the same group and member may write the same sequence to another
target. A fence without a target, of a writer that names none, stands for every target for which
there is no fence yet: so writers that name their target now go on from what they have stored.

`rows` and `digest` say what was written: how many rows, and a digest of them. A sequence that is
tried again with other rows, or another digest, is refused as such. Without a digest on either side
there is nothing to compare.

`width` is how many members the group has, 0 if it does not say. Work that is shared out among
another number of members is other work: a sequence that one of them has committed is refused to the
members of another width.

What is remembered is as durable as the messages: it is in the same batch.
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
    """The fence that a transaction carries. `digest` is empty, and `rows` 0, where nothing is said
    of what was written; `target` is empty for a writer that names none."""

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
        self.group = group
        self.member = member
        self.sequence: i64 = sequence
        self.width: i64 = width
        self.target = target
        self.rows: i64 = rows
        self.digest = digest


@final
class Passed:
    """How far a member has got: its last `sequence`, as one of `width` members, and when it was
    committed, in milliseconds since the epoch.

    `rows` and `digest` are what that sequence wrote; the digest is empty if it did not say.
    `repeated` counts the rows that came again and were not written again. `id` is that of the
    record.
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
        self.digest = digest
        self.repeated: i64 = repeated


@final
class FenceRegistry:
    """The fences of one virtual host, no more than `most`."""

    __slots__ = ("space", "changes", "most", "_groups", "_count")

    def __init__(self, space: str, changes: Changes, most: i64) -> None:
        self.space = space
        self.changes = changes
        self.most: i64 = most
        # By group, target and member.
        self._groups: dict[str, dict[str, dict[str, Passed]]] = {}
        self._count: i64 = 0

    def __len__(self) -> int:
        return self._count

    def find(self, group: str, member: str, target: str = "") -> Passed | None:
        """Return how far a member has got at a target; None if nothing of it has been committed
        there."""
        # Who asks goes by the answer: that must not be another one after a crash.
        self.changes.claim()
        targets = self._groups.get(group)
        members = None if targets is None else targets.get(target)
        return None if members is None else members.get(member)

    def ruling(self, group: str, member: str, target: str) -> tuple[str, Passed | None]:
        """Return the fence that a sequence of the member has to be above, and its target: the one
        without a target where there is none for this target."""
        passed = self.find(group, member, target)
        if passed is None and target:
            older = self.find(group, member)
            if older is not None:
                return "", older
        return target, passed

    def names(self) -> list[tuple[str, str, str]]:
        """Return group, member and target of each, in order."""
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
                f"there are {self.most} fences already, as many as there may be nodes",
            )
        if known is not None and fence.sequence <= known.sequence:
            raise refusal(fence, known)
        if members is not None and fence.width != 0:
            for name, other in members.items():
                # Its own width may change with a new sequence, and others follow.
                if (
                    other.width not in (0, fence.width)
                    and other.sequence >= fence.sequence
                    and name != fence.member
                ):
                    raise BrokerError(
                        OTHER_WIDTH,
                        f"{fence.sequence} of {fence.group[:200]!r} has been committed by one of"
                        f" {other.width} members; this one is of {fence.width}",
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
        """Count the rows of a writer that came again with work that has been committed, and does
        not write it again.

        Raises `BrokerError`: `amqp:not-found` if this sequence has not been committed, and as
        `check` if a later one has, or the same with other content.
        """
        check_names(fence)
        target, known = self.ruling(fence.group, fence.member, fence.target)
        if known is None or known.sequence < fence.sequence:
            raise BrokerError(
                "amqp:not-found",
                f"member {fence.member[:200]!r} of {fence.group[:200]!r} has not committed"
                f" {fence.sequence}",
            )
        if known.sequence > fence.sequence or differs(fence, known):
            raise refusal(fence, known)
        known.repeated += known.rows
        self._store(fence.group, fence.member, target, known)
        return known

    def restore(self, group: str, member: str, target: str, passed: Passed) -> None:
        """Take in a fence that was stored."""
        self._groups.setdefault(group, {}).setdefault(target, {})[member] = passed
        self._count += 1

    def forget(self, group: str, member: str, target: str = "") -> bool:
        """Remember nothing of a member at a target; False if there was nothing."""
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
    """Raise `BrokerError` for names that no fence may have."""
    if not fence.group or max(map(len, (fence.group, fence.member, fence.target))) > MAX_NAME:
        raise BrokerError("amqp:invalid-field", f"a fence has names of 1 to {MAX_NAME} characters")
    if "\n" in fence.group or "\n" in fence.member or "\n" in fence.target:
        raise BrokerError("amqp:invalid-field", "a name of a fence has a line break in it")


def differs(fence: FenceRecord, known: Passed) -> bool:
    """Return whether a fence is of other content than what has been committed."""
    if not fence.digest or not known.digest:
        return False
    return fence.digest != known.digest or fence.rows != known.rows


def refusal(fence: FenceRecord, known: Passed) -> BrokerError:
    """Return the error for a sequence that is not above the one committed."""
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
    who = f"member {fence.member[:200]!r} of {fence.group[:200]!r}"
    if fence.target:
        who = f"{who} at {fence.target[:200]!r}"
    if fence.sequence == known.sequence and differs(fence, known):
        return BrokerError(
            OTHER_CONTENT,
            f"{who} has committed {known.sequence} with {known.rows} rows and the digest"
            f" {known.digest.hex()}; these are {fence.rows} rows with the digest"
            f" {fence.digest.hex()}",
            info,
        )
    return BrokerError(
        PASSED, f"{who} has committed {known.sequence}; {fence.sequence} is not above it", info
    )
