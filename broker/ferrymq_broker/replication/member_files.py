"""The files of a member: its store, what is set aside, and records that are loaded or copied."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ferrymq_broker.replication.shared_journal import Position
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.crash_recovery import Progress
from ferrymq_broker.store.disk import RealFolder, sync_descriptor
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.format_file import CLEAN_NAME, FORMAT_NAME, write_clean, write_format
from ferrymq_broker.store.head_file import HEAD_NAME, HeadContent, HeadFile
from ferrymq_broker.store.in_use_file import IN_USE_NAME
from ferrymq_broker.store.lmdb_records import DATA_NAME
from ferrymq_broker.store.paged_out_file import PAGED_OUT_NAME
from ferrymq_broker.store.records import Records
from ferrymq_broker.store.replica_file import REPLICA_NAME, write_replica
from ferrymq_broker.store.segments import JOURNAL_PREFIX, NEW_PREFIX, SPARE_PREFIX

# The files of a store, by name and by the beginning of the name.
_NAMES: Final = frozenset(
    (DATA_NAME, CLEAN_NAME, FORMAT_NAME, HEAD_NAME, IN_USE_NAME, PAGED_OUT_NAME, REPLICA_NAME)
)
_PREFIXES: Final = (JOURNAL_PREFIX, SPARE_PREFIX, NEW_PREFIX)
# The directory with records that are being loaded. While it exists, the store is not complete.
_LOADING: Final = "loading"
_COPY_NAME: Final = "snapshot.new"
_ASIDE: Final = "set-aside-"
# Bytes of one read.
_AT_ONCE: Final = 1 << 16


class RecordsCopy:
    """A copy of records, of `size` bytes."""

    size: int

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from a position. Raises `OSError`."""
        raise NotImplementedError

    def close(self) -> None:
        """Delete the copy."""
        raise NotImplementedError


class MemberFiles:
    """The interface to the files of a member. All methods may take long: call them in a thread.

    They raise `StoreError` and `OSError`.
    """

    def open(self) -> DurableStore:
        """Open the member's store, or make an empty one."""
        raise NotImplementedError

    def set_aside(self) -> str:
        """Keep the files of the store, which is closed, elsewhere. Return the place."""
        raise NotImplementedError

    def begin_load(self) -> None:
        """Begin to load records in place of the store, whose files are lost."""
        raise NotImplementedError

    def load(self, data: bytes) -> None:
        """Add bytes of the records' file."""
        raise NotImplementedError

    def finish_load(self, position: Position) -> None:
        """Make a closed store of the loaded records, which have this position."""
        raise NotImplementedError

    def copy(self, records: Records, is_cancelled: Callable[[], bool]) -> RecordsCopy:
        """Copy the records, in which nothing is committed meanwhile. End soon, with `StoreError`,
        when `is_cancelled` returns True."""
        raise NotImplementedError


class MemberDirectory(MemberFiles):
    """The files in a directory. `clock` returns the seconds since the epoch."""

    def __init__(
        self,
        path: Path,
        cluster: str,
        options: StoreOptions | None = None,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._cluster = cluster
        self._options = options
        self._progress = progress
        self._clock = clock
        # The descriptor of the file that is being loaded.
        self._loaded = -1

    def open(self) -> DurableStore:
        """See `MemberFiles.open`."""
        if (self.path / _LOADING).exists():
            # Records were set aside, or the process was stopped while it loaded records.
            if (self.path / DATA_NAME).exists():
                self.set_aside()
            self._remove()
            shutil.rmtree(self.path / _LOADING)
        (self.path / _COPY_NAME).unlink(missing_ok=True)
        return DurableStore.open(self.path, Changes(), self._options, self._progress, self._cluster)

    def set_aside(self) -> str:
        """See `MemberFiles.set_aside`."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock()))
        target = self.path / f"{_ASIDE}{stamp}"
        count = 1
        while target.exists():
            count += 1
            target = self.path / f"{_ASIDE}{stamp}-{count}"
        target.mkdir(mode=0o700)
        self._mark()
        for name in self._files():
            os.replace(self.path / name, target / name)
        RealFolder(target).sync()
        RealFolder(self.path).sync()
        return str(target)

    def begin_load(self) -> None:
        """See `MemberFiles.begin_load`."""
        self._mark()
        self._remove()
        self._close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        self._loaded = os.open(self.path / _LOADING / DATA_NAME, flags, 0o600)

    def load(self, data: bytes) -> None:
        """See `MemberFiles.load`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._loaded, rest) :]

    def finish_load(self, position: Position) -> None:
        """See `MemberFiles.finish_load`."""
        sync_descriptor(self._loaded)
        self._close()
        folder = RealFolder(self.path)
        HeadFile.create(folder, HeadContent(position.number, "")).close()
        write_replica(folder, self._cluster)
        folder.rename(f"{_LOADING}/{DATA_NAME}", DATA_NAME)
        write_clean(folder, position.number)
        write_format(folder)
        (self.path / _LOADING).rmdir()
        folder.sync()

    def copy(self, records: Records, is_cancelled: Callable[[], bool]) -> RecordsCopy:
        """See `MemberFiles.copy`."""
        return FileCopy(self.path / _COPY_NAME, records, is_cancelled)

    def _mark(self) -> None:
        """Note on disk that the store is not complete."""
        (self.path / _LOADING).mkdir(mode=0o700, parents=True, exist_ok=True)
        RealFolder(self.path).sync()

    def _files(self) -> list[str]:
        names = os.listdir(self.path)
        return [name for name in names if name in _NAMES or name.startswith(_PREFIXES)]

    def _remove(self) -> None:
        for name in self._files():
            (self.path / name).unlink()

    def _close(self) -> None:
        if self._loaded >= 0:
            os.close(self._loaded)
            self._loaded = -1


class FileCopy(RecordsCopy):
    """A copy in a file, which is removed when the copy is closed. Its free pages are left out."""

    def __init__(self, path: Path, records: Records, is_cancelled: Callable[[], bool]) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(path, flags, 0o600)
        try:
            self._fill(records, is_cancelled)
        except BaseException:
            self.close()
            raise
        self.size: int = os.fstat(self._descriptor).st_size

    def _fill(self, records: Records, is_cancelled: Callable[[], bool]) -> None:
        # LMDB cannot be told to stop, but it stops when nobody reads the pipe.
        reader, writer = os.pipe()
        errors: list[Exception] = []

        def copy() -> None:
            try:
                records.copy(writer)
            except (OSError, StoreError) as error:
                errors.append(error)
            finally:
                os.close(writer)

        thread = threading.Thread(target=copy, name="records-copy", daemon=True)
        thread.start()
        try:
            while data := os.read(reader, _AT_ONCE):
                if is_cancelled():
                    raise StoreError("the copy of the records was given up")
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        finally:
            os.close(reader)
            thread.join()
        if errors:
            raise errors[0]

    def read(self, position: int, size: int) -> bytes:
        """See `RecordsCopy.read`."""
        return os.pread(self._descriptor, size, position)

    def close(self) -> None:
        """See `RecordsCopy.close`."""
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)
