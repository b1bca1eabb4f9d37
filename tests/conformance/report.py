"""What the ledger says without running anything: counts, and the clauses nothing proves yet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from tests.conformance.ledger import LEVELS, Clause, Ledger, Standing


def select(
    ledger: Ledger, *, everything: bool, levels: Iterable[str], section: str
) -> list[Clause]:
    """The clauses to report: open ones unless `everything`, of `levels`, under `section`."""
    wanted = set(levels)
    return [
        clause
        for clause in ledger.clauses
        if (everything or clause.standing is Standing.OPEN)
        and (not wanted or clause.level in wanted)
        and (not section or f"{clause.section}.".startswith(f"{section}."))
    ]


def as_json(ledger: Ledger, clauses: list[Clause]) -> str:
    """The report as one JSON object: `counts` by level and standing, and `clauses`."""
    return json.dumps(
        {
            "counts": {
                level: {str(standing): count for standing, count in sorted(row.items())}
                for level, row in _counts(ledger).items()
            },
            "clauses": [
                {
                    "id": clause.id,
                    "level": clause.level,
                    "binds": clause.binds,
                    "text": clause.text,
                    "standing": clause.standing,
                    "tests": list(clause.tests),
                    "why_not": clause.why_not or None,
                    "not_kept": clause.not_kept or None,
                    "instead": list(clause.instead),
                }
                for clause in clauses
            ],
        },
        indent=2,
        ensure_ascii=False,
    )


def show(console: Console, ledger: Ledger, clauses: list[Clause]) -> None:
    """The report as two tables: the clauses, then the counts."""
    listing = Table(title="Clauses", expand=True)
    for name in ("clause", "level", "binds"):
        listing.add_column(name, no_wrap=True)
    listing.add_column("rule", ratio=1)
    listing.add_column("standing", no_wrap=True)
    for clause in clauses:
        listing.add_row(clause.id, clause.level, clause.binds, clause.text, clause.standing)
    console.print(listing)
    counts = Table(title="Counts")
    counts.add_column("level")
    for standing in Standing:
        counts.add_column(standing, justify="right")
    for level, row in _counts(ledger).items():
        counts.add_row(level, *(str(row[standing]) for standing in Standing))
    console.print(counts)


def _counts(ledger: Ledger) -> dict[str, Counter[Standing]]:
    return {
        level: Counter(clause.standing for clause in ledger.clauses if clause.level == level)
        for level in LEVELS
    }
