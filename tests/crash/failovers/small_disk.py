"""A small file system in memory, which can be filled up."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

# More than the logs of both servers may have.
_SIZE: Final = 2 << 30


class SmallDisk:
    """A file system for the database, mounted at `path` inside the block ``with``. Only root can
    make it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self._ballast = self.path / "ballast"

    def __enter__(self) -> Self:
        self.path.mkdir()
        options = f"size={_SIZE},mode=755"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)],
            check=True,
            capture_output=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False)
        self.path.rmdir()

    def fill(self, left: int) -> None:
        """Leave only so many bytes free, or fewer: the servers write meanwhile."""
        state = os.statvfs(self.path)
        size = state.f_bavail * state.f_frsize - left
        with self._ballast.open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, size))

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)
