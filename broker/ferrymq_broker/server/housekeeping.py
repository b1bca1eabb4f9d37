"""Memory given back: what Python's collector would not look at, what the allocator would keep.

A queue is many small objects and hardly any garbage. A full collection looks at every message, and
nothing else happens meanwhile. So Python is told to make none. What a connection leaves behind has
no cycles: reference counting frees it. For cycles that were overlooked, a full collection is made
here after many connections, and only while there are few objects to look at.

A long queue that has been emptied leaves free memory between what is still in use. The C library
keeps it for later; asked to, it gives it back to the system.

What is read of the files of LMDB is mapped, and counts as the broker's memory for as long as the
system has room. It can be had again from the file: the mapping is given back, the file stays in the
system's cache.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Final

from ferrymq_broker.broker import Broker

# Seconds between two looks at it.
PERIOD: Final = 5.0
# So many connections, sessions and consumers must have begun since the last full collection.
ENOUGH: Final = 1_000
# A full collection of more blocks of memory than this would take longer than 20 ms.
MOST_BLOCKS: Final = 150_000
# So many bytes of messages must have gone, and at least half of all there were.
WORTH_IT: Final = 64 * 1024 * 1024
# How the files of LMDB are called.
_LMDB: Final = "/data.mdb"
# What a mapping is told that is not needed now, on Linux (MADV_DONTNEED).
_NOT_NEEDED: Final = 4


def tune_garbage_collector() -> None:
    """Collect what is young only: a look at 100 000 objects takes some 12 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 1_000_000_000)


class Housekeeping:
    """To be called every `PERIOD` seconds.

    `trim` gives memory back, `unmap` what is mapped of files. `blocks` counts the blocks of memory
    that the objects of Python have.
    """

    def __init__(
        self,
        broker: Broker,
        trim: Callable[[], object] | None,
        unmap: Callable[[], object] | None = None,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._broker = broker
        self._trim = trim
        self._unmap = unmap
        self._blocks = blocks
        # Those of the program itself, which collections leave out.
        self._frozen = blocks()
        self._begun = broker.begun() - len(broker.handlers)
        self._most = 0

    def look(self) -> None:
        """Do what there is reason for."""
        # Connections are garbage when they end, and may all end long after they began.
        begun = self._broker.begun() - len(self._broker.handlers)
        if begun - self._begun >= ENOUGH and self._blocks() - self._frozen <= MOST_BLOCKS:
            self._begun = begun
            gc.collect()
        held = int(self._broker.agenda.held + self._broker.unfinished.held)
        freed = self._most - held
        if freed < 0:
            self._most = held
        elif freed >= WORTH_IT and freed >= held:
            self._most = held
            if self._trim is not None:
                self._trim()
        self._broker.tidy()
        if self._unmap is not None:
            self._unmap()


def find_trim() -> Callable[[], object] | None:
    """The function of the C library that gives free memory back; None where there is none."""
    try:
        function = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None

    def trim() -> object:
        return function(0)

    return trim


def find_unmap() -> Callable[[], object] | None:
    """A function that gives back what is mapped of LMDB's files, which only reads them by these
    mappings; None where the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        advise = ctypes.CDLL(None).madvise
    except (AttributeError, OSError, TypeError):
        return None
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def unmap() -> object:
        for start, size in mapped_files(_LMDB):
            advise(start, size, _NOT_NEEDED)
        return None

    return unmap


def mapped_files(ending: str, maps: str = "/proc/self/maps") -> list[tuple[int, int]]:
    """Where files whose paths end so are mapped to be read, shared and not written: address and
    size."""
    found: list[tuple[int, int]] = []
    try:
        with open(maps, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields = line.rstrip("\n").split(None, 5)
                if len(fields) == 6 and fields[1] == "r--s" and fields[5].endswith(ending):
                    first, _, last = fields[0].partition("-")
                    found.append((int(first, 16), int(last, 16) - int(first, 16)))
    except OSError:
        return []
    return found
