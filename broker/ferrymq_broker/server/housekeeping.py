"""Memory given back: what Python's collector would not look at, what the allocator would keep.

A queue is many small objects and hardly any garbage, so the collector is told to look at what is
old next to never: a full collection looks at every message. But a connection that is gone leaves
objects that point at each other, some five kilobytes of them, and lives long enough for them to be
old. So full collections are made here, when there is reason to, and no more of the time is spent on
them than a share.

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
import time
from collections.abc import Callable
from typing import Final

from ferrymq_broker.broker import Broker

# Seconds between two looks at it.
PERIOD: Final = 5.0
# So many connections, sessions and consumers must have begun since the last full collection.
ENOUGH: Final = 1_000
# Of the time, one part in so many may be spent on full collections.
SHARE: Final = 50
# So many bytes of messages must have gone, and at least half of all there were.
WORTH_IT: Final = 64 * 1024 * 1024
# How the files of LMDB are called.
_LMDB: Final = "/data.mdb"
# What a mapping is told that is not needed now, on Linux (MADV_DONTNEED).
_NOT_NEEDED: Final = 4


def tune_garbage_collector() -> None:
    """Few collections, of what is young: a look at 200 000 objects takes some 20 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 2_500)


class Housekeeping:
    """To be called every `PERIOD` seconds. `clock` gives seconds, `trim` gives memory back, `unmap`
    what is mapped of files."""

    def __init__(
        self,
        broker: Broker,
        trim: Callable[[], object] | None,
        clock: Callable[[], float] = time.monotonic,
        unmap: Callable[[], object] | None = None,
    ) -> None:
        self._broker = broker
        self._trim = trim
        self._clock = clock
        self._unmap = unmap
        self._begun = broker.begun() - len(broker.handlers)
        self._not_before = clock()
        self._most = 0

    def look(self) -> None:
        """Do what there is reason for."""
        # Connections are garbage when they end, and may all end long after they began.
        begun = self._broker.begun() - len(self._broker.handlers)
        now = self._clock()
        if begun - self._begun >= ENOUGH and now >= self._not_before:
            self._begun = begun
            gc.collect()
            after = self._clock()
            self._not_before = after + SHARE * (after - now)
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
