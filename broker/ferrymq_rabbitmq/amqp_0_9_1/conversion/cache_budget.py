"""The bounds of a cache of converted messages."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# The most entries of a cache, and their bytes together; longer entries are not kept.
MAX_ENTRIES: Final = 1024
MAX_BYTES: Final = 1_048_576
MAX_ENTRY: Final = 4096


@final
class CacheBudget:
    """The number and the bytes of the entries of one cache, which is emptied when it is full."""

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries: i64 = 0
        self.bytes: i64 = 0

    def fits(self, size: i64) -> bool:
        """Return whether an entry of `size` bytes fits in besides the others."""
        return self.entries < MAX_ENTRIES and self.bytes + size <= MAX_BYTES

    def add(self, size: i64) -> None:
        """Count an entry."""
        self.entries += 1
        self.bytes += size

    def reset(self) -> None:
        """Count no entries."""
        self.entries = 0
        self.bytes = 0
