"""``python -m tests.spark.cluster``: a job submitted in each way, to a cluster of two workers."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.spark.cluster.standalone import Standalone
from tests.spark.cluster.trying import tried
from tests.spark.cluster.ways import WAYS


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m tests.spark.cluster", description=__doc__)
    made.add_argument("ways", nargs="*", metavar="WAY", help=f"{', '.join(WAYS)}; default: all")
    chosen = made.parse_args().ways or list(WAYS)
    failed = 0
    with tempfile.TemporaryDirectory() as name, Standalone(Path(name)) as cluster:
        for way in chosen:
            folder = Path(name, way)
            folder.mkdir()
            began = time.monotonic()
            try:
                said = tried(cluster, WAYS[way](folder), folder)
            except AssertionError as error:
                failed += 1
                said = f"FAILED\n{error}"
            print(f"{way}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
