"""Fences: they prevent a restarted writer from committing the same work twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from ferrymq_codec.scalars import ULong

Algorithm = Literal["sha-256", "xxh3-128"]

# Bytes of a sum.
_SIZE: Final = 16
_MODULUS: Final = 1 << (8 * _SIZE)
# The first byte of a value of XXH3. A value of SHA-256 is the sum alone.
_XXH3: Final = b"\x01"


class Digest:
    """Count and digest of encoded rows, or messages, independent of their order.

    Two digests are equal if they are of the same rows and of the same `algorithm`. The digest is
    the sum, modulo 2^128, of a little-endian number for each row, so digests of parts can be added
    up. The number is the first 16 bytes of the row's SHA-256, or the row's XXH3 of 128 bits. XXH3
    takes a tenth of the time and needs the package xxhash. It finds accidents, but not rows that
    somebody has made to have the digest of others.

    `value` continues an earlier digest, and says its algorithm.
    """

    __slots__ = ("algorithm", "rows", "_sum")

    def __init__(
        self, rows: int = 0, value: bytes = b"", *, algorithm: Algorithm = "sha-256"
    ) -> None:
        if len(value) == 1 + _SIZE and value.startswith(_XXH3):
            algorithm, value = "xxh3-128", value[1:]
        elif value:
            algorithm = "sha-256"
        self.algorithm: Algorithm = algorithm
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
        """The digest: 16 bytes with "sha-256", 17 with "xxh3-128"."""
        total = (self._sum % _MODULUS).to_bytes(_SIZE, "little")
        return total if self.algorithm == "sha-256" else _XXH3 + total

    def add(self, rows: Iterable[bytes]) -> None:
        """Add rows. A row must be encoded in the same way each time it is written: without a
        generated time or identifier. Raises `ModuleNotFoundError` if the algorithm needs a package
        that is missing."""
        # Few programs have fences.
        from ferrymq.row_digests import sum_of_digests

        digest_of: Callable[[bytes], bytes] = _sha_256
        if self.algorithm == "xxh3-128":
            from xxhash import xxh3_128_digest as digest_of
        rows = list(rows)
        self._sum = (self._sum + sum_of_digests(rows, digest_of)) % _MODULUS
        self.rows += len(rows)

    def merge(self, other: Digest) -> None:
        """Add the rows of another digest. Raises `ValueError` if it has another algorithm."""
        if other.algorithm != self.algorithm:
            raise ValueError(
                f"a digest of {other.algorithm} cannot be added to one of {self.algorithm}"
            )
        self.rows += other.rows
        self._sum += other._sum


def _sha_256(row: bytes) -> bytes:
    return sha256(row).digest()


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
