"""The cases on all brokers that are here, and the page that their results make.

python -m tests.interop.brokers run [BROKER ...] [--case NAME ...]
python -m tests.interop.brokers --markdown

`run` writes build/foreign/results.json, and keeps there what it has of other brokers. `--markdown`
writes docs/known-brokers.md from it.
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
from tests.interop.brokers.sites import KNOWN, ROOT

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
        cases: dict[str, Any] = {}
        with known.start(key, QUEUES, STREAMS) as site:
            print(f"{known.title}, {site.version}: started in {time.monotonic() - start:.1f} s")
            for case in CASES:
                if not case.on(key) or (names and case.name not in names):
                    continue
                result = play(case, site)
                verdict = judge(key, case.name, result.error)
                unexpected += verdict == "unexpected"
                cases[case.name] = {
                    "verdict": verdict,
                    "error": result.error,
                    "note": result.note,
                }
                text = f"{result.error}{result.note}"
                print(f"{result.seconds:6.2f} {verdict:10} {case.name}  {text}")
                sys.stdout.flush()
            version = site.version
        print(f"{known.title}: {time.monotonic() - start:.1f} s")
        if not names:
            date = datetime.now(UTC).date().isoformat()
            results[key] = {"version": version, "date": date, "cases": cases}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
    return unexpected


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.interop.brokers", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    commands = parser.add_subparsers(dest="command")
    running = commands.add_parser("run", help="run the cases")
    running.add_argument("brokers", nargs="*", metavar="BROKER", help=", ".join(KNOWN))
    running.add_argument("--case", action="append", default=[], help="only this one; no results")
    arguments = parser.parse_args()
    # What a worker logs about its handler belongs to the case.
    logging.getLogger("ferrymq").setLevel(logging.CRITICAL)
    status = 0
    if arguments.command == "run":
        status = 1 if run(arguments.brokers, arguments.case) else 0
    if arguments.markdown:
        if not RESULTS.exists():
            parser.error("there are no results: run the cases first")
        PAGE.write_text(write(json.loads(RESULTS.read_text("utf-8"))), "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
