"""``ferrymq store verify`` and ``ferrymq store info``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from ferrymq_broker.cli.admin.tables import print_entity
from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.store.integrity import Contents, check
from ferrymq_broker.cli.store.offline_store import Directory, locked
from ferrymq_broker.config.units import format_size
from ferrymq_broker.store.format_file import CLEAN_NAME, read_format
from ferrymq_broker.store.lmdb_records import DATA_NAME
from ferrymq_broker.store.segments import JOURNAL_PREFIX, SPARE_PREFIX

_INSTEAD = "ferrymq store backup --url URL TARGET, then this for TARGET"
_INFO_INSTEAD = "ferrymq admin show store store"


def verify(directory: Directory, as_json: Json = False) -> None:
    """Check every record and every frame of a store, without changes. No broker may use the store.

    Exits with status 1 if anything is damaged.
    """
    contents = _look(directory, _INSTEAD)
    if as_json:
        report = {
            "store": str(directory),
            "good": not contents.found,
            "records": sum(contents.records.values()),
            "batches": contents.batches,
            "found": contents.found,
            "findings": [finding._asdict() for finding in contents.findings],
        }
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    else:
        for file, reason in contents.findings:
            sys.stdout.write(reason if reason.startswith(file) else f"{file}: {reason}")
            sys.stdout.write("\n")
        if contents.found > len(contents.findings):
            sys.stdout.write(f"and {contents.found - len(contents.findings)} more\n")
        count = sum(contents.records.values())
        state = f"{contents.found} damaged" if contents.found else "good"
        sys.stdout.write(
            f"{directory}: {state}; {count} records, {contents.batches} batches in the journal\n"
        )
    if contents.found:
        raise typer.Exit(1)


def info(directory: Directory, as_json: Json = False) -> None:
    """Show the contents of a store and their size. No broker may use the store.

    Exits with status 1 if anything is damaged.
    """
    contents = _look(directory, _INFO_INSTEAD)
    known = _facts(directory, contents)
    if as_json:
        sys.stdout.write(json.dumps(known, ensure_ascii=False) + "\n")
    else:
        print_entity(
            {
                key: (
                    format_size(value)
                    if key.endswith("bytes") and isinstance(value, int)
                    else value
                )
                for key, value in known.items()
            }
        )
    if contents.found:
        raise typer.Exit(1)


def _look(directory: Path, instead: str) -> Contents:
    with locked(directory, instead) as folder, RunProgress("reading", None) as progress:
        return check(folder, progress.reach)


def _facts(directory: Path, contents: Contents) -> dict[str, object]:
    with locked(directory, _INFO_INSTEAD) as folder:
        format = read_format(folder)
        sizes = {file.name: file.stat().st_size for file in directory.iterdir() if file.is_file()}
    journal = [name for name in sizes if name.startswith(JOURNAL_PREFIX)]
    spares = [name for name in sizes if name.startswith(SPARE_PREFIX)]
    return {
        "store": str(directory),
        "format": None if format is None else format.version,
        "closed": CLEAN_NAME in sizes,
        "damaged": contents.found,
        "last-batch": contents.last,
        "applied-batch": contents.applied,
        "batches": contents.batches,
        "changes": contents.changes,
        "bytes": sum(sizes.values()),
        "records-bytes": sizes.get(DATA_NAME, 0),
        "journal-bytes": sum(sizes[name] for name in journal),
        "spare-bytes": sum(sizes[name] for name in spares),
        "records": dict(sorted(contents.records.items())),
    }
