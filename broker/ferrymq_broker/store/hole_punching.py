"""Releasing unused pages of LMDB's file to the file system while the store is in use.

LMDB reuses free pages, but its file never shrinks. A free page is never read, so its space on the
disk can be released: the file keeps its size and gets a hole. The file system allocates space again
when the page is written later.

A read that has begun before a commit still needs the pages that the commit has freed. If such a
page became a hole, LMDB would read zeros, and could end the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.lmdb_file import read_free_map

# The least waste, in bytes, that is given back. Waste that is smaller than the bytes in use is also
# kept.
_WASTE: Final = 64 << 20
# FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE of Linux.
_PUNCH: Final = 1 | 2
# Released runs begin at multiples of eight pages, which are whole bytes of the bit map.
_FREE: Final = re.compile(rb"\xff{2,}")


class HolePuncher:
    """The part that releases free pages of the file at `path`; a page has `page_bytes` bytes.
    `given` counts the released bytes."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        self.path = path
        self.given: int = 0
        self.waste = _WASTE
        self._page_bytes = page_bytes
        self._fallocate = _find_fallocate()
        # The free bytes on the disk that could not be given back.
        self._left = 0

    def allocated(self) -> int:
        """Return the bytes that the file occupies on the disk."""
        status = self.path.stat()
        blocks: int = getattr(status, "st_blocks", -1)
        return status.st_size if blocks < 0 else 512 * blocks

    def give_back(self, used: int) -> bool:
        """Release free pages if `used` is a small part of what the file occupies. Return whether
        that was tried. Pages that cannot be released stay.

        Call it while no transaction is under way, nothing is read that was begun before the last
        one, and that is on disk.
        """
        if self._fallocate is None:
            return False
        waste = self.allocated() - used
        if waste < self.waste or waste < used:
            self._left = min(self._left, max(waste, 0))
            return False
        if waste - self._left < self.waste:
            return False
        try:
            self._punch()
        except (OSError, StoreDamaged):
            # If the store is damaged, the error is reported when the damaged part is read.
            self._fallocate = None
            return False
        self._left = max(0, self.allocated() - used)
        return True

    def _punch(self) -> None:
        free = read_free_map(self.path)
        descriptor = os.open(self.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        try:
            for found in _FREE.finditer(free):
                first, end = 8 * found.start(), 8 * found.end()
                size = (end - first) * self._page_bytes
                self._call(descriptor, first * self._page_bytes, size)
                self.given += size
        finally:
            os.close(descriptor)

    def _call(self, descriptor: int, offset: int, size: int) -> None:
        assert self._fallocate is not None
        while self._fallocate(descriptor, _PUNCH, offset, size) != 0:
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), str(self.path))


def _find_fallocate() -> Any:
    """Return `fallocate64` of the C library, None if there is none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate64
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return function
