"""Fences: how a writer that may be started again avoids to commit the same work twice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fence:
    """What a transaction is to be known by once it is committed.

    `group` and `member` say who writes, `sequence` is the number of the work, which grows. A
    sequence that is not above the one the member has committed last is refused. `width` is how many
    members share out the work of the group; 0 leaves it unsaid.
    """

    group: str
    member: str
    sequence: int
    width: int = 0

    def annotations(self) -> dict[str | int, object]:
        """The message-annotations of a discharge that carries it."""
        annotations: dict[str | int, object] = {
            "ferrymq:fence-group": self.group,
            "ferrymq:fence-member": self.member,
            "ferrymq:fence-sequence": self.sequence,
        }
        if self.width:
            annotations["ferrymq:fence-width"] = self.width
        return annotations
