"""Release of the mapped parts of the store's file that recovery has read.

LMDB maps its file. The pages read count as memory of the process until the mapping is given back,
and recovery may read the whole file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

# The bytes read before their mapping is given back.
_AT_ONCE: Final = 1_048_576


@final
class ReadAhead:
    """A counter of bytes read, which calls `unmap` after every MiB of them."""

    __slots__ = ("_unmap", "_bytes")

    def __init__(self, unmap: Callable[[], object] | None) -> None:
        self._unmap = unmap
        self._bytes: i64 = 0

    def add(self, size: i64) -> None:
        """Count bytes that were read."""
        self._bytes += size
        if self._bytes >= _AT_ONCE:
            self.end()

    def end(self) -> None:
        """Give back the current mapping."""
        self._bytes = 0
        if self._unmap is not None:
            self._unmap()
