"""A store for messages that are paged out; it is emptied at a restart.

The messages are in an LMDB file of their own, whose writes are not synced.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import google_crc32c
import lmdb

_MIN_MAP: Final = 1 << 30
# The least free bytes of the map before anything is written.
_HEADROOM: Final = 64 << 20
# An empty file that is larger than this is removed and created again.
_WASTE: Final = 64 << 20
# A key has the owner of the page in this many bytes, then a number that is never negative.
_PREFIX_BYTES: Final = 8
_BEHIND: Final = b"\xff" * 8
# An LMDB page holds fewer than five values of this size.
_LARGE: Final = 780

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend


class PageStore:
    """The interface of a page store: values by keys of 16 bytes. All methods but `drop` raise
    `OSError`."""

    def put(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Store these values, all of them or none."""
        raise NotImplementedError

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if it does not exist or is damaged."""
        raise NotImplementedError

    def take(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Remove these keys and return their values; None as in `get`."""
        raise NotImplementedError

    def drop(self, keys: Sequence[bytes]) -> None:
        """Remove the values of these keys."""
        raise NotImplementedError

    def used_bytes(self) -> int:
        """Return the size of the file."""
        return 0

    def tidy(self) -> None:
        """Release unused space. Call it from time to time."""

    def close(self) -> None:
        """Close the store and remove its file."""


class LmdbPageStore(PageStore):
    """A page store in a directory of its own, which is emptied at the start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path: Path = folder / "data.mdb"
        self._env: Any = None
        self._count = 0
        shutil.rmtree(folder, ignore_errors=True)

    def put(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Store values in one transaction that is not synced. See `PageStore.put`."""
        if self._env is None:
            self._open()
        need = sum(len(value) for _, value in pairs)
        info = self._env.info()
        used = (info["last_pgno"] + 1) * self._env.stat()["psize"]
        if info["map_size"] - used < _HEADROOM + 4 * need:
            self._env.set_mapsize(2 * info["map_size"] + 4 * need)
        try:
            with self._env.begin(write=True) as txn, txn.cursor() as cursor:
                # Values are put in order, and each page takes a few of them. A key behind them
                # makes LMDB leave full pages full (`LmdbRecords.extend`).
                ends: set[bytes] = set()
                if need > _LARGE * len(pairs):
                    ends = {key[:_PREFIX_BYTES] + _BEHIND for key, _ in pairs}
                cursor.putmulti([(end, b"") for end in ends])
                cursor.putmulti([(key, _sealed(key, value)) for key, value in pairs])
                for end in ends:
                    txn.delete(end)
        except lmdb.Error as error:
            raise OSError(str(error)) from error
        self._count += len(pairs)

    def get(self, key: bytes) -> bytes | None:
        """See `PageStore.get`."""
        if self._env is None:
            return None
        try:
            with self._env.begin() as txn:
                return _opened(key, txn.get(key))
        except lmdb.Error as error:
            raise OSError(str(error)) from error

    def take(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Remove keys in one transaction. See `PageStore.take`."""
        if self._env is None:
            return [None] * len(keys)
        try:
            with self._env.begin(write=True) as txn:
                values = [txn.pop(key) for key in keys]
        except lmdb.Error as error:
            raise OSError(str(error)) from error
        self._count -= len(keys)
        return [_opened(key, value) for key, value in zip(keys, values, strict=True)]

    def drop(self, keys: Sequence[bytes]) -> None:
        """See `PageStore.drop`. Values that cannot be removed stay; they are never read."""
        if self._env is None:
            return
        try:
            with self._env.begin(write=True) as txn:
                for key in keys:
                    txn.delete(key)
        except lmdb.Error:
            # The values stay in the file, but are never read.
            return
        self._count -= len(keys)

    def used_bytes(self) -> int:
        """See `PageStore.used_bytes`."""
        return self.path.stat().st_size if self._env is not None else 0

    def tidy(self) -> None:
        """Remove a large file that is empty; the next `put` creates it again."""
        if self._count <= 0 and self.used_bytes() > _WASTE:
            self.close()

    def close(self) -> None:
        """Remove the file."""
        if self._env is not None:
            self._env.close()
            self._env = None
            self._count = 0
            shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._env = lmdb.open(
                str(self.folder),
                map_size=_MIN_MAP,
                max_dbs=0,
                lock=False,
                sync=False,
                metasync=False,
                meminit=False,
                mode=0o600,
            )
        except lmdb.Error as error:
            raise OSError(str(error)) from error


def _sealed(key: bytes, value: bytes) -> bytes:
    crc: int = _extend_crc(_crc(key), value)
    return crc.to_bytes(4, "big") + value


def _opened(key: bytes, stored: bytes | None) -> bytes | None:
    if stored is None:
        return None
    value = stored[4:]
    crc: int = _extend_crc(_crc(key), value)
    return value if crc.to_bytes(4, "big") == stored[:4] else None
