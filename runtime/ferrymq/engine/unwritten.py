"""Memory for bytes that are written later. Not compiled, because its class is not a native one."""

from __future__ import annotations

from io import BufferedReader, RawIOBase
from typing import Any, Final


class _Nothing(RawIOBase):
    """A stream that leaves the memory as it is into which it should read."""

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Return the size of the buffer, as if it had been filled."""
        return len(buffer)


_NOTHING: Final = BufferedReader(_Nothing(), 4096)


def unwritten(size: int) -> bytes:
    """Return so many bytes whose values have no meaning: no one may see them.

    `bytes(size)` would write zeros to memory that is about to be written anyway, which costs as
    much as a copy.
    """
    return _NOTHING.read(size)
