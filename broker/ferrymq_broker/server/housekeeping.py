"""Housekeeping: freeing garbage in cycles, free memory of the C library, and mapped files.

A queue is many small objects and hardly any garbage. A full collection of Python's garbage
collector looks at every message and stops everything else meanwhile, so Python is told to make none
by itself. A connection that ends leaves no cycles: reference counting frees it. For cycles that
were overlooked, this module makes a full collection after many connections, and only while there
are few objects.

A long queue that has been emptied leaves free memory, part of it between memory that is still in
use. The C library keeps it for later, and returns it to the system when asked. It is asked after
such a queue, and twice a minute for what is free at the end of the heap: memory that was returned
and is needed again costs more than a copy of its bytes. To return a gigabyte takes the system
30 to 60 ms, so it is returned in slices.

LMDB maps its files. The mapped pages that were read count as the broker's memory for as long as the
system has room. They can be read again from the file: this module releases the pages, and the file
stays in the system's cache.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Final

from ferrymq_broker.broker import Broker

# Seconds between two calls of `Housekeeping.look`.
PERIOD: Final = 5.0
# At every so many looks, free memory at the end of the heap is returned to the system.
SHRINK_EVERY: Final = 6
# Seconds for the clients between two slices of memory that are returned.
PAUSE: Final = 0.005
# The number of connections, sessions and consumers that must have begun since the last full
# collection.
ENOUGH: Final = 1_000
# A full collection of more blocks of memory than this would take longer than 20 ms.
MOST_BLOCKS: Final = 150_000
# At least so many bytes of messages, and half of all, must have gone before memory is returned.
WORTH_IT: Final = 64 * 1024 * 1024
# The end of the path of LMDB's files.
_LMDB: Final = "/data.mdb"
# The advice of madvise for pages that are not needed now (MADV_DONTNEED on Linux).
_NOT_NEEDED: Final = 4


def tune_garbage_collector() -> None:
    """Collect only young objects, because looking at 100 000 objects takes some 12 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 1_000_000_000)


class Housekeeping:
    """The work to be done every `PERIOD` seconds.

    `unmap` releases mapped pages of files. `blocks` returns the number of memory blocks of Python's
    objects.
    """

    def __init__(
        self,
        broker: Broker,
        unmap: Callable[[], object] | None = None,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._broker = broker
        self._unmap = unmap
        self._blocks = blocks
        # The blocks of the program itself, which collections skip.
        self._frozen = blocks()
        self._begun = broker.shared.numbers.last - len(broker.handlers)
        self._most = 0

    def look(self) -> bool:
        """Do the housekeeping that is needed now. Return whether so many messages have gone that
        their memory should go back to the system."""
        # Count connections that have ended: many may end long after they began.
        begun = self._broker.shared.numbers.last - len(self._broker.handlers)
        if begun - self._begun >= ENOUGH and self._blocks() - self._frozen <= MOST_BLOCKS:
            self._begun = begun
            gc.collect()
        held = int(self._broker.agenda.held + self._broker.unfinished.held)
        freed = self._most - held
        emptied = freed >= WORTH_IT and freed >= held
        if freed < 0 or emptied:
            self._most = held
        self._broker.tidy()
        # Without a store nothing is mapped, and to look for it takes half a millisecond.
        if self._unmap is not None and self._broker.store is not None:
            self._unmap()
        return emptied


async def return_memory(
    shrink: Callable[[], Iterator[object]] | None, trim: Callable[[], object] | None
) -> None:
    """Return free memory to the system: first in the steps of `shrink`, with pauses between them,
    then the rest with `trim`."""
    if shrink is not None:
        for _ in shrink():
            await asyncio.sleep(PAUSE)
    if trim is not None:
        trim()


def find_trim() -> Callable[[], object] | None:
    """Return the C library's function that returns free memory to the system; None if there is
    none."""
    try:
        function = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None

    def trim() -> object:
        return function(0)

    return trim


def find_unmap() -> Callable[[], object] | None:
    """Return a function that releases the mapped pages of LMDB's files, which LMDB maps only for
    reading; None if the system has no such function."""
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
    """Return address and size of each shared read-only mapping of files whose paths end with
    `ending`."""
    found: list[tuple[int, int]] = []
    try:
        with open(maps, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    wanted = ending.encode()
    for line in lines:
        if not line.endswith(wanted):
            continue
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[1] == b"r--s":
            first, _, last = fields[0].partition(b"-")
            found.append((int(first, 16), int(last, 16) - int(first, 16)))
    return found
