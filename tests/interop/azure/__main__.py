"""Azure's SDKs on the broker, feature by feature, and the page that the results make.

python -m tests.interop.azure run [--client CLIENT ...] [--case NAME ...]
python -m tests.interop.azure page

`run` writes tests/interop/azure/results.json, and keeps there what it has of other clients; with
`--case` it writes nothing. `page` writes docs/broker/azure-compatibility.md from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

from tests.interop.azure.clients import CLIENTS, Client, Runner
from tests.interop.azure.expectations import judge
from tests.interop.azure.page import PAGE, RESULTS, write


def run(client: Client, names: list[str]) -> tuple[dict[str, Any], int]:
    """Try the features with a client, and print what comes of each.

    Return the results by feature, and the number of those that are not as expected.
    """
    found: dict[str, Any] = {}
    unexpected = 0
    start = time.monotonic()
    print(client.title, flush=True)
    with Runner(client) as runner:
        for feature in client.features:
            if names and feature.name not in names:
                continue
            outcome = runner.play(feature)
            surprise = judge(client, feature.name, outcome)
            unexpected += bool(surprise)
            mark = "unexpected" if surprise else ""
            text = f"{outcome.seconds:6.2f} {outcome.verdict:7} {feature.name:24} {mark:10}"
            print(f"{text} {surprise or outcome.error}".rstrip(), flush=True)
            found[feature.name] = {"verdict": outcome.verdict, "error": outcome.error}
    print(f"{client.title}: {time.monotonic() - start:.1f} s", flush=True)
    return found, unexpected


def _read() -> dict[str, Any]:
    """Return the results that there are, by client."""
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return found


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.interop.azure", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="try the features")
    running.add_argument("--client", action="append", default=[], choices=list(CLIENTS))
    running.add_argument("--case", action="append", default=[], help="only this; no results")
    commands.add_parser("page", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.command == "page":
        PAGE.write_text(write(_read()), "utf-8")
        return 0
    unexpected = 0
    for key in arguments.client or list(CLIENTS):
        client = CLIENTS[key]
        if reason := client.missing():
            print(f"{client.title}: left out, {reason}")
            continue
        found, more = run(client, arguments.case)
        unexpected += more
        if not arguments.case:
            date = datetime.now(UTC).date().isoformat()
            # Another run may have written results of other clients in the meantime.
            results = _read()
            results[key] = {"version": client.version, "date": date, "cases": found}
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
