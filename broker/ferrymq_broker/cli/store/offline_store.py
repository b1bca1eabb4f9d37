"""A store that no broker uses: opened by a command, closed when that is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError, StoreLocked
from ferrymq_broker.store.format_file import FORMAT_NAME

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The directory of the store.", show_default=False)
]


def require_store(path: Path) -> None:
    """Raise `StoreError` where there is no store: to look at one is not to make one."""
    if not path.is_dir():
        raise StoreError(f"{path}: there is no such directory")
    if not (path / FORMAT_NAME).exists():
        raise StoreError(f"{path}: there is no store in this directory")


@contextmanager
def locked(path: Path, instead: str = "") -> Iterator[RealFolder]:
    """The directory, with everybody else kept out. `instead` is what to do beside a broker.

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
    """The store, with all that its journal had in its records. Raises `StoreError`, `OSError`."""
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
        raise StoreLocked(f"{error}; of a broker that runs: {instead}") from None
