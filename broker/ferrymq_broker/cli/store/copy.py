"""``ferrymq store backup`` and ``ferrymq store compact``."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Final

import lmdb
import typer

from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.store.offline_store import Directory, locked, opened, require_store
from ferrymq_broker.cli.store.online_backup import backup_online
from ferrymq_broker.config.units import format_size
from ferrymq_broker.store.backup_target import BackupTarget
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.format_file import CLEAN_NAME, FORMAT_NAME
from ferrymq_broker.store.head_file import HEAD_NAME
from ferrymq_broker.store.lmdb_records import DATA_NAME
from ferrymq_broker.store.segments import SPARE_PREFIX

_INSTEAD: Final = "ferrymq store backup --url URL TARGET"
# Seconds between two updates of the progress.
_PERIOD: Final = 0.1


def backup(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="[DIR] TARGET",
            help="The directory of a store that no broker uses, and the target directory; with "
            "--url only the target, on the broker's machine.",
            show_default=False,
        ),
    ],
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Let the broker at URL make the backup while it runs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a store to a new or empty directory, which is a store too then."""
    if len(directories) != (2 if url is None else 1):
        raise typer.BadParameter(
            "DIR and TARGET are needed, or --url and TARGET", param_hint="DIR TARGET"
        )
    target = directories[-1]
    if url is None:
        size = _copy(directories[0], target)
    else:
        size = backup_online(url, target)
    if as_json:
        sys.stdout.write(json.dumps({"target": str(target), "bytes": size}) + "\n")
    else:
        sys.stdout.write(f"{target}: {format_size(size)}\n")


def compact(directory: Directory, as_json: Json = False) -> None:
    """Make the files of a store smaller. No broker may use the store."""
    require_store(directory)
    before = _bytes_in(directory)
    with opened(directory):
        pass
    with locked(directory) as folder:
        require_clean(folder)
        new = f"{DATA_NAME}.new"
        # A run that was killed leaves this file.
        (directory / new).unlink(missing_ok=True)
        try:
            copy_records(directory, directory / new, "compacting")
            folder.rename(new, DATA_NAME)
        except BaseException:
            (directory / new).unlink(missing_ok=True)
            raise
        for name in folder.names():
            # The broker makes new spare files.
            if name.startswith(SPARE_PREFIX):
                folder.remove(name)
        folder.sync()
    after = _bytes_in(directory)
    if as_json:
        report = {"store": str(directory), "before-bytes": before, "after-bytes": after}
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        sys.stdout.write(f"{directory}: {format_size(before)} before, {format_size(after)} now\n")


def _copy(directory: Path, target: Path) -> int:
    backup_target = BackupTarget(target)
    backup_target.require_free()
    with opened(directory, _INSTEAD):
        pass
    with locked(directory, _INSTEAD) as folder:
        require_clean(folder)
        try:
            copy = backup_target.begin()
            copy_records(directory, target / DATA_NAME, "copying")
            # The format is written last: without it, an incomplete copy does not count as a store.
            for name in (HEAD_NAME, CLEAN_NAME, FORMAT_NAME):
                file = copy.create(name)
                file.write(0, [(directory / name).read_bytes()])
                file.close()
            backup_target.finish(copy)
        except BaseException:
            backup_target.abandon()
            raise
    return _bytes_in(target)


def require_clean(folder: RealFolder) -> None:
    """Raise `StoreError` if the store, which is locked, was not closed in good order."""
    if CLEAN_NAME not in folder.names():
        raise StoreError(f"{folder.path}: another process has begun to use the store")


def copy_records(directory: Path, target: Path, what: str) -> None:
    """Write the records of a locked and closed store to a file without gaps, and sync it."""
    try:
        environment = lmdb.open(str(directory), readonly=True, lock=False, max_dbs=0)
    except lmdb.Error as error:
        raise StoreDamaged(f"{directory / DATA_NAME} cannot be opened: {error}") from error
    failed: list[Exception] = []

    def work(descriptor: int) -> None:
        try:
            environment.copyfd(descriptor, compact=True)
            os.fsync(descriptor)
        except (lmdb.Error, OSError) as error:
            failed.append(error)

    total = (directory / DATA_NAME).stat().st_size
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        thread = threading.Thread(target=work, args=(descriptor,), daemon=True)
        thread.start()
        with RunProgress(what, total) as progress:
            while thread.is_alive():
                thread.join(_PERIOD)
                progress.reach(what, min(total, os.fstat(descriptor).st_size), total)
    finally:
        os.close(descriptor)
        environment.close()
    if failed:
        raise StoreError(f"{target} cannot be written: {failed[0]}") from failed[0]


def _bytes_in(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
