"""Files that programs replace as a whole: a reader sees the old content or the new one."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def replace_file(path: Path, data: bytes) -> None:
    """Replace the file atomically. Owner and permissions stay; a new file is readable by its owner
    only. Raises `OSError`."""
    # Write to the target of a symbolic link.
    path = path.resolve()
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            _take_after(path, descriptor)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other programs that call this out of a folder. The folder is locked, because the file
    itself is replaced."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _take_after(path: Path, descriptor: int) -> None:
    """Give the new file the owner and permissions of the old one, for example if root changes
    it."""
    if os.name != "posix":
        return
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
