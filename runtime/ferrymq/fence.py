"""Fences: how a writer that may be started again avoids to commit the same work twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ferrymq_codec.scalars import ULong

# Bytes of a digest.
_SIZE: Final = 16
_MODULUS: Final = 1 << (8 * _SIZE)


class Digest:
    """A count and a digest of encoded rows, or messages, whatever their order.

    Two digests are equal if they are of the same rows. The value is the sum, modulo 2^128, of the
    first 16 bytes of each row's SHA-256 as a little-endian number; so digests of parts can be
    added to that of the whole.
    """

    __slots__ = ("rows", "_sum")

    def __init__(self, rows: int = 0, value: bytes = b"") -> None:
        self.rows = rows
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
        """16 bytes."""
        return (self._sum % _MODULUS).to_bytes(_SIZE, "little")

    def add(self, rows: Iterable[bytes]) -> None:
        """Add rows, each encoded the way it will be encoded when it comes again: without a time or
        an identifier that is made up each time."""
        from_bytes = int.from_bytes
        numbers = [from_bytes(sha256(row).digest(), "little") for row in rows]
        self.rows += len(numbers)
        self._sum = (self._sum + sum(numbers)) % _MODULUS

    def merge(self, other: Digest) -> None:
        """Add the rows of another digest."""
        self.rows += other.rows
        self._sum += int.from_bytes(other.value, "little")


@dataclass(frozen=True, slots=True)
class Fence:
    """What a transaction is to be known by once it is committed.

    `group` and `member` say who writes, `target` where to, such as an address, and `sequence` is
    the number of the work, which grows. A sequence that is not above the one the member has
    committed last at this target is refused. `width` is how many members share out the work of the
    group; 0 leaves it unsaid.
    """

    group: str
    member: str
    sequence: int
    width: int = 0
    target: str = ""

    def annotations(self, digest: Digest | None = None) -> dict[str | int, object]:
        """Return the message-annotations of a discharge that carries the fence, and says with a
        `digest` what was written."""
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
    """What a member has committed last.

    `width` is 0 and `digest` is None if it did not say. `target` is empty for a writer that named
    none.
    """

    sequence: int
    width: int = 0
    target: str = ""
    digest: Digest | None = None
