"""``ferrymq store import``: putting the records of an export into a store."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.store.copy import copy_records, require_clean
from ferrymq_broker.cli.store.json_lines import line_of
from ferrymq_broker.cli.store.json_reader import MAX_LINE, read_lines
from ferrymq_broker.cli.store.merge import Name, describe, highest_id, name_of
from ferrymq_broker.cli.store.offline_store import Directory, locked
from ferrymq_broker.cli.store.ownership import require_owners
from ferrymq_broker.config.units import parse_size
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.lmdb_records import DATA_NAME, LmdbRecords
from ferrymq_broker.store.records import RecordsGrow
from ferrymq_broker.store.tables import NAMES

# The most conflicting names in an error.
_MOST: Final = 10
# The most bytes and records in one transaction, which LMDB holds in memory until it ends.
_AT_ONCE: Final = 16 << 20
_RECORDS_AT_ONCE: Final = 10_000
# The folder of the new records, which replace those of the store when they are complete.
_NEW: Final = "importing"

Pairs = list[tuple[bytes, bytes]]


def import_(
    directory: Directory,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A file that export wrote; may end with .gz.", show_default=False
        ),
    ],
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Add to a store that is not empty; names must not conflict."),
    ] = False,
    max_line: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="The most bytes of a line: 4/3 of the largest message. The import needs "
            "memory for a few lines.",
        ),
    ] = f"{MAX_LINE >> 20}MiB",
    as_json: Json = False,
) -> None:
    """Put the records of an `export` into a store, all or nothing. No broker may use the store.

    A store that does not exist is made. It has to be empty without --merge.
    """
    try:
        most = parse_size(max_line)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-line") from None
    with RunProgress("reading", None) as progress:
        # Check the whole file before anything is written.
        for _ in read_lines(file, most):
            progress.advance()
        DurableStore.open(directory, Changes()).close()
        with locked(directory) as folder:
            require_clean(folder)
            by = 0
            names: set[Name] = set()
            with _opened(directory) as records:
                if any(True for table in NAMES for _ in records.scan(table)):
                    if not merge:
                        raise StoreError(
                            f"{directory} is not empty: import into another directory, "
                            "or use --merge to add to it"
                        )
                    by = highest_id((table, records.scan(table)) for table in NAMES)
                    names = _names_in(records)
            _require_free(directory, file, most, names)
            with _replaced(folder) as records:
                counts = _put(records, file, most, by, progress)
                try:
                    require_owners(records, by)
                except StoreError as error:
                    raise StoreError(f"{file} is not complete: {error}") from error
    if as_json:
        sys.stdout.write(json.dumps({"store": str(directory), "records": dict(counts)}) + "\n")
    else:
        sys.stdout.write(f"{counts.total()} records of {file} put into {directory}\n")


@contextmanager
def _opened(directory: Path) -> Iterator[LmdbRecords]:
    records = LmdbRecords(directory)
    try:
        yield records
    finally:
        records.close()


@contextmanager
def _replaced(folder: RealFolder) -> Iterator[LmdbRecords]:
    """Yield a copy of the records, which replaces the records at the end if there is no error."""
    new = folder.path / _NEW
    # An import that was killed leaves this folder.
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    try:
        copy_records(folder.path, new / DATA_NAME, "copying")
        with _opened(new) as records:
            yield records
        folder.rename(f"{_NEW}/{DATA_NAME}", DATA_NAME)
        folder.sync()
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put(
    records: LmdbRecords, file: Path, max_line: int, by: int, progress: RunProgress
) -> Counter[str]:
    """Put all records of the file. Return their number by table."""
    counts: Counter[str] = Counter()
    pairs: Pairs = []
    size = 0
    for place, table, record, _ in read_lines(file, max_line, by):
        key = encode_key(table, record.id, record.number)
        pairs.append((key, seal(key, record.value)))
        size += len(record.value)
        counts[NAMES[table]] += 1
        progress.reach("importing", place, 0)
        if size >= _AT_ONCE or len(pairs) >= _RECORDS_AT_ONCE:
            _commit(records, pairs)
            pairs.clear()
            size = 0
    _commit(records, pairs)
    return counts


def _commit(records: LmdbRecords, pairs: Pairs) -> None:
    while True:
        try:
            records.begin()
            for key, stored in pairs:
                records.put(key, stored)
            records.commit(records.applied)
        except RecordsGrow:
            continue
        except BaseException:
            records.abort()
            raise
        return


def _names_in(records: LmdbRecords) -> set[Name]:
    """Return all names of a store that must be unique."""
    names: set[Name] = set()
    for table in NAMES:
        for record in records.scan(table):
            known = name_of(table, json.loads(line_of(table, record))["value"])
            if known is None:
                break
            names.add(known)
    return names


def _require_free(directory: Path, file: Path, max_line: int, names: set[Name]) -> None:
    """Raise `StoreError` if a record of the file has one of the names."""
    if not names:
        return
    count = 0
    clashes = []
    for line in read_lines(file, max_line):
        if line.name in names:
            count += 1
            if count <= _MOST:
                clashes.append(describe(line.name))
    if count:
        more = f"; and {count - _MOST} more" if count > _MOST else ""
        raise StoreError(f"{directory} already has {'; '.join(clashes)}{more}")
