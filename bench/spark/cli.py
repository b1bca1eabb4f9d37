"""The command `python -m bench.spark`: the parts to measure, and the destination of results."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.cli import FORMAT, carry_out, folder_on_disk
from bench.machine import load, machine
from bench.results import Report
from bench.spark.parts import FULL_SIZES, PARTS, SIZES
from bench.tree import ROOT, Trees, command, environment

ROWS: Final = 1_000_000
ROUNDS: Final = 3


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m bench.spark", description="Measure streams in and out of PySpark."
    )
    made.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    made.add_argument("--quick", action="store_true", help="a short run with rough figures")
    made.add_argument(
        "--full", action="store_true", help="also a stream of 10 000 000 records, 15 GB on disk"
    )
    made.add_argument("--rows", type=int, help=f"records of a stream; default: {ROWS}")
    made.add_argument("--rounds", type=int, help=f"default: {ROUNDS}")
    made.add_argument("--pure", action="store_true", help="measure the interpreted modules")
    made.add_argument("--json", metavar="FILE", help="write the results to FILE, - for stdout")
    made.add_argument("--markdown", metavar="FILE", help="update the tables in a document")
    made.add_argument("--from", dest="source", metavar="FILE", help="show an earlier --json FILE")
    made.add_argument("--check", action="store_true", help="fail if a demanded figure is missed")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    return carry_out(parser(), argv, PARTS, measure)


def measure(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure the given parts and return the results in the form for JSON.

    Raises `RuntimeError` if the measuring process fails before its first part is measured.
    """
    trees = Trees(pure=arguments.pure, loops=False)
    for message in trees.messages:
        console.print(message, style="dim", highlight=False)
    where = machine()
    rows = arguments.rows or (100_000 if arguments.quick else ROWS)
    rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    sizes: tuple[int, ...] = FULL_SIZES if arguments.full else SIZES
    if arguments.quick:
        sizes = tuple(size // 10 for size in sizes)
    with folder_on_disk() as folder:
        out = Path(folder, "reports.json")
        options = [f"--rounds={rounds}", f"--rows={rows}", f"--folder={folder}", f"--out={out}"]
        options += ["--sizes", *(str(size) for size in sizes), "--"]
        done = subprocess.run(
            command("bench.spark.worker", *options, *(arguments.parts or PARTS)),
            env=environment([*trees.broker, str(ROOT)]),
            check=False,
        )
        reports = reports_of(out, done.returncode)
    if trees.pure or arguments.quick:
        for report in reports:
            report.drop_demands()
    where["load after"] = load()
    return {
        "format": FORMAT,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "quick": arguments.quick,
        "machine": where,
        "reports": [report.to_json() for report in reports],
    }


def reports_of(out: Path, status: int) -> list[Report]:
    """Return the reports that the measuring process has written. A status other than 0 is a failure
    of the last one.

    Raises `RuntimeError` if it has written none.
    """
    failure = f"the measuring process ended with status {status}"
    if not out.exists():
        raise RuntimeError(failure)
    reports = [Report.from_json(data) for data in json.loads(out.read_text("utf-8"))]
    if status:
        reports[-1].failures.append(failure)
    return reports
