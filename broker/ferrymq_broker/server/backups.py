"""Backups of a store while the broker writes to it.

While no batches are applied, the records do not change, and the files of the journal only grow. So
a thread can copy both: the records first, then the batches after them, up to the last batch that
was on disk when the records had been copied.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Final

from ferrymq_broker import audit
from ferrymq_broker.event_log import log
from ferrymq_broker.store.backup_target import BackupTarget
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.format_file import FORMAT_NAME, read_format
from ferrymq_broker.store.head_file import HeadContent, HeadFile
from ferrymq_broker.store.lmdb_records import DATA_NAME
from ferrymq_broker.store.segments import JournalSegment, find_segments, journal_name, read_frame

# Bytes that are copied at once. Other threads run between two pieces.
_PIECE: Final = 1 << 20
# The seconds between two looks for the last batch, and how many looks there are.
_PERIOD: Final = 0.01
_PATIENCE: Final = 1000


class Backup:
    """A backup. After `begin` its `state` becomes ``done`` or ``failed``. `begun` says that the
    directory `target` has the mark of a backup and a part of it already."""

    def __init__(self, store: DurableStore, path: Path, target: Path, begun: bool = False) -> None:
        self._begun = begun
        self.state: str = "running"
        self.reason: str = ""
        # The bytes that were copied, and those to copy, as far as they are known.
        self.bytes: int = 0
        self.total: int = 0
        self.last_batch: int = 0
        self.target = target
        self._directory = BackupTarget(target)
        self._path = path
        self._store = store
        self._acknowledged = int(store.changes.stable)
        self._loop = asyncio.get_running_loop()

    def describe(self) -> dict[str, object]:
        """Return the state of the backup."""
        return {
            "state": self.state,
            "target": str(self.target),
            "bytes": self.bytes,
            "total": self.total,
            "last-batch": self.last_batch,
            "reason": self.reason,
        }

    def begin(self) -> None:
        """Begin as soon as no batch is being applied. Raises `StoreError`, `OSError`."""
        if not self._begun:
            self._directory.require_free()
        self._store.pause(self._start)

    def _start(self) -> None:
        threading.Thread(target=self._run, name="store-backup", daemon=True).start()

    # -- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        error: Exception | None = None
        try:
            target = RealFolder(self.target) if self._begun else self._directory.begin()
            try:
                self._copy(target)
                self._directory.finish(target)
            except BaseException:
                self._directory.abandon()
                raise
        except Exception as failed:
            error = failed
        try:
            self._loop.call_soon_threadsafe(self._finish, error)
        except RuntimeError:
            # The event loop was closed.
            return

    def _copy(self, target: RealFolder) -> None:
        data = self._path / DATA_NAME
        self.total = data.stat().st_size
        self._copy_file(data, self.target / DATA_NAME)
        self.last_batch = self._wait_until_written()
        folder = RealFolder(self._path)
        format = read_format(folder)
        if format is None:
            raise StoreError(f"{self._path}: the file with the format of the store is missing")
        segments = find_segments(folder)
        try:
            ends = [(one, self._end_of(format.secret, one)) for one in segments]
            self.total += sum(end for _, end in ends)
            name = ""
            for segment, end in ends:
                if end:
                    name = journal_name(segment.first, end)
                    self._copy_file(self._path / segment.name, self.target / name, end)
            HeadFile.create(target, HeadContent(self.last_batch, name)).close()
        finally:
            for segment in segments:
                segment.file.close()
        # Copied last: an incomplete backup without this file is not taken for a store.
        self._copy_file(self._path / FORMAT_NAME, self.target / FORMAT_NAME)

    def _wait_until_written(self) -> int:
        """Return the last batch in the store's files, when they have all that was acknowledged
        before the backup. A member of a cluster acknowledges before it writes."""
        for _ in range(_PATIENCE):
            written = self._store.written
            if written >= self._acknowledged:
                return written
            time.sleep(_PERIOD)
        raise StoreError(f"{self._path}: batches that were acknowledged cannot be written")

    def _end_of(self, secret: bytes, segment: JournalSegment) -> int:
        """Return the end of the last batch in a segment that belongs to the backup."""
        end = 0
        while end < segment.capacity:
            frame = read_frame(secret, segment, end)
            if frame is None or frame.header.number > self.last_batch:
                break
            end += frame.header.size
        return end

    def _copy_file(self, source: Path, target: Path, size: int | None = None) -> None:
        """Copy a file, or its first `size` bytes, and sync the copy."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(source, "rb") as original, open(os.open(target, flags, 0o600), "wb") as copy:
            left = original.seek(0, os.SEEK_END) if size is None else size
            original.seek(0)
            while left:
                piece = original.read(min(left, _PIECE))
                if not piece:
                    raise StoreError(f"{source} has become shorter")
                copy.write(piece)
                left -= len(piece)
                self.bytes += len(piece)
            copy.flush()
            os.fsync(copy.fileno())

    # -- in the event loop -------------------------------------------------------------------

    def _finish(self, error: Exception | None) -> None:
        self._store.resume()
        if error is None:
            self.state = "done"
            log.info("backup done", target=str(self.target), bytes=self.bytes)
            audit.record("backup", target=str(self.target), outcome="done", bytes=self.bytes)
        else:
            self.state = "failed"
            self.reason = str(error)
            log.error("backup failed", target=str(self.target), reason=self.reason)
            audit.record("backup", target=str(self.target), outcome=self.reason)
