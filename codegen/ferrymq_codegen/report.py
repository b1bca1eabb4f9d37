"""Differences as a table for people and as JSON for programs."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ferrymq_codegen.changes import Change


def _counts(changes: list[Change]) -> dict[str, int]:
    return {
        "old_reads_new": sum(bool(change.old_reads_new) for change in changes),
        "new_reads_old": sum(bool(change.new_reads_old) for change in changes),
        "source": sum(bool(change.source) for change in changes),
    }


def as_json(changes: list[Change]) -> str:
    """Return an object with `breaking` (the number of changes that break peers), the numbers for
    each direction and the source, and `changes` (every field of each `Change`)."""
    return json.dumps(
        {
            "breaking": sum(change.breaking for change in changes),
            **_counts(changes),
            "changes": [change.as_dict() for change in changes],
        },
        indent=2,
        ensure_ascii=False,
    )


def as_table(changes: list[Change]) -> None:
    """Print a table, and one line with the totals."""
    console = Console()
    if changes:
        table = Table("where", "what", "old", "new", "old reads new", "new reads old", "source")
        for change in changes:
            effects = (change.old_reads_new, change.new_reads_old, change.source)
            row = [change.where, change.what, change.old, change.new]
            table.add_row(*map(Text, row), *(Text(effect or "ok") for effect in effects))
        console.print(table)
    counts = _counts(changes)
    console.print(
        f"{len(changes)} differences: {counts['old_reads_new']} break old reads new, "
        f"{counts['new_reads_old']} break new reads old, {counts['source']} break the source",
        highlight=False,
        soft_wrap=True,
    )
