"""`python -m tests.conformance check|report|run`: see README.md beside this file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from tests.conformance import page, report, results
from tests.conformance.ledger import LEVELS, ROOT, Ledger, LedgerError, Side, Standing, load
from tests.conformance.reach import Reach, reach_of
from tests.conformance.sides import unseen


def main(arguments: list[str] | None = None) -> int:
    """Run one command; exit 1 if the ledger is faulty or a MUST is unproved, 2 if pytest fails."""
    options = _parser().parse_args(arguments)
    try:
        ledger = load()
    except LedgerError as error:
        print(error, file=sys.stderr)
        return 1
    if options.command == "check":
        missing = [c for c in ledger.clauses if c.binding and c.standing is Standing.OPEN]
        for clause in missing:
            print(f"{clause.id} {clause.level}: neither tests nor a reason: {clause.text}")
        return 1 if missing else 0
    if options.command == "report":
        chosen = report.select(
            ledger, everything=options.all, levels=options.level, section=options.section
        )
        if options.unseen:
            missing = unseen(ledger, options.unseen, _reach(ledger))
            chosen = report.select(
                ledger, everything=True, levels=options.level, section=options.section
            )
            chosen = [clause for clause in chosen if clause in missing]
        if options.json:
            print(report.as_json(ledger, chosen))
        else:
            report.show(Console(), ledger, chosen)
        return 0
    try:
        found = results.run(ledger.tests, options.pytest)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    reach = _reach(ledger)
    options.out.write_text(page.render(ledger, found, reach), "utf-8")
    print(page.headline(ledger, found, reach))
    bad = {results.Result.FAILED, results.Result.SKIPPED, results.Result.OPEN}
    unproved = [c for c in ledger.clauses if c.binding and results.result_of(c, found) in bad]
    failed = [c for c in ledger.clauses if results.result_of(c, found) is results.Result.FAILED]
    for clause in dict.fromkeys(failed + unproved):
        print(f"{clause.id} {clause.level}: {results.result_of(clause, found)}: {clause.text}")
    return 1 if failed or unproved else 0


def _reach(ledger: Ledger) -> dict[str, Reach]:
    return {test: reach_of(test, ROOT) for test in ledger.tests}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="fail if a MUST has neither tests nor a reason")
    shown = commands.add_parser("report", help="list what is open")
    shown.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    shown.add_argument("--all", action="store_true", help="the proved clauses too")
    shown.add_argument("--level", action="append", default=[], choices=LEVELS)
    shown.add_argument(
        "--unseen",
        type=Side,
        choices=list(Side),
        help="clauses that bind this side and have tests, but none over the wire against it",
    )
    shown.add_argument("--section", default="", help="only this section and what is below it")
    runs = commands.add_parser("run", help="run the named tests and write the page")
    runs.add_argument("--out", type=Path, default=ROOT / "docs" / "conformance.md")
    runs.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
