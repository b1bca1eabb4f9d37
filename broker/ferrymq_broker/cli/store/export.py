"""``ferrymq store export``: writing all records of a store as lines of JSON."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from ferrymq import __version__
from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.store.json_lines import FORMAT, line_of
from ferrymq_broker.cli.store.offline_store import Directory, opened
from ferrymq_broker.store.tables import NAMES

_INSTEAD: Final = "ferrymq store backup --url URL TARGET, then this for TARGET"
HEADER: Final = "ferrymq-export"
END: Final = "end"


def export(
    directory: Directory,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The file; compressed if it ends with .gz; - is standard output."
        ),
    ] = Path("-"),
    as_json: Json = False,
) -> None:
    """Write all records of a store as lines of JSON, for `import`. No broker may use the store."""
    counts: Counter[str] = Counter()
    with (
        opened(directory, _INSTEAD) as store,
        RunProgress("exporting", None) as progress,
        _output(file) as output,
    ):
        version = __version__
        output.write(json.dumps({HEADER: FORMAT, "version": version}) + "\n")
        for table, name in NAMES.items():
            for record in store.scan(table):
                output.write(line_of(table, record) + "\n")
                counts[name] += 1
                progress.advance()
        output.write(json.dumps({END: counts.total()}) + "\n")
    report = sys.stderr if str(file) == "-" else sys.stdout
    if as_json:
        found = {"store": str(directory), "file": str(file), "records": dict(counts)}
        report.write(json.dumps(found) + "\n")
    else:
        report.write(f"{counts.total()} records of {directory} written to {file}\n")


@contextmanager
def _output(file: Path) -> Iterator[IO[str]]:
    """Yield an output that becomes the file when everything has been written."""
    if str(file) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    part = file.with_name(f"{file.name}.part")
    try:
        # Only the owner may read the file, because messages may be secret.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as raw:
            if file.suffix == ".gz":
                with gzip.open(raw, "wt", encoding="utf-8", compresslevel=6) as output:
                    yield output
            else:
                with open(raw.fileno(), "w", encoding="utf-8", closefd=False) as output:
                    yield output
            raw.flush()
            os.fsync(raw.fileno())
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)
