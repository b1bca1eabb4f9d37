"""Opening a store that no broker uses, for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.store.backup_target import WORKER
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError, StoreLocked
from ferrymq_broker.store.format_file import FORMAT_NAME

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The directory of the store.", show_default=False)
]


def require_store(path: Path) -> None:
    """Raise `StoreError` if there is no store, which commands must not make."""
    if not path.is_dir():
        raise StoreError(f"{path}: there is no such directory")
    if not (path / FORMAT_NAME).exists():
        raise StoreError(f"{path}: there is no store in this directory")
    _tell_of_others(path)


@cache
def _tell_of_others(path: Path) -> None:
    """Say once that a store is only a part of what a broker with workers has."""
    others = sorted(each.name for each in path.glob(f"{WORKER}*") if (each / FORMAT_NAME).exists())
    if others:
        typer.echo(f"{path}: only the store of worker 0, not {', '.join(others)}", err=True)


@contextmanager
def locked(path: Path, instead: str = "") -> Iterator[RealFolder]:
    """Lock the directory of a store, and yield it. `instead` is a hint for a store in use.

    Raises `StoreError`, `OSError`.
    """
    require_store(path)
    folder = RealFolder(path)
    with _explained(instead):
        folder.lock()
    try:
        yield folder
    finally:
        folder.unlock()


@contextmanager
def opened(path: Path, instead: str = "", quiet: bool = False) -> Iterator[DurableStore]:
    """Open a store, apply its journal to its records, and yield it. Raises `StoreError`,
    `OSError`."""
    require_store(path)
    with RunProgress("applying the journal", None, quiet) as progress, _explained(instead):
        store = DurableStore.open(
            path,
            Changes(),
            progress=lambda done, total: progress.reach("applying the journal", done, total),
        )
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _explained(instead: str) -> Iterator[None]:
    try:
        yield
    except StoreLocked as error:
        if not instead:
            raise
        raise StoreLocked(f"{error}; while the broker runs, use: {instead}") from None
