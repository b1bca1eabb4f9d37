"""The cases on all brokers that are here, and the page that their results make.

python -m tests.interop.brokers run [BROKER ...] [--case NAME ...]
python -m tests.interop.brokers run --url URL [--queue PATTERN] [--case NAME ...]
python -m tests.interop.brokers --markdown

`run` writes build/foreign/results.json, and keeps there what it has of other brokers. `--markdown`
writes docs/known-brokers.md from it. With `--url` the cases run on a broker that runs already, and
every case that does not work is shown as unexpected.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

from tests.interop.brokers.cases import CASES, QUEUES, STREAMS, play
from tests.interop.brokers.expectations import judge
from tests.interop.brokers.page import PAGE, write
from tests.interop.brokers.sites import KNOWN, ROOT, RunningSite, Site

RESULTS = ROOT / "build/foreign/results.json"


def run(brokers: list[str], names: list[str]) -> int:
    """Run the cases, write the results, and return how many were not as expected."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    unexpected = 0
    for key in brokers or list(KNOWN):
        known = KNOWN[key]
        if reason := known.missing():
            print(f"{known.title}: left out, {reason}")
            continue
        start = time.monotonic()
        with known.start(key, QUEUES, STREAMS) as site:
            print(f"{known.title}, {site.version}: started in {time.monotonic() - start:.1f} s")
            cases = run_on(site, names)
        print(f"{known.title}: {time.monotonic() - start:.1f} s")
        unexpected += sum(case["verdict"] == "unexpected" for case in cases.values())
        if not names:
            date = datetime.now(UTC).date().isoformat()
            results[key] = {"version": site.version, "date": date, "cases": cases}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
    return unexpected


def run_on(site: Site, names: list[str]) -> dict[str, Any]:
    """Run the cases on a broker, print what came of them and return it, by case."""
    cases: dict[str, Any] = {}
    for case in CASES:
        if not case.on(site.key) or (names and case.name not in names):
            continue
        result = play(case, site)
        verdict = judge(site.key, case.name, result.error)
        cases[case.name] = {"verdict": verdict, "error": result.error, "note": result.note}
        text = f"{result.error}{result.note}"
        print(f"{result.seconds:6.2f} {verdict:10} {case.name}  {text}", flush=True)
    return cases


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.interop.brokers", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    commands = parser.add_subparsers(dest="command")
    running = commands.add_parser("run", help="run the cases")
    running.add_argument("brokers", nargs="*", metavar="BROKER", help=", ".join(KNOWN))
    running.add_argument("--case", action="append", default=[], help="only this one; no results")
    running.add_argument("--url", help="a broker that runs already; no results")
    running.add_argument("--queue", default="{}", help="its address of the queue {}: queue://{}")
    arguments = parser.parse_args()
    # What a worker logs about its handler belongs to the case.
    logging.getLogger("ferrymq").setLevel(logging.CRITICAL)
    status = 0
    if arguments.command == "run" and arguments.url:
        with RunningSite(arguments.url, arguments.queue) as site:
            cases = run_on(site, arguments.case)
        status = 1 if any(case["verdict"] == "unexpected" for case in cases.values()) else 0
    elif arguments.command == "run":
        status = 1 if run(arguments.brokers, arguments.case) else 0
    if arguments.markdown:
        if not RESULTS.exists():
            parser.error("there are no results: run the cases first")
        PAGE.write_text(write(json.loads(RESULTS.read_text("utf-8"))), "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
