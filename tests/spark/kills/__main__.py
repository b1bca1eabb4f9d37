"""Kill the processes of a query of Spark, again and again, and see that each record is copied once.

python -m tests.spark.kills run --kills 200                         # all kinds of victims
python -m tests.spark.kills run --kills 50 --victims broker leader  # brokers only
python -m tests.spark.kills run --kills 1 --victims driver-within-batch --without fences
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.spark.kills.campaign import run
from tests.spark.kills.victims import VICTIMS
from tests.support.postgresql import find_programs


def main() -> int:
    """Run the command line; the status is 1 if the ledger has found something."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="kill, drain, and judge")
    one.add_argument("--kills", type=int, default=50)
    one.add_argument("--seed", type=int, help="what is killed when")
    one.add_argument("--victims", nargs="+", choices=VICTIMS, default=list(VICTIMS))
    one.add_argument("--workers", type=int, default=2, help="of the cluster")
    one.add_argument(
        "--without", choices=["fences", "brokers"], default="", help="a query that has to fail"
    )
    one.add_argument("--folder", type=Path, help="where logs, stores and the checkpoint go")
    one.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    if find_programs() is None:
        parser.error("PostgreSQL is not installed: there is no initdb")
    seed = secrets.randbits(32) if given.seed is None else given.seed
    folder = given.folder or Path(tempfile.mkdtemp(prefix="ferrymq-kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"seed {seed}, in {folder}\n")
    began = time.monotonic()

    def tell(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s: {line}\n")

    report = run(folder, seed, given.kills, given.victims, tell, given.workers, given.without)
    if given.json:
        sys.stdout.write(json.dumps(report.summary(), indent=2) + "\n")
    else:
        sys.stdout.write(report.describe() + "\n")
    return 1 if report.violations else 0


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
