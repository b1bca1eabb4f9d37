"""Differences as a table for people and as JSON for programs."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codegen.diff import Change


def as_json(changes: list[Change]) -> str:
    """An object with `breaking` (how many), and `changes` (every field of each `Change`)."""
    return json.dumps(
        {
            "breaking": sum(change.breaking for change in changes),
            "changes": [change.as_dict() for change in changes],
        },
        indent=2,
        ensure_ascii=False,
    )


def as_table(changes: list[Change]) -> None:
    """Print a table, and one line that sums it up."""
    console = Console()
    if changes:
        table = Table("where", "what", "old", "new", "effect")
        for change in changes:
            effect = "breaking" if change.breaking else "compatible"
            row = [change.where, change.what, change.old, change.new, effect]
            table.add_row(*map(Text, row))
        console.print(table)
    breaking = sum(change.breaking for change in changes)
    console.print(f"{len(changes)} differences, {breaking} breaking", highlight=False)
