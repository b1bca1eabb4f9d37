"""Records in LMDB: a file `data.mdb`, all tables in one tree.

LMDB's own locks belong to threads and processes, so they are off: the broker itself locks out other
processes, changes records in one place, and reads for no longer than a call. So a transaction can
be filled by the event loop and committed by a thread.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import lmdb

from ferrymq_broker.store.disk import GONE, free_bytes, is_in_place, only_pretends
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.hole_punching import HolePuncher
from ferrymq_broker.store.keys import (
    APPLIED_KEY,
    KEY_BYTES,
    describe_key,
    encode_key,
    is_intact,
    seal,
)
from ferrymq_broker.store.lmdb_file import (
    NODE_BYTES,
    PAGE_HEAD_BYTES,
    Footprint,
    read_free_lists,
)
from ferrymq_broker.store.record_run import RecordRun
from ferrymq_broker.store.record_scan import take_parts, take_records, take_run
from ferrymq_broker.store.records import Brief, Part, Record, Records, RecordsGrow

DATA_NAME: Final = "data.mdb"

# The map only reserves addresses; the file grows as it is used.
_MIN_MAP: Final = 1 << 30
# The least free bytes of the map before changes begin, so that they rarely have to be repeated.
_HEADROOM: Final = 256 << 20
# How many records, and bytes of them, are read at once.
_SCAN_AT_ONCE: Final = 100
_SCAN_BYTES: Final = 1 << 18

# With fewer records than this in a page, splitting it wastes too much space.
_FEW: Final = 5
# A number above all numbers of a prefix; no record has it.
_BEHIND: Final = b"\xff" * 8
# After putting this many bytes, free space is checked, because LMDB may begin to write.
_LOOK_AFTER: Final = 128 << 20


class LmdbRecords(Records):
    """The records in a directory. The constructor raises `StoreDamaged` for a file that LMDB did
    not write."""

    def __init__(self, folder: Path) -> None:
        self.path: Path = folder / DATA_NAME
        size = self.path.stat().st_size if self.path.exists() else 0
        try:
            self._env = lmdb.open(
                str(folder),
                map_size=max(_MIN_MAP, 2 * size + _HEADROOM),
                max_dbs=0,
                lock=False,
                meminit=False,
                sync=not only_pretends(),
                mode=0o600,
            )
        except lmdb.Error as error:
            failed = as_os_error(error)
            if failed is not None:
                raise failed from error
            raise StoreDamaged(f"{self.path} cannot be opened: {error}") from error
        self._inode = self.path.stat().st_ino
        self._txn: Any = None
        # Whether the map was too small.
        self._grow = False
        # The estimate of what the transaction writes, and the bytes of values at the next check.
        self._page_bytes: int = self._env.stat()["psize"]
        self._footprint = Footprint(self._page_bytes)
        # Returns free pages of the file to the file system.
        self.holes: HolePuncher = HolePuncher(self.path, self._page_bytes)
        # A temporary key behind those that are being put.
        self._end: bytes | None = None
        self._put_bytes = 0
        self._look_at = _LOOK_AFTER
        with self._env.begin() as txn:
            stored = txn.get(APPLIED_KEY)
        self.is_new: bool = stored is None
        self.applied: int = 0 if stored is None else int.from_bytes(stored[4:], "big")
        foreign = self.is_new and self._env.stat()["entries"]
        if foreign or (stored is not None and not is_intact(APPLIED_KEY, stored)):
            self._env.close()
            raise StoreDamaged(
                f"{self.path} was not written by ferrymq: restore the whole directory of the "
                "store from a backup"
            )

    # -- reading -----------------------------------------------------------------------------

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """See `Records.get`."""
        key = encode_key(table, id, number)
        try:
            with self._env.begin() as txn:
                stored = txn.get(key)
        except lmdb.Error as error:
            raise self._unreadable(key, error) from error
        if stored is None:
            return None
        if not is_intact(key, stored):
            raise self._damaged(key)
        value: bytes = stored[4:]
        return value

    def run(self, table: int, id: int, first: int, end: int, most: int) -> RecordRun:
        """See `Records.run`."""
        key = encode_key(table, id, first)
        try:
            with self._env.begin() as txn, txn.cursor() as cursor:
                return RecordRun(key, take_run(cursor, key, end - first, most), most)
        except lmdb.Error:
            # A caller that needs the damaged record asks for it alone, and then gets the error.
            return RecordRun(key, [], most)

    def scan(self, table: int) -> Iterator[Record]:
        """See `Records.scan`."""
        first = bytes((table,))
        with self._env.begin() as txn, txn.cursor() as cursor:
            if not cursor.set_range(first):
                return
            items = cursor.iternext()
            while True:
                records: list[Record] = []
                damaged = take_records(items, table, records, _SCAN_AT_ONCE, _SCAN_BYTES)
                yield from records
                if damaged is not None:
                    raise self._damaged(damaged)
                if not records:
                    return

    def scan_parts(self, table: int, brief: Brief) -> Iterator[Part]:
        """See `Records.scan_parts`."""
        first = bytes((table,))
        with self._env.begin(buffers=True) as txn, txn.cursor() as cursor:
            if not cursor.set_range(first):
                return
            items = cursor.iternext()
            while True:
                parts: list[Part] = []
                beyond: list[bytes] = []
                damaged = take_parts(items, table, brief, parts, _SCAN_AT_ONCE, _SCAN_BYTES, beyond)
                yield from parts
                if damaged is not None:
                    raise self._damaged(damaged)
                if beyond:
                    if not cursor.set_range(beyond[0]):
                        return
                    items = cursor.iternext()
                elif not parts:
                    return

    def highest(self, prefix: bytes) -> int:
        """See `Records.highest`."""
        last = prefix + b"\xff" * 8
        with self._txn.cursor() as cursor:
            found = cursor.prev() if cursor.set_range(last) else cursor.last()
            if not found:
                return -1
            key: bytes = cursor.key()
        return int.from_bytes(key[9:], "big") if key[:9] == prefix else -1

    def _damaged(self, key: bytes) -> StoreDamaged:
        return StoreDamaged(f"{self.path}: {describe_key(key)} is damaged: its checksum is wrong")

    def _unreadable(self, key: bytes, error: lmdb.Error) -> StoreDamaged:
        return StoreDamaged(f"{self.path}: {describe_key(key)} cannot be read: {error}")

    # -- changing ----------------------------------------------------------------------------

    def begin(self) -> None:
        """See `Records.begin`."""
        info = self._env.info()
        size = info["map_size"]
        used = (info["last_pgno"] + 1) * self._env.stat()["psize"]
        if self._grow or size - used < _HEADROOM:
            # No read is under way: reads are made in this thread.
            self._env.set_mapsize(2 * size)
            self._grow = False
        self._footprint.clear()
        self._end = None
        self._put_bytes = 0
        self._look_at = _LOOK_AFTER
        self._txn = self._env.begin(write=True)

    def put(self, key: bytes, value: bytes | memoryview) -> None:
        """See `Records.put`."""
        size = len(value)
        self._footprint.put(key, size)
        self._put_bytes += size
        if self._put_bytes >= self._look_at:
            self._look_at += _LOOK_AFTER
            self._look_for_room()
        try:
            self._txn.put(key, value)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def extend(self, prefix: bytes, size: int) -> None:
        """See `Records.extend`.

        When a record is put behind the last one of a full page, LMDB moves the last record of the
        page to the new page. Pages with room for few records lose much space by that. If another
        key is behind the new record, LMDB leaves full pages full. So an empty record is put there
        while the run is written.
        """
        self._end_run()
        node = NODE_BYTES + KEY_BYTES + size
        room = self._page_bytes - PAGE_HEAD_BYTES
        if room // _FEW < node <= room // 2:
            end = prefix + _BEHIND
            self.put(end, b"")
            self._end = end

    def _end_run(self) -> None:
        if self._end is not None:
            end = self._end
            self._end = None
            self.drop(end)

    def drop(self, key: bytes) -> None:
        """See `Records.drop`."""
        self._footprint.drop(key)
        try:
            self._txn.delete(key)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def drop_range(self, first: bytes, last: bytes, limit: int) -> bool:
        """See `Records.drop_range`."""
        self._footprint.drop_range()
        try:
            with self._txn.cursor() as cursor:
                found = cursor.set_range(first)
                while found and cursor.key() <= last:
                    if limit <= 0:
                        return False
                    limit -= 1
                    # `delete` moves the cursor to the next record.
                    found = cursor.delete()
                    if found and not cursor.key():
                        break
        except lmdb.Error as error:
            raise self._failed(error) from error
        return True

    def commit(self, applied: int) -> None:
        """See `Records.commit`. Raises ENOSPC before anything is written if the lack of room can be
        foreseen."""
        self._end_run()
        self._look_for_room()
        txn = self._txn
        try:
            txn.put(APPLIED_KEY, seal(APPLIED_KEY, applied.to_bytes(8, "big")))
            self._txn = None
            txn.commit()
        except lmdb.Error as error:
            self._txn = None
            txn.abort()
            raise self._failed(error) from error
        if not is_in_place(self.path, self._inode):
            # The journal still has what was committed, and must keep it.
            raise OSError(errno.ENOENT, f"the file {GONE}", str(self.path))
        self.applied = applied
        self.is_new = False

    def give_back(self) -> None:
        """See `Records.give_back`."""
        self.holes.give_back(self.used_bytes())

    def abort(self) -> None:
        """See `Records.abort`."""
        self._end = None
        txn = self._txn
        self._txn = None
        if txn is not None:
            txn.abort()

    def _failed(self, error: lmdb.Error) -> Exception:
        """Discard the changes, and return the exception for an error of LMDB."""
        self.abort()
        if isinstance(error, lmdb.MapFullError):
            self._grow = True
            return RecordsGrow()
        failed = as_os_error(error)
        if failed is None:
            return StoreDamaged(f"{self.path}: {error}")
        failed.filename = str(self.path)
        return failed

    def _look_for_room(self) -> None:
        """Discard the changes and raise ENOSPC if the disk may have no room for them. LMDB itself
        reports EIO when the system writes less than asked, as if the disk had failed."""
        free = free_bytes(self.path.parent) // self._page_bytes
        now = self._txn.stat()
        pages: int = self._env.info()["last_pgno"] + 1
        # The lists of free pages are also written again: eight bytes for each page.
        lists = 8 * pages // self._page_bytes + 8
        if self._footprint.most_pages(now["depth"]) + 2 * lists <= free:
            return
        before = self._env.stat()
        freed = max(0, _pages_of(before) - _pages_of(now))
        growth = self._footprint.growth(
            now["leaf_pages"], now["branch_pages"], freed, read_free_lists(self.path)
        )
        # Some free pages of the file may have no space on the disk, but no more of them need space
        # than are written.
        blocks = self.holes.allocated() // self._page_bytes
        written = self._footprint.written(now["leaf_pages"], now["branch_pages"]) + 2 * lists
        growth = min(growth + max(0, pages - blocks), max(growth, written))
        if growth > free:
            self.abort()
            raise OSError(
                errno.ENOSPC,
                f"the disk has room for {free} pages, but up to {growth} may be needed: free "
                "space on the disk",
                str(self.path),
            )

    # -- sizes and the end ------------------------------------------------------------------

    def copy(self, descriptor: int) -> None:
        """See `Records.copy`. Free pages are left out."""
        try:
            self._env.copyfd(descriptor, compact=True)
        except lmdb.Error as error:
            failed = as_os_error(error)
            raise failed or StoreDamaged(f"{self.path} cannot be copied: {error}") from error

    def used_bytes(self) -> int:
        """See `Records.used_bytes`."""
        stat = self._env.stat()
        return (_pages_of(stat) + 2) * self._page_bytes

    def count(self) -> int:
        """See `Records.count`."""
        entries: int = self._env.stat()["entries"]
        return entries

    def file_bytes(self) -> int:
        """See `Records.file_bytes`."""
        return self.holes.allocated()

    def close(self) -> None:
        """See `Records.close`."""
        self.abort()
        self._env.close()


def _pages_of(stat: Any) -> int:
    pages: int = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return pages


def as_os_error(error: lmdb.Error) -> OSError | None:
    """Return the system's error that LMDB passes on as text, None if it is another error."""
    text = str(error)
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS, errno.EFBIG):
        if os.strerror(code) in text:
            return OSError(code, text)
    return None
