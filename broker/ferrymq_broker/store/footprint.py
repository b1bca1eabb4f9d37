"""An estimate of how much a transaction of LMDB may write, made before the commit.

When a disk becomes full in the middle of a commit, LMDB often reports EIO, which cannot be told
from a failing disk. So the space is checked before a commit.

LMDB changes no page that others may read: each changed page is written to a free place in the file
or to its end. LMDB does not report how many pages change, but there is a limit. When consecutive
keys are deleted, the two pages at the ends remain; added values fill pages at least half. Values
larger than half a page have pages of their own, which must be consecutive: they need a free run of
that length.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64

from ferrymq_broker.store.lmdb_pages import NODE_BYTES, PAGE_HEAD_BYTES

_PREFIX_BYTES: Final = 9

# The pages at the two ends of a run of keys, and one page that is merged with them or split off.
_PAGES_OF_RUN: Final = 3
# Pages that were changed and are empty at the commit, and pages of the tree of free lists.
_MORE: Final = 12
# LMDB searches this many lists of free pages for a run of two pages, then uses the end of the file.
_LISTS: Final = 120


@final
class Footprint:
    """A counter of the changes in a transaction. Sizes are in bytes, `overflow` is in pages."""

    __slots__ = ("_page_bytes", "_keys", "_ranges", "_in_leaves", "_alone", "_runs", "_longest")

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes: i64 = page_bytes
        self.clear()

    def clear(self) -> None:
        """Reset all counts."""
        self._keys: list[bytes] = []
        self._ranges: i64 = 0
        self._in_leaves: i64 = 0
        # Pages of one-page values, pages of longer values, and the most pages of one value.
        self._alone: i64 = 0
        self._runs: i64 = 0
        self._longest: i64 = 1

    def put(self, key: bytes, size: int) -> None:
        """Count a value of this size."""
        self._keys.append(key)
        node: i64 = NODE_BYTES + len(key) + i64(size)
        if node <= (self._page_bytes - PAGE_HEAD_BYTES) // 2:
            self._in_leaves += node
            return
        pages = (PAGE_HEAD_BYTES + i64(size) - 1) // self._page_bytes + 1
        self._in_leaves += NODE_BYTES + len(key) + 8
        if pages == 1:
            self._alone += 1
        else:
            self._runs += pages
            if pages > self._longest:
                self._longest = pages

    def drop(self, key: bytes) -> None:
        """Count a deleted key."""
        self._keys.append(key)

    def drop_range(self) -> None:
        """Count a deleted range of consecutive keys."""
        self._ranges += 1

    def most_pages(self, depth: int) -> int:
        """Return a cheap upper limit of the pages written, without those of free lists. `depth` is
        that of the tree."""
        touched = _PAGES_OF_RUN * (len(self._keys) + self._ranges + 1) + self._new_leaves()
        return touched * (i64(depth) + 1) + self._alone + self._runs

    def written(self, leaves: int, branches: int) -> int:
        """Return how many pages may be written, without those of free lists. `leaves` and
        `branches` are the pages the tree has now."""
        touched = _PAGES_OF_RUN * (self._runs_of_keys() + self._ranges + 1) + self._new_leaves()
        singles = min(touched, i64(leaves)) + min(2 * touched, i64(branches)) + self._alone + _MORE
        return singles + self._runs

    def growth(
        self, leaves: int, branches: int, freed: int, free: list[tuple[int, list[int]]]
    ) -> int:
        """Return how many pages may be written beyond the free ones. `free` lists these by the
        transaction that freed them, the oldest first.

        `leaves` and `branches` are the pages the tree has now, `freed` those it has released.
        """
        new = self._new_leaves()
        touched = _PAGES_OF_RUN * (self._runs_of_keys() + self._ranges + 1) + new
        singles = min(touched, i64(leaves)) + min(2 * touched, i64(branches)) + self._alone + _MORE
        usable: i64 = 0
        for _, pages in free:
            usable += len(pages)
        # The new lists of free pages are stored as values too.
        listed = usable + i64(freed) + singles + self._runs
        lists = 8 * listed // self._page_bytes + 2
        runs = self._runs + lists
        room = _room_for(free[:_LISTS], max(self._longest, lists)) - singles
        in_runs = min(runs, max(room, 0))
        return runs - in_runs + max(0, singles - (usable - in_runs))

    def _new_leaves(self) -> i64:
        return 2 * self._in_leaves // (self._page_bytes - PAGE_HEAD_BYTES) + 1

    def _runs_of_keys(self) -> i64:
        """Return how many runs of consecutive keys there are."""
        keys = sorted(self._keys)
        runs: i64 = 0
        prefix = b""
        last: i64 = -2
        for key in keys:
            number = read_i64_be(key, _PREFIX_BYTES)
            if number - last > 1 or key[:_PREFIX_BYTES] != prefix:
                runs += 1
                prefix = key[:_PREFIX_BYTES]
            last = number
        return runs


def _room_for(free: list[tuple[int, list[int]]], longest: i64) -> i64:
    """Return the pages that can certainly hold values of at most `longest` pages each."""
    pages: list[int] = []
    for _, more in free:
        pages += more
    pages.sort()
    room: i64 = 0
    run: i64 = 0
    last: i64 = -2
    for page in pages:
        number: i64 = page
        if number == last + 1:
            run += 1
        else:
            room += max(0, run - longest + 1)
            run = 1
        last = number
    return room + max(0, run - longest + 1)
