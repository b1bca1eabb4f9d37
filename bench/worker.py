"""A process that measures one part and prints its report as JSON; `bench.cli` starts it.

A separate process is needed because its first imports decide which variant of ferrymq it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from bench.measure import Effort
from bench.parts import codec, latency, memory
from bench.results import Report


def main(argv: list[str] | None = None) -> int:
    """Run `python -m bench.worker codec|latency|memory` and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.worker", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    of_codec = parts.add_parser("codec")
    of_codec.add_argument("--seconds", type=float, required=True)
    of_latency = parts.add_parser("latency")
    of_latency.add_argument("--count", type=int, required=True, help="pings in a round")
    of_latency.add_argument("--pause", type=float, required=True, help="ms, for the slow cases")
    of_latency.add_argument("--cpu", type=int, required=True, help="the processor to run on")
    of_latency.add_argument("--echo", type=int, required=True, metavar="PORT")
    of_latency.add_argument("--broker", action="append", required=True, metavar="NAME=PORT")
    of_memory = parts.add_parser("memory")
    of_memory.add_argument("--case", choices=list(memory.CASES), required=True)
    of_memory.add_argument("--port", type=int, required=True)
    of_memory.add_argument("--pid", type=int, required=True)
    of_memory.add_argument("--monitoring", required=True, metavar="URL", help="may be empty")
    of_memory.add_argument("--shrink", type=int, required=True, help="divisor of the size")
    for part in (of_codec, of_latency):
        part.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args(argv)
    if arguments.part == "codec":
        report = codec.measure(Effort(arguments.rounds, arguments.seconds))
    elif arguments.part == "memory":
        report = memory.measure(
            arguments.case, arguments.port, arguments.pid, arguments.monitoring, arguments.shrink
        )
    else:
        report = _latency(arguments)
    json.dump(report.to_json(), sys.stdout)
    print()
    return 0


def _latency(arguments: argparse.Namespace) -> Report:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {arguments.cpu})
    brokers = {name: int(port) for name, _, port in (b.partition("=") for b in arguments.broker)}
    pause_ms: float = arguments.pause
    return latency.measure(
        brokers,
        arguments.echo,
        rounds=arguments.rounds,
        count=arguments.count,
        pauses={"back to back": 0.0, f"{pause_ms:g} ms apart": pause_ms / 1000},
    )


if __name__ == "__main__":
    sys.exit(main())
