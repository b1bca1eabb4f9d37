"""``ferrymq store import``: what `export` has written, into a store."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.store.exporting import END, HEADER
from ferrymq_broker.cli.store.lines import FORMAT, TABLES, line_of, record_of
from ferrymq_broker.cli.store.merging import describe, highest_id, moved, name_of
from ferrymq_broker.cli.store.opening import Directory, locked
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.lmdb_records import LmdbRecords
from ferrymq_broker.store.records import RecordsGrow
from ferrymq_broker.store.tables import NAMES

# Names that clash are told up to this number.
_MOST: Final = 10

Name = tuple[object, ...]


def import_(
    directory: Directory,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What export has written; may end with .gz.", show_default=False
        ),
    ],
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Add to what is there, which must not have the same names."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Put what `export` has written into a store that no broker uses; all of it or nothing.

    The store is made if there is none, and has to be empty unless --merge is said.
    """
    with RunProgress("reading", None) as progress:
        # All that could be wrong with the file is known before anything is written.
        names = _read_through(file, progress)
        DurableStore.open(directory, Changes()).close()
        with locked(directory):
            records = LmdbRecords(directory)
            try:
                counts = _put(records, file, merge, names, progress)
            finally:
                records.close()
    if as_json:
        sys.stdout.write(json.dumps({"store": str(directory), "records": dict(counts)}) + "\n")
    else:
        sys.stdout.write(f"{counts.total()} records of {file} put into {directory}\n")


def _read_through(file: Path, progress: RunProgress) -> set[Name]:
    names: set[Name] = set()
    for _, table, fields in _lines(file):
        record_of(fields)
        name = name_of(table, fields["value"])
        if name is not None:
            names.add(name)
        progress.advance()
    return names


def _put(
    records: LmdbRecords, file: Path, merge: bool, names: set[Name], progress: RunProgress
) -> Counter[str]:
    """One transaction has everything. How many records, by table."""
    by = 0
    if any(True for table in NAMES for _ in records.scan(table)):
        if not merge:
            raise StoreError(
                f"{records.path.parent} is not empty: import into another directory, "
                "or say --merge to add to it"
            )
        by = highest_id((table, records.scan(table)) for table in NAMES)
        _require_free(records, names)
    while True:
        counts: Counter[str] = Counter()
        try:
            records.begin()
            for place, table, fields in _lines(file):
                _, record = record_of(moved(table, fields, by))
                key = encode_key(table, record.id, record.number)
                records.put(key, seal(key, record.value))
                counts[NAMES[table]] += 1
                progress.reach("importing", place, 0)
            records.commit(records.applied)
        except RecordsGrow:
            continue
        except BaseException:
            records.abort()
            raise
        return counts


def _require_free(records: LmdbRecords, names: set[Name]) -> None:
    """Raise `StoreError` if something in the store has one of the names."""
    clashes = []
    for table in NAMES:
        for record in records.scan(table):
            known = name_of(table, json.loads(line_of(table, record))["value"])
            if known is None:
                break
            if known in names:
                clashes.append(describe(known))
    if clashes:
        told = "; ".join(clashes[:_MOST])
        more = f"; and {len(clashes) - _MOST} more" if len(clashes) > _MOST else ""
        raise StoreError(f"{records.path.parent} has these already: {told}{more}")


def _lines(file: Path) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Every record of a file: its line, its table, its fields. Raises `StoreError`, `OSError`."""
    opener = gzip.open if file.suffix == ".gz" else open
    place = count = 0
    ended = False
    try:
        with opener(file, "rt", encoding="utf-8") as lines:
            for place, line in enumerate(lines, 1):
                fields = json.loads(line)
                if not isinstance(fields, dict):
                    raise StoreError("that is no record")
                if place == 1:
                    _check_header(fields)
                elif END in fields:
                    ended = fields[END] == count
                    break
                else:
                    table = TABLES.get(str(fields.get("table")))
                    if table is None:
                        raise StoreError(f"unknown table {str(fields.get('table'))[:40]!r}")
                    count += 1
                    yield place, table, fields
    except (StoreError, ValueError, EOFError) as error:
        raise StoreError(f"{file}:{place or 1}: {error}") from error
    if not ended:
        raise StoreError(f"{file}: the end is missing; {count} records are there")


def _check_header(fields: dict[str, object]) -> None:
    format = fields.get(HEADER)
    if not isinstance(format, int):
        raise StoreError("export has not written this")
    if format > FORMAT:
        version = fields.get("version")
        raise StoreError(
            f"the file has format {format}, this version of ferrymq knows {FORMAT} and older "
            f"ones: import it with ferrymq {version} or newer"
        )
