"""Whether LMDB can be given the file of a store: `python -m ferrymq_broker.store.lmdb_check DIR`.

It is done whenever a store is opened: a damaged page that LMDB comes upon ends the process without
a word. After a stop in good order values are left out. Whoever reads one looks at its checksum.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.lmdb_pages import PageFile

# Pages between two reports, and between two times that others have the interpreter.
_PAGES_AT_ONCE: Final = 1000


def check_file(
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    pages_at_once: int = _PAGES_AT_ONCE,
    values: bool = True,
) -> None:
    """Read all of LMDB's file that is in use. `progress` is told records, and how many there are.
    Without `values` only that is looked at what LMDB believes: not whether values are intact.

    Raises `StoreDamaged` for the first thing that is wrong, `OSError`.
    """
    if path.stat().st_size == 0:
        raise StoreDamaged(f"{path}: it is empty")
    file = PageFile(str(path), values)
    try:
        file.check_free()
        file.begin_records()
        while not file.check_records(pages_at_once):
            if progress is not None:
                progress(file.seen, file.records.entries)
    finally:
        file.close()


def main() -> int:
    """Check the file of a directory; 1 if it is damaged."""
    path = Path(sys.argv[1]) / "data.mdb"
    try:
        check_file(path)
    except (StoreDamaged, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
