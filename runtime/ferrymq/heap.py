"""The heap of the C library, for processes that use large blocks of memory again and again."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

# Options of mallopt in the GNU C library, and their values in bytes.
_TRIM_THRESHOLD: Final = (-1, 128 * 1024 * 1024)
_MMAP_THRESHOLD: Final = (-3, 32 * 1024 * 1024)
# Larger blocks, too, come from the heap.
_MMAP_MAX: Final = (-4, 0)


def keep_large_blocks() -> None:
    """Have the C library reuse the memory of large blocks. It would return each of them to the
    system, and the first use of each new page costs more than a copy of its bytes.

    At most 128 MiB at the end of the heap stay with the process. Does nothing on Linux with another
    C library, and on other systems.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        function = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX):
        function(option, value)
