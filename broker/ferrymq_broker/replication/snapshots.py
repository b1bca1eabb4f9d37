"""Snapshots: copies of records, in pieces in the shared journal, or in a directory of all members.

A snapshot in a directory has one piece in the journal, a label with the name of the file, its size
and its checksum. So the journal knows all snapshots and their positions, wherever their bytes are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import google_crc32c

from ferrymq_broker.event_log import log
from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError
from ferrymq_broker.replication.member_files import MemberFiles, RecordsCopy
from ferrymq_broker.replication.shared_journal import Position, SharedJournal, SnapshotInfo
from ferrymq_broker.replication.waiting import ask, in_thread
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.executor import Executor
from ferrymq_broker.store.marker_files import decode_label, encode_label

# Bytes of a piece, and of each read and write of a file.
PIECE: Final = 1 << 20

_TITLE: Final = "ferrymq snapshot"
_SUFFIX: Final = ".snapshot"
# How many numbers before that of the newest snapshot may be unfinished ones.
_LOOK_BACK: Final = 20

_extend_crc: Final[Any] = google_crc32c.extend

# A callback that gets the bytes done and the total.
Progress = Callable[[int, int], None]


class _SnapshotFile(NamedTuple):
    """A file in the directory, with the CRC-32C of its content."""

    name: str
    size: int
    crc: int


class Snapshots:
    """The snapshots of a cluster. With a `directory`, which all members have to share, new ones are
    files there. `executor` makes the long calls.

    All methods raise `JournalUnavailable`, `ReplicationError` and `OSError`.
    """

    def __init__(
        self, journal: SharedJournal, executor: Executor, directory: Path | None = None
    ) -> None:
        self.journal = journal
        self._executor = executor
        self._directory = directory

    async def known(self) -> list[SnapshotInfo]:
        """Return the complete snapshots, the newest first."""
        return await ask(self.journal.snapshots)

    # -- making --------------------------------------------------------------------------------

    async def save(
        self, copy: RecordsCopy, position: Position, progress: Progress | None = None
    ) -> None:
        """Make a snapshot of a copy of records, which have this position."""
        journal = self.journal
        id = await ask(partial(journal.begin_snapshot, position))
        try:
            if self._directory is None:
                pieces, size = await self._save_pieces(id, copy, progress)
            else:
                label = await in_thread(
                    self._executor, partial(self._save_file, self._directory, id, copy, progress)
                )
                await ask(partial(journal.add_piece, id, 0, label))
                pieces, size = 1, len(label)
            await ask(partial(journal.finish_snapshot, id, pieces, size))
        except BaseException:
            # What has been written so far is of no use to anybody.
            journal.drop_snapshot(id, _ignore)
            if self._directory is not None:
                (self._directory / _name_of(id)).unlink(missing_ok=True)
            raise
        log.info("snapshot made", batch=position.number, term=position.term, bytes=copy.size)

    async def _save_pieces(
        self, id: int, copy: RecordsCopy, progress: Progress | None
    ) -> tuple[int, int]:
        index = done = 0
        while done < copy.size:
            piece = await in_thread(self._executor, partial(copy.read, done, PIECE))
            if not piece:
                raise ReplicationError("the copy of the records has become shorter")
            await ask(partial(self.journal.add_piece, id, index, piece))
            index += 1
            done += len(piece)
            if progress is not None:
                progress(done, copy.size)
        return index, done

    def _save_file(
        self, directory: Path, id: int, copy: RecordsCopy, progress: Progress | None
    ) -> bytes:
        """Write the file of a snapshot, in a thread. Return its label."""
        name = _name_of(id)
        part = directory / _part_of(id)
        crc = done = 0
        try:
            with open(part, "wb") as file:
                while data := copy.read(done, PIECE):
                    file.write(data)
                    crc = _extend_crc(crc, data)
                    done += len(data)
                    if progress is not None:
                        progress(done, copy.size)
                file.flush()
                os.fsync(file.fileno())
            part.rename(directory / name)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        RealFolder(directory).sync()
        return encode_label(_TITLE, {"file": name, "size": done, "crc": f"{crc:08x}"})

    # -- loading -------------------------------------------------------------------------------

    async def load_newest(
        self,
        files: MemberFiles,
        infos: list[SnapshotInfo],
        progress: Progress | None = None,
    ) -> SnapshotInfo:
        """Load the first of these snapshots that is not damaged into `files`, and return it."""
        reason = ReplicationError("there is no snapshot")
        for info in infos:
            try:
                await self._load(files, info, progress)
            except JournalUnavailable:
                raise
            except ReplicationError as error:
                log.error("a snapshot cannot be used", snapshot=info.id, reason=str(error))
                reason = error
                continue
            log.info("snapshot loaded", batch=info.position.number, term=info.position.term)
            return info
        raise reason

    async def _load(
        self, files: MemberFiles, info: SnapshotInfo, progress: Progress | None
    ) -> None:
        executor = self._executor
        await in_thread(executor, files.begin_load)
        file = await self._file_of(info)
        if file is not None:
            await in_thread(executor, partial(self._load_file, files, file, progress))
        else:
            done = 0
            for index in range(info.pieces):
                piece = await ask(partial(self.journal.read_piece, info.id, index))
                await in_thread(executor, partial(files.load, piece))
                done += len(piece)
                if progress is not None:
                    progress(done, info.size)
            if done != info.size:
                raise ReplicationError(
                    f"snapshot {info.id} has {done} bytes instead of {info.size}"
                )
        await in_thread(executor, partial(files.finish_load, info.position))

    def _load_file(
        self, files: MemberFiles, file: _SnapshotFile, progress: Progress | None
    ) -> None:
        """Load the file of a snapshot, in a thread."""
        path = self._path_of(file)
        crc = done = 0
        try:
            with open(path, "rb") as source:
                while data := source.read(PIECE):
                    files.load(data)
                    crc = _extend_crc(crc, data)
                    done += len(data)
                    if progress is not None:
                        progress(done, file.size)
        except FileNotFoundError as error:
            raise ReplicationError(f"{path} is missing: it is the file of a snapshot") from error
        if (done, crc) != (file.size, file.crc):
            raise ReplicationError(f"{path} is damaged: its checksum is wrong")

    # -- dropping ------------------------------------------------------------------------------

    async def drop(self, info: SnapshotInfo) -> None:
        """Delete a snapshot, and its file if it has one."""
        file = await self._file_of(info)
        await ask(partial(self.journal.drop_snapshot, info.id))
        if file is not None and self._directory is not None:
            path = self._path_of(file)
            await in_thread(self._executor, partial(path.unlink, missing_ok=True))

    async def drop_unfinished(self, known: list[SnapshotInfo]) -> None:
        """Delete what was begun before the newest snapshot and not finished: its member was
        stopped. `known` are the complete ones, the newest first."""
        complete = {info.id for info in known}
        newest = max(complete, default=0)
        for id in range(max(1, newest - _LOOK_BACK), newest):
            if id not in complete:
                await ask(partial(self.journal.drop_snapshot, id))
                if self._directory is not None:
                    for path in (self._directory / _name_of(id), self._directory / _part_of(id)):
                        await in_thread(self._executor, partial(path.unlink, missing_ok=True))

    async def _file_of(self, info: SnapshotInfo) -> _SnapshotFile | None:
        """Return the file of a snapshot, None for one whose pieces are in the journal."""
        # A label is shorter than the smallest file of LMDB.
        if info.pieces != 1 or info.size >= 4096:
            return None
        fields = decode_label(_TITLE, await ask(partial(self.journal.read_piece, info.id, 0)))
        if fields is None:
            return None
        try:
            return _SnapshotFile(fields["file"], int(fields["size"]), int(fields["crc"], 16))
        except (KeyError, ValueError) as error:
            raise ReplicationError(f"snapshot {info.id}: its label is damaged") from error

    def _path_of(self, file: _SnapshotFile) -> Path:
        if self._directory is None:
            raise ReplicationError(
                f"the snapshot {file.name} is in a directory: set snapshot-directory to the one "
                "that the other members use"
            )
        if not file.name.endswith(_SUFFIX) or "/" in file.name:
            raise ReplicationError(f"{file.name!r} is not the name of a snapshot")
        return self._directory / file.name


def _name_of(id: int) -> str:
    return f"{id:08}{_SUFFIX}"


def _part_of(id: int) -> str:
    return f"{_name_of(id)}.part"


def _ignore(result: Exception | None) -> None:
    """Ignore whether an unfinished snapshot was deleted."""
