"""Facts of LMDB's file format that LMDB itself does not report.

`check_file` finds damage before LMDB opens the file: LMDB may crash the process or do more damage
when it reads a damaged page. `read_free_lists` and `read_free_map` find free pages, and `Footprint`
estimates what a transaction will write. Only this module uses `lmdb_pages` and `footprint`;
docs/decisions/0011-store.md says what would be lost without them.

`python -m ferrymq_broker.store.lmdb_file DIR` checks the file of a store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.footprint import Footprint
from ferrymq_broker.store.lmdb_pages import NODE_BYTES, PAGE_HEAD_BYTES, PageFile

__all__ = [
    "NODE_BYTES",
    "PAGE_HEAD_BYTES",
    "Footprint",
    "check_file",
    "read_free_lists",
    "read_free_map",
]

# Pages checked between two reports of progress.
_PAGES_AT_ONCE: Final = 1000


def check_file(
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    pages_at_once: int = _PAGES_AT_ONCE,
    values: bool = True,
) -> None:
    """Check all used pages of LMDB's file. `progress` gets the records checked and the total.

    Without `values` only the structure that LMDB trusts is checked; a damaged value is found when
    it is read. Raises `StoreDamaged` for the first fault, `OSError`.
    """
    if path.stat().st_size == 0:
        raise StoreDamaged(f"{path} is damaged: the file is empty")
    file = PageFile(str(path), values)
    try:
        file.check_free()
        file.begin_records()
        while not file.check_records(pages_at_once):
            if progress is not None:
                progress(file.seen, file.records.entries)
    finally:
        file.close()


def read_free_lists(path: Path) -> list[tuple[int, list[int]]]:
    """Return the pages that the next transaction may use, by the transaction that freed them.

    Raises `StoreDamaged`, `OSError`.
    """
    file = PageFile(str(path))
    try:
        return file.free_pages()
    finally:
        file.close()


def read_free_map(path: Path) -> bytearray:
    """Return a bit for each page, the lowest of a byte first, which is set if the page is free.

    Raises `StoreDamaged`, `OSError`.
    """
    file = PageFile(str(path))
    try:
        return file.free_map()
    finally:
        file.close()


def main() -> int:
    """Check the file of a directory; return 1 if it is damaged."""
    path = Path(sys.argv[1]) / "data.mdb"
    try:
        check_file(path)
    except (StoreDamaged, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
