"""Storage of capture files: a folder of this machine, or one that pyarrow opens by its URI.

A `Place` is the folder of one stream. Paths in it are relative, with slashes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import unquote, urlsplit

from ferrymq.capture.errors import CaptureError
from ferrymq.capture.names import TMP, CaptureName, parse_name

# C: is no scheme.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://?")
# Hadoop's names of schemes that pyarrow names differently.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}


class Place(Protocol):
    """Folder with capture files: `base` is its location as it was given."""

    base: str

    def paths(self) -> Iterator[str]:
        """Return the paths of all files in the folder and below it; none if the folder does not
        exist."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    def create(self, path: str) -> BinaryIO | Any:
        """Open a file for writing, new or empty; create its folder if needed."""

    def settle(self, tmp: str, path: str) -> None:
        """Rename the complete, closed file `tmp` to `path`, durably."""

    def remove(self, path: str) -> None:
        """Delete a file."""


def names_in(place: Place) -> list[CaptureName]:
    """Return the capture files in a stream's folder, in no order."""
    return [name for path in place.paths() if (name := parse_name(path)) is not None]


def leftovers_in(place: Place) -> list[str]:
    """Return the paths of incomplete files."""
    return [path for path in place.paths() if path.rpartition("/")[2].startswith(TMP)]


class LocalPlace:
    """Folder of this machine."""

    def __init__(self, folder: Path | str) -> None:
        self.folder: Path = Path(folder)
        self.base: str = str(self.folder)
        # Folders that exist durably.
        self._made: set[Path] = set()

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files."""
        yield from _walk(str(self.folder), "")

    def read(self, path: str) -> bytes | None:
        """Return the content of a file."""
        try:
            return (self.folder / path).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, path: str) -> BinaryIO:
        """Open a file for writing. Its folders are durable before it is written."""
        self._make((self.folder / path).parent)
        return (self.folder / path).open("wb")

    def settle(self, tmp: str, path: str) -> None:
        """Sync the file, rename it, and sync the folder."""
        source = self.folder / tmp
        target = self.folder / path
        _sync(source)
        self._make(target.parent)
        source.replace(target)
        _sync(target.parent)

    def remove(self, path: str) -> None:
        """Delete a file."""
        (self.folder / path).unlink(missing_ok=True)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return (self.folder / path).stat().st_size

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Sync these folders, so that the names of their files are durable."""
        for folder in folders:
            self._make(self.folder / folder)
            _sync(self.folder / folder)

    def _make(self, folder: Path) -> None:
        """Create a folder durably; another process may have created it."""
        if folder in self._made:
            return
        parent = folder.parent
        if folder == self.folder:
            new = [folder, *folder.parents]
            for each in reversed([one for one in new if not one.exists()]):
                each.mkdir(exist_ok=True)
                _sync(each.parent)
        else:
            self._make(parent)
            folder.mkdir(exist_ok=True)
        _sync(parent)
        self._made.add(folder)


class RemotePlace:
    """Folder of a file system of pyarrow."""

    def __init__(self, uri: str, folder: str = "") -> None:
        import pyarrow
        from pyarrow import fs

        scheme, _, rest = uri.partition(":")
        try:
            self._system, root = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}:{rest}")
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise CaptureError(f"{uri}: {error}") from None
        self._fs = fs
        self._root = f"{root.rstrip('/')}/{folder}".rstrip("/")
        self.base: str = f"{uri.rstrip('/')}/{folder}".rstrip("/")

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files."""
        selector = self._fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        for info in self._system.get_file_info(selector):
            if info.type == self._fs.FileType.File:
                yield info.path[len(self._root) :].lstrip("/")

    def read(self, path: str) -> bytes | None:
        """Return the content of a file."""
        try:
            with self._system.open_input_stream(f"{self._root}/{path}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def create(self, path: str) -> Any:
        """Open a file for writing."""
        full = f"{self._root}/{path}"
        self._system.create_dir(full.rpartition("/")[0], recursive=True)
        return self._system.open_output_stream(full)

    def settle(self, tmp: str, path: str) -> None:
        """Move the file. The storage keeps closed files durably."""
        full = f"{self._root}/{path}"
        self._system.create_dir(full.rpartition("/")[0], recursive=True)
        self._system.move(f"{self._root}/{tmp}", full)

    def remove(self, path: str) -> None:
        """Delete a file."""
        try:
            self._system.delete_file(f"{self._root}/{path}")
        except FileNotFoundError:
            pass


def open_place(directory: str | Path, folder: str = "") -> Place:
    """Open a folder in a directory: of this machine, by its path or a ``file:`` URI, or of another
    URI. Raises `CaptureError` for a URI that pyarrow cannot open."""
    text = str(directory)
    if text.startswith("file:"):
        return LocalPlace(Path(unquote(urlsplit(text).path)) / folder)
    if isinstance(directory, str) and _URI.match(text):
        return RemotePlace(text, folder)
    return LocalPlace(Path(text) / folder)


def _walk(folder: str, prefix: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}"


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
