"""Fences: how far each writer of a group has got, so that nothing is written twice.

A writer that may be started again with the same work numbers its transactions and gives each its
fence: the `group` it belongs to, which `member` it is, and the number, a `sequence` that grows. At
the commit the broker remembers the sequence; a transaction whose sequence is not above the one
remembered is refused, for it has been committed before. A writer that does not know whether its
commit was done asks for the sequence.

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
from ferrymq_broker.store.tables import FENCE
from ferrymq_broker.store.values import encode_map

PASSED: Final = "ferrymq:fence-passed"
OTHER_WIDTH: Final = "ferrymq:fence-width"

# The longest name of a group or a member, in characters.
MAX_NAME: Final = 1024


@final
class Fence:
    """What a transaction is to be known by."""

    __slots__ = ("group", "member", "sequence", "width")

    def __init__(self, group: str, member: str, sequence: i64, width: i64 = 0) -> None:
        self.group = group
        self.member = member
        self.sequence: i64 = sequence
        self.width: i64 = width


@final
class Passed:
    """How far a member has got: its last `sequence`, as one of `width` members, and when it was
    committed, in milliseconds since the epoch. `id` is that of its record."""

    __slots__ = ("id", "sequence", "width", "time")

    def __init__(self, id: i64, sequence: i64, width: i64, time: i64) -> None:
        self.id: i64 = id
        self.sequence: i64 = sequence
        self.width: i64 = width
        self.time: i64 = time


@final
class Fences:
    """All of one virtual host, no more than `most`."""

    __slots__ = ("space", "changes", "most", "_groups", "_count")

    def __init__(self, space: str, changes: Changes, most: i64) -> None:
        self.space = space
        self.changes = changes
        self.most: i64 = most
        self._groups: dict[str, dict[str, Passed]] = {}
        self._count: i64 = 0

    def __len__(self) -> int:
        return self._count

    def find(self, group: str, member: str) -> Passed | None:
        """How far a member has got; None if nothing of it has been committed."""
        # Who asks goes by the answer: that must not be another one after a crash.
        self.changes.claim()
        members = self._groups.get(group)
        return None if members is None else members.get(member)

    def names(self) -> list[tuple[str, str]]:
        """Group and member of each, in order."""
        return sorted(
            (group, member) for group, members in self._groups.items() for member in members
        )

    def check(self, fence: Fence) -> None:
        """Raise `BrokerError` if a transaction with this fence must not be committed."""
        if not fence.group or len(fence.group) > MAX_NAME or len(fence.member) > MAX_NAME:
            raise BrokerError(
                "amqp:invalid-field", f"a fence has names of 1 to {MAX_NAME} characters"
            )
        members = self._groups.get(fence.group)
        known = None if members is None else members.get(fence.member)
        if known is None and self._count >= self.most:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"there are {self.most} fences already, as many as there may be nodes",
            )
        if known is not None and fence.sequence <= known.sequence:
            self.changes.claim()
            raise BrokerError(
                PASSED,
                f"member {fence.member[:200]!r} of {fence.group[:200]!r} has committed"
                f" {known.sequence}; {fence.sequence} is not above it",
                {
                    "group": fence.group,
                    "member": fence.member,
                    "sequence": int(known.sequence),
                    "width": int(known.width),
                },
            )
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

    def pass_(self, fence: Fence, now: i64) -> None:
        """A transaction with this fence is being committed."""
        members = self._groups.get(fence.group)
        if members is None:
            members = {}
            self._groups[fence.group] = members
        known = members.get(fence.member)
        if known is None:
            known = Passed(self.changes.new_id(), fence.sequence, fence.width, now)
            members[fence.member] = known
            self._count += 1
        else:
            known.sequence = fence.sequence
            known.width = fence.width
            known.time = now
        fields: dict[str, object] = {
            "space": self.space,
            "group": fence.group,
            "member": fence.member,
            "sequence": int(fence.sequence),
            "width": int(fence.width),
            "time": int(now),
        }
        self.changes.put(FENCE, known.id, 0, encode_map(fields))

    def restore(self, group: str, member: str, passed: Passed) -> None:
        """One that was stored."""
        self._groups.setdefault(group, {})[member] = passed
        self._count += 1

    def forget(self, group: str, member: str) -> bool:
        """Remember nothing of a member; False if there was nothing."""
        members = self._groups.get(group)
        if members is None:
            return False
        known = members.pop(member, None)
        if known is None:
            return False
        if not members:
            del self._groups[group]
        self._count -= 1
        self.changes.drop(FENCE, known.id, 0)
        return True
