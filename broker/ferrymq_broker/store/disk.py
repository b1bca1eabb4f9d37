"""The file operations of the store, behind an interface.

Tests use a simulated disk that loses, reorders and tears what was not synced. All methods raise
`OSError`. No method is called by two threads at once for the same file. An open file stays open
when it is renamed.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from ferrymq_broker.event_log import log
from ferrymq_broker.store.errors import StoreError, StoreLocked

if sys.platform != "win32":
    import fcntl

# Bytes of one write when a file is filled with zeros.
_FILL_BYTES: Final = 1 << 20

_LOCK_NAME: Final = "lock"
_BOUNDLESS: Final = 1 << 62

# The error text for an open file whose name does not lead to it any more.
GONE: Final = (
    "is not in its place any more: the file, or the directory of the store, was removed, "
    "moved or replaced while it was in use"
)

# Errors of file systems that cannot lock a directory.
_NO_LOCKS: Final = (
    errno.EBADF,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
)

# With this variable set to 1 nothing is synced. A test of power cuts must detect that.
_UNSAFE_NAME: Final = "FERRYMQ_UNSAFE_NO_SYNC"


def is_full(error: OSError) -> bool:
    """Return whether the error says that the disk is full, which is temporary, not a failure."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class File:
    """The interface of a file of the store."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from a position; fewer at the end of the file."""
        raise NotImplementedError

    def write(self, position: int, parts: Sequence[bytes], sync: bool = True) -> None:
        """Write `parts` one after the other. When this returns, they are on disk, and so is the
        size of the file if it grew; without `sync` the system may write them later, in any order.
        When this raises, any part of them may be on disk."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the bytes in the file."""
        raise NotImplementedError

    def is_in_place(self) -> bool:
        """Return whether the file's name still leads to it."""
        return True

    def fill(self, size: int) -> None:
        """Replace the content by `size` zeros with space allocated on the disk, and sync it."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file without syncing it."""
        raise NotImplementedError


