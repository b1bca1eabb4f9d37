"""The command: run the scenarios, print a table, and report whether one exceeds the bound."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import hatch_build
from bench.machine import machine
from bench.standstill.ground import ground, raise_file_limit
from bench.standstill.passes import build_library
from bench.standstill.scenarios import SCENARIOS, Scenario
from bench.tree import ROOT, Trees

# The width of a table that is written to a file.
FILE_WIDTH: Final = 110
# The longest allowed block of other clients by one client, in ms of the broker's processor time.
BOUND: Final = 20.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m bench.standstill",
        description="Measure how long one client may stop all others. The exit status is 1 if one "
        f"scenario keeps the broker busy for more than {BOUND:g} ms in one piece, or fails.",
    )
    made.add_argument("words", nargs="*", metavar="WORD", help="only scenarios with all of these")
    made.add_argument("--list", action="store_true", help="print the names, measure nothing")
    made.add_argument("--shrink", type=int, default=1, metavar="N", help="divide all sizes by N")
    made.add_argument("--json", metavar="FILE", help="write the results to FILE, - for stdout")
    made.add_argument("--broker", metavar="PATH", help="import the broker from this tree instead")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parser().parse_args(argv)
    chosen = [one for one in SCENARIOS if all(word in one.name for word in arguments.words)]
    if not chosen:
        parser().error(f"no scenario has all of these words: {' '.join(arguments.words)}")
    if arguments.list:
        for scenario in chosen:
            print(scenario.name)
        return 0
    console = Console(stderr=arguments.json == "-")
    if not console.is_terminal:
        console.width = FILE_WIDTH
    raise_file_limit()
    try:
        trees = Trees(pure=False, loops=False)
    except hatch_build.BuildError as error:
        console.print(str(error), style="bold red", markup=False, highlight=False)
        return 1
    trees.loops = [*trees.broker, str(ROOT)]
    if arguments.broker is not None:
        trees.broker = [arguments.broker]
    rows = [measure(trees, scenario, arguments.shrink, console) for scenario in chosen]
    run = {"bound": BOUND, "shrink": arguments.shrink, "machine": machine(), "rows": rows}
    show(console, rows)
    if arguments.json == "-":
        print(json.dumps(run, indent=1))
    elif arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(run, indent=1) + "\n", "utf-8")
    return 0 if all(row["met"] for row in rows) else 1


def measure(trees: Trees, scenario: Scenario, shrink: int, console: Console) -> dict[str, Any]:
    """Run one scenario with its own broker, and return its row."""
    console.print(f"measuring: {scenario.name}", style="dim", highlight=False)
    # The folder of temporary files may be in memory, and some scenarios have a store.
    (ROOT / "build").mkdir(exist_ok=True)
    row: dict[str, Any] = {"scenario": scenario.name, "met": False}
    with tempfile.TemporaryDirectory(prefix="standstill-", dir=ROOT / "build") as name:
        folder = Path(name)
        library = build_library(folder)
        try:
            with ground(
                trees,
                scenario.configuration,
                durable=scenario.durable,
                library=library,
                shrink=shrink,
                folder=folder,
            ) as made:
                scenario.run(made)
                found = made.finish()
        except (OSError, RuntimeError) as error:
            row["failure"] = f"{type(error).__name__}: {error}"
            return row
    measured = found["pass"] if library is not None else found["witness"]
    row.update(
        {
            "pass-ms": round(found["pass"] * 1000, 2) if library is not None else None,
            "passes": int(found["passes"]),
            "passes-over-bound": int(found["long-passes"]),
            "witness-ms": round(found["witness"] * 1000, 2),
            "silence-ms": round(found["silence"] * 1000, 2),
            "messages": int(found["messages"]),
            "met": measured * 1000 <= BOUND,
        }
    )
    return row


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    table = Table(title="milliseconds; pass and witness in processor time of the broker")
    table.add_column("scenario")
    for name in ("longest pass", "over 20 ms", "witness", "silence by the clock"):
        table.add_column(name, justify="right")
    for row in rows:
        if "failure" in row:
            table.add_row(row["scenario"], row["failure"], style="bold red")
            continue
        table.add_row(
            row["scenario"],
            "-" if row["pass-ms"] is None else f"{row['pass-ms']:.1f}",
            str(row["passes-over-bound"]),
            f"{row['witness-ms']:.1f}",
            f"{row['silence-ms']:.1f}",
            style="" if row["met"] else "bold red",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
