"""The directory that a backup is written to.

A mark file in the directory says that the backup is not complete. A backup that fails removes the
files it wrote. A backup that is killed leaves the mark, and the next backup into the directory
starts again from the beginning.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.format_file import FORMAT_NAME

WORKER: Final = "worker-"
"""The beginning of the names of directories with the stores of other workers."""
_MARK: Final = "unfinished-backup"


class BackupTarget:
    """A directory that is new, empty, or holds the files of a killed backup."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def begun(self) -> bool:
        """Whether the directory has the mark of a backup that is not complete."""
        return (self.path / _MARK).exists()

    def require_free(self) -> None:
        """Raise `StoreError` if the directory has files that are not of an unfinished backup."""
        if not self.path.exists():
            return
        if self.path.is_dir() and (self._is_unfinished() or not any(self.path.iterdir())):
            return
        raise StoreError(f"{self.path} is not empty: give an empty or new directory for the backup")

    def begin(self) -> RealFolder:
        """Make the directory, remove the files of a killed backup and write the mark.

        Raises `StoreError`, `OSError`.
        """
        self.require_free()
        folder = RealFolder(self.path)
        self._clear()
        (self.path / _MARK).touch(mode=0o600)
        folder.sync()
        return folder

    def finish(self, folder: RealFolder) -> None:
        """Remove the mark: the directory is a complete store. Raises `OSError`."""
        folder.sync()
        (self.path / _MARK).unlink()
        folder.sync()

    def abandon(self) -> None:
        """Remove the files of a failed backup, if its mark is there."""
        if self.begun:
            (self.path / FORMAT_NAME).unlink(missing_ok=True)
            self._clear()

    def _is_unfinished(self) -> bool:
        # A directory with a format file is a store, which may have been used since the backup.
        return self.begun and not (self.path / FORMAT_NAME).exists()

    def _clear(self) -> None:
        """Remove all files of a backup, the mark last, and the stores of other workers in it."""
        for file in sorted(self.path.iterdir(), key=lambda file: file.name == _MARK):
            if file.name.startswith(WORKER) and file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink()
