"""Fences: they prevent a restarted writer from committing the same work twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ferrymq_codec.scalars import ULong

# Bytes of a digest.
_SIZE: Final = 16
_MODULUS: Final = 1 << (8 * _SIZE)


class Digest:
    """Count and digest of encoded rows, or messages, independent of their order.

    Two digests are equal if they are of the same rows. The value is the sum, modulo 2^128, of the
    first 16 bytes of each row's SHA-256 as a little-endian number, so digests of parts can be added
    up.
    """

    __slots__ = ("rows", "_sum")

    def __init__(self, rows: int = 0, value: bytes = b"") -> None:
        self.rows: int = rows
        self._sum = int.from_bytes(value, "little")

    def __repr__(self) -> str:
        return f"<digest {self.value.hex()} of {self.rows} rows>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digest):
            return NotImplemented
        return self.rows == other.rows and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.rows, self.value))

    @property
    def value(self) -> bytes:
        """The digest, 16 bytes."""
        return (self._sum % _MODULUS).to_bytes(_SIZE, "little")

    def add(self, rows: Iterable[bytes]) -> None:
        """Add rows. A row must be encoded in the same way each time it is written: without a
        generated time or identifier."""
        # Few programs have fences.
        from ferrymq.row_digests import sum_of_digests

        rows = list(rows)
        self._sum = (self._sum + sum_of_digests(rows)) % _MODULUS
        self.rows += len(rows)

    def merge(self, other: Digest) -> None:
        """Add the rows of another digest."""
        self.rows += other.rows
        self._sum += int.from_bytes(other.value, "little")


@dataclass(frozen=True, slots=True)
class Fence:
    """Identity of the work of a transaction, which the peer stores with the commit.

    `group` and `member` identify the writer, `target` the place it writes to, such as an address,
    and `sequence` is the number of the work, which grows. A sequence that is not above the last one
    that the member has committed at this target is refused. `width` is the number of members that
    share the work of the group; 0 if it is not stated.
    """

    group: str
    member: str
    sequence: int
    width: int = 0
    target: str = ""

    def annotations(self, digest: Digest | None = None) -> dict[str | int, object]:
        """Return the message-annotations of a discharge with this fence and, if given, with the
        `digest` of the written rows."""
        annotations: dict[str | int, object] = {
            "ferrymq:fence-group": self.group,
            "ferrymq:fence-member": self.member,
            "ferrymq:fence-sequence": self.sequence,
        }
        if self.width:
            annotations["ferrymq:fence-width"] = self.width
        if self.target:
            annotations["ferrymq:fence-target"] = self.target
        if digest is not None:
            annotations["ferrymq:fence-rows"] = ULong(digest.rows)
            annotations["ferrymq:fence-digest"] = digest.value
        return annotations


@dataclass(frozen=True, slots=True)
class Committed:
    """The last work that a member has committed.

    `width` is 0 and `digest` is None if the member did not state them. `target` is empty for a
    writer that stated none.
    """

    sequence: int
    width: int = 0
    target: str = ""
    digest: Digest | None = None