class Folder:
    """The interface of the directory of a store. Changes of names are on disk after `sync`. Before
    that, they may be on disk in any order or not at all."""

    def describe(self, name: str = "") -> str:
        """Return the name of a file, or of the directory, for a message."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """Return the names of all files."""
        raise NotImplementedError

    def open(self, name: str) -> File:
        """Open an existing file."""
        raise NotImplementedError

    def create(self, name: str) -> File:
        """Create a file, or empty the one that has this name."""
        raise NotImplementedError

    def rename(self, old: str, new: str) -> None:
        """Rename a file; replace a file that has the new name."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Remove a file."""
        raise NotImplementedError

    def sync(self) -> None:
        """Sync the names to disk."""
        raise NotImplementedError

    def identity(self, name: str) -> str:
        """Return the file system's number for a file, which a copy does not share; empty if there
        is no such file or no such number."""
        return ""

    def free(self) -> int:
        """Return the free bytes of the disk."""
        return _BOUNDLESS

    def lock(self) -> None:
        """Lock the directory against other processes until `unlock` or the end of the process.

        Raises `StoreLocked`.
        """
        raise NotImplementedError

    def unlock(self) -> None:
        """Release the lock."""
        raise NotImplementedError


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that holds a directory."""
    if sys.platform == "win32":
        return _BOUNDLESS
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def is_in_place(path: Path, inode: int) -> bool:
    """Return whether a path leads to the file with this inode."""
    try:
        return os.stat(path).st_ino == inode
    except OSError:
        return False


def only_pretends() -> bool:
    """Return whether syncing is switched off: acknowledged data can then be lost."""
    return os.environ.get(_UNSAFE_NAME) == "1"


def sync_descriptor(descriptor: int) -> None:
    """Sync a file to the disk itself, not only to its cache."""
    if only_pretends():
        return
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif sys.platform == "win32":
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


class RealFile(File):
    """A file of the operating system."""

    __slots__ = ("path", "_descriptor", "_one_call", "_flags", "_inode")

    def __init__(self, path: Path, flags: int) -> None:
        # The current path, which `RealFolder.rename` updates.
        self.path: Path = path
        self._descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
        self._inode = os.fstat(self._descriptor).st_ino
        # Whether one call writes and syncs, which costs the calling thread the least time.
        self._one_call = hasattr(os, "RWF_DSYNC")
        self._flags = 0 if only_pretends() else getattr(os, "RWF_DSYNC", 0)

    def read(self, position: int, size: int) -> bytes:
        """See `File.read`."""
        try:
            return self._read(position, size)
        except OSError as error:
            raise _of(error, self.path) from None

    def _read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        # A signal cut the read short, or the size is more than the system reads at once.
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._descriptor, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def write(self, position: int, parts: Sequence[bytes], sync: bool = True) -> None:
        """See `File.write`."""
        try:
            self._write(position, parts, sync)
        except OSError as error:
            raise _of(error, self.path) from None

    def _write(self, position: int, parts: Sequence[bytes], sync: bool) -> None:
        size = sum(map(len, parts))
        if self._one_call:
            flags = self._flags if sync else 0
            try:
                written = os.pwritev(self._descriptor, parts, position, flags)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                    raise
                self._one_call = False
                written = 0
            if written == size:
                return
        else:
            written = 0
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            count = os.pwrite(self._descriptor, rest, position + written)
            written += count
            rest = rest[count:]
        if sync:
            sync_descriptor(self._descriptor)

    def size(self) -> int:
        """See `File.size`."""
        return os.fstat(self._descriptor).st_size

    def is_in_place(self) -> bool:
        """See `File.is_in_place`."""
        return is_in_place(self.path, self._inode)

    def fill(self, size: int) -> None:
        """See `File.fill`."""
        try:
            self._fill(size)
        except OSError as error:
            raise _of(error, self.path) from None

    def _fill(self, size: int) -> None:
        os.ftruncate(self._descriptor, 0)
        zeros = memoryview(bytes(min(size, _FILL_BYTES)))
        position = 0
        while position < size:
            position += os.pwrite(self._descriptor, zeros[: size - position], position)
        sync_descriptor(self._descriptor)

    def close(self) -> None:
        """See `File.close`."""
        if self._descriptor >= 0:
            descriptor = self._descriptor
            self._descriptor = -1
            os.close(descriptor)


class RealFolder(Folder):
    """A directory of the operating system, created if missing."""

    def __init__(self, path: Path) -> None:
        if not hasattr(os, "pwritev"):
            raise StoreError(
                f"a store needs the system call pwritev, which {sys.platform} does not have: "
                "run the broker on another system, or without a store"
            )
        self.path = path
        # Descriptors of the locked file and the locked directory.
        self._locks: list[int] = []
        # Open files by name, so that `rename` can update their paths.
        self._files: WeakValueDictionary[str, RealFile] = WeakValueDictionary()
        if only_pretends():
            log.warning(
                "nothing is synced to disk: acknowledged messages can be lost", store=str(path)
            )
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in made:
            _sync_directory(folder.parent)

    def describe(self, name: str = "") -> str:
        """See `Folder.describe`."""
        return str(self.path / name) if name else str(self.path)

    def names(self) -> list[str]:
        """See `Folder.names`."""
        return os.listdir(self.path)

    def open(self, name: str) -> File:
        """See `Folder.open`."""
        return self._opened(name, os.O_RDWR)

    def create(self, name: str) -> File:
        """See `Folder.create`."""
        return self._opened(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def _opened(self, name: str, flags: int) -> RealFile:
        file = RealFile(self.path / name, flags)
        self._files[name] = file
        return file

    def rename(self, old: str, new: str) -> None:
        """See `Folder.rename`."""
        os.replace(self.path / old, self.path / new)
        file = self._files.pop(old, None)
        if file is not None:
            file.path = self.path / new
            self._files[new] = file

    def remove(self, name: str) -> None:
        """See `Folder.remove`."""
        os.unlink(self.path / name)

    def sync(self) -> None:
        """See `Folder.sync`."""
        _sync_directory(self.path)

    def identity(self, name: str) -> str:
        """See `Folder.identity`."""
        try:
            return str(os.stat(self.path / name).st_ino)
        except FileNotFoundError:
            return ""

    def free(self) -> int:
        """See `Folder.free`."""
        return free_bytes(self.path)

    def lock(self) -> None:
        """See `Folder.lock`."""
        if sys.platform == "win32":
            return
        # The lock file names the process that has the store. It also stops old versions, which lock
        # only this file. The file can be removed while this process uses it, but nobody can replace
        # the directory that this process holds open.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._locks = [os.open(self.path / _LOCK_NAME, flags, 0o600)]
        try:
            self._lock(self._locks[0])
            self._locks.append(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            try:
                self._lock(self._locks[1])
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                log.warning(
                    "this file system cannot lock a directory: do not remove the file lock",
                    store=str(self.path),
                )
            os.ftruncate(self._locks[0], 0)
            os.pwrite(self._locks[0], f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            self.unlock()
            raise

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # A new lock file, created after the old one was removed, names no process.
            holder = os.pread(self._locks[0], 32, 0).decode("ascii", "replace").strip()
            raise StoreLocked(
                f"the store {self.path} is in use by the process {holder or '(unknown)'}: "
                "stop it first, or use another directory"
            ) from error

    def unlock(self) -> None:
        """See `Folder.unlock`."""
        # The file stays: if it were removed, two processes could lock two different files of the
        # same name.
        for descriptor in self._locks:
            os.close(descriptor)
        self._locks = []


def _sync_directory(path: Path) -> None:
    if only_pretends():
        return
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _of(error, path) from None
    finally:
        os.close(descriptor)


def _of(error: OSError, path: Path) -> OSError:
    """Set the path in an error of a call that had only a descriptor, and return the error."""
    error.filename = str(path)
    return error
