"""AMQP 0-9-1 beside another broker: the same load, by a client on librabbitmq.

`bench/peers/load_0_9_1.c` has a producer and a consumer on one queue. In each round every broker
has a turn with each case; the ratio is that of one round. ferrymq has a store, so that the durable
case waits for its disk as the other broker's does.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from bench.machine import versions
from bench.process import broker
from bench.results import Comparison, Figure, Report
from bench.tree import ROOT, Trees

SOURCE: Final = ROOT / "bench" / "peers" / "load_0_9_1.c"
RATE: Final = "messages/s"
TIME: Final = "µs"
OURS: Final = "ferrymq"
# What the project demands: so many times the rate of the other broker, and this part of its
# latency for transient messages.
AT_LEAST: Final = 5.0
AT_MOST: Final = 0.5
_LIMIT: Final = 300.0

CONFIGURATION: Final = '[personality]\nname = "rabbitmq"\n\n[store]\npath = "{store}"\n'


class Case(NamedTuple):
    """A load: its mode, the bytes of a body, and how many messages a round has."""

    name: str
    mode: str
    size: int
    messages: int


CASES: Final = (
    Case("100 B, automatic acknowledgement, no confirms", "fast", 100, 200_000),
    Case("100 B, confirms, acknowledgements, prefetch 500", "confirmed", 100, 100_000),
    Case("1 KiB, persistent, confirms after the sync, prefetch 500", "durable", 1024, 50_000),
    Case("100 B, one message in flight", "latency", 100, 5_000),
)


def compile_load(folder: Path) -> Path:
    """Return the load tool, compiled into a folder. Raises `RuntimeError` if that is impossible."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("the part amqp-0-9-1 needs a C compiler")
    program = folder / "load_0_9_1"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(SOURCE), "-lrabbitmq", "-lpthread"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the part amqp-0-9-1 needs librabbitmq-dev:\n{done.stderr}")
    return program


def measure(
    trees: Trees, folder: Path, peers: dict[str, int], rounds: int, shrink: int = 1
) -> Report:
    """Measure ferrymq and the `peers`, brokers by their names, on these ports of 127.0.0.1.

    Files are written to `folder`; there are `shrink` times fewer messages.
    """
    report = Report("amqp-0-9-1", options={"rounds": rounds})
    program = compile_load(folder)
    config = folder / "broker.toml"
    config.write_text(CONFIGURATION.format(store=folder / "store"), "utf-8")
    with broker(trees, config) as server:
        ports = {OURS: server.port, **peers}
        for case in CASES:
            _measure(report, program, ports, case, rounds, max(1, case.messages // shrink))
    report.build = {"broker": trees.broker_variant(), **versions()}
    return report


def _measure(
    report: Report, program: Path, ports: dict[str, int], case: Case, rounds: int, count: int
) -> None:
    found: dict[str, list[float]] = {name: [] for name in ports}
    tails: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(rounds):
        for name, port in ports.items():
            told = _run(program, port, case, count)
            if case.mode == "latency":
                found[name].append(told["median"])
                tails[name].append(told["p99"])
            else:
                found[name].append(count / told["seconds"])
    unit = TIME if case.mode == "latency" else RATE
    for name, values in found.items():
        report.figures.append(Figure(case.name, name, unit, values))
        if case.mode == "latency":
            report.figures.append(Figure(f"{case.name}, 99th percentile", name, TIME, tails[name]))
    for name in ports:
        if name == OURS:
            continue
        ratio = statistics.median(
            ours / theirs for ours, theirs in zip(found[OURS], found[name], strict=True)
        )
        demand = (
            Comparison(case.name, OURS, name, ratio, at_most=AT_MOST)
            if case.mode == "latency"
            else Comparison(case.name, OURS, name, ratio, at_least=AT_LEAST)
        )
        report.comparisons.append(demand)


def _run(program: Path, port: int, case: Case, count: int) -> dict[str, float]:
    done = subprocess.run(
        [str(program), "127.0.0.1", str(port), str(count), str(case.size), case.mode],
        capture_output=True,
        text=True,
        timeout=_LIMIT,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load on port {port} failed: {done.stderr}")
    told: dict[str, float] = json.loads(done.stdout)
    return told
