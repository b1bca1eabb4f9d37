"""The heap of the C library, for processes that use large blocks of memory again and again."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

Result = TypeVar("Result")

# Options of mallopt in the GNU C library: their numbers.
_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
_MMAP_MAX: Final = -4
# Values of these options: never, and that of the library at the start.
_NEVER: Final = -1
_USUAL_PAD: Final = 128 * 1024
# The largest value of an option.
_MOST_OPTION: Final = 2**31 - 1
# The library looks at the end of its heap when so large a block is freed.
_LOOKED_AT: Final = 128 * 1024
# Bytes at the end of the heap that are kept: two messages of 60 MiB follow each other.
_KEPT: Final = 128 * 1024 * 1024
# Bytes that `shrink` returns to the system at a time, in a millisecond or two.
_SLICE: Final = 32 * 1024 * 1024


class Heap:
    """The heap of this process, which keeps all free memory until `shrink` returns it to the
    system: call that from time to time. Large blocks come from the heap, too.

    The C library would return memory at the end of the heap as soon as there is much of it, all of
    it at once. The first use of each new page costs more than a copy of its bytes.
    """

    def __init__(self, library: ctypes.PyDLL) -> None:
        _use_heap(library)
        self._set = library.mallopt
        self._allocate = library.malloc
        self._allocate.argtypes = (ctypes.c_size_t,)
        self._allocate.restype = ctypes.c_void_p
        self._free = library.free
        self._free.argtypes = (ctypes.c_void_p,)
        self._free.restype = None
        self._move = library.sbrk
        self._move.argtypes = (ctypes.c_ssize_t,)
        self._move.restype = ctypes.c_void_p
        self._set(_TRIM_THRESHOLD, _NEVER)
        self._begin = self._end()

    def _end(self) -> int:
        return self._move(0) or 0

    def shrink(self) -> Iterator[int]:
        """Return free memory at the end of the heap to the system, except 128 MiB. Each step
        returns at most 32 MiB, the first one also what exceeds 2 GiB, and yields how many bytes.
        Other code may run between the steps."""
        # The library does not say cheaply how much is free at the end. At most so much is.
        keep = min(self._end() - self._begin, _MOST_OPTION)
        while keep > _KEPT:
            keep = max(_KEPT, keep - _SLICE)
            before = self._end()
            self._trim(keep)
            returned = before - self._end()
            if returned > 0:
                yield returned

    def _trim(self, keep: int) -> None:
        """Return what is free at the end of the heap beyond `keep` bytes.

        `malloc_trim(keep)` would also look at all other free blocks, in each step.
        """
        # Allocated before the padding is large, which would also make the heap larger.
        block = self._allocate(_LOOKED_AT)
        self._set(_TOP_PAD, keep)
        self._set(_TRIM_THRESHOLD, keep)
        self._free(block)
        self._set(_TRIM_THRESHOLD, _NEVER)
        self._set(_TOP_PAD, _USUAL_PAD)


def keep_large_blocks() -> None:
    """Have the C library reuse the memory of large blocks; up to 128 MiB that are free at the end
    of the heap stay with the process.

    Does nothing on Linux with another C library, and on other systems.
    """
    _with_library(_use_heap)


def process_heap() -> Heap | None:
    """Return the heap of this process; None on Linux with another C library and on other systems,
    where nothing is changed."""
    return _with_library(Heap)


def _use_heap(library: ctypes.PyDLL) -> None:
    library.mallopt(_TRIM_THRESHOLD, _KEPT)
    library.mallopt(_MMAP_THRESHOLD, 32 * 1024 * 1024)
    # Larger blocks, too, come from the heap.
    library.mallopt(_MMAP_MAX, 0)


def _with_library(call: Callable[[ctypes.PyDLL], Result]) -> Result | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        # No other thread of Python runs while the options have other values.
        return call(ctypes.PyDLL(None))
    except (AttributeError, OSError, TypeError):
        return None
