"""AMQP 0-9-1 beside another broker: the same load, by a client on librabbitmq.

`bench/peers/load_0_9_1.c` has a producer and a consumer on one queue. In each round every broker
has a turn with each case; a ratio is the median of the ratios of the rounds. ferrymq has a store,
so that the durable case waits for its disk as the other broker's does.

The client shares the machine, so the processor time that the broker and the client use for a
message is measured, too; and some cases keep the broker on one processor and the client on another.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from bench.machine import apart, processor_seconds, versions
from bench.process import broker, listening_process
from bench.results import Comparison, Figure, Report
from bench.tree import ROOT, Trees

SOURCE: Final = ROOT / "bench" / "peers" / "load_0_9_1.c"
RATE: Final = "messages/s"
TIME: Final = "µs"
COST: Final = "µs/message"
OURS: Final = "ferrymq"
# What the project demands: so many times the rate of the other broker, and this part of its
# latency for transient messages.
AT_LEAST: Final = 5.0
AT_MOST: Final = 0.5
_LIMIT: Final = 300.0

CONFIGURATION: Final = '[personality]\nname = "rabbitmq"\n\n[store]\npath = "{store}"\n'


class Case(NamedTuple):
    """A load: its mode and its calls, as the tool has them, the bytes of a body, and how many
    messages a round has. `apart` is whether broker and client are on different processors."""

    name: str
    mode: str
    calls: str
    size: int
    messages: int
    apart: bool = False

    @property
    def demanded(self) -> bool:
        """Whether the project demands a ratio."""
        return not self.apart and (self.calls == "burst" or self.mode == "latency")


CASES: Final = (
    Case("100 B, automatic acknowledgement, no confirms", "fast", "burst", 100, 300_000),
    Case("100 B, confirms, acknowledgements, prefetch 500", "confirmed", "burst", 100, 200_000),
    Case("1 KiB, persistent, confirms after the sync", "durable", "burst", 1024, 50_000),
    Case("100 B, one message in flight", "latency", "single", 100, 20_000),
    Case("100 B, no confirms, one by one", "fast", "single", 100, 200_000),
    Case("100 B, confirms, one by one", "confirmed", "single", 100, 100_000),
    Case("1 KiB, persistent, one by one", "durable", "single", 1024, 30_000),
    Case("100 B, no confirms, apart", "fast", "burst", 100, 300_000, True),
    Case("100 B, confirms, apart", "confirmed", "burst", 100, 200_000, True),
    Case("1 KiB, persistent, apart", "durable", "burst", 1024, 50_000, True),
    Case("100 B, one in flight, apart", "latency", "single", 100, 20_000, True),
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


class _Turns:
    """The results of one broker in a case, one value for each round."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.tails: list[float] = []
        self.costs: list[float] = []
        self.client_costs: list[float] = []

    def add(self, told: dict[str, float], cost: float, count: int) -> None:
        """Add a turn: what the tool has printed, and the processor time of the broker."""
        if "median" in told:
            self.values.append(told["median"])
            self.tails.append(told["p99"])
        else:
            self.values.append(count / told["seconds"])
        self.costs.append(cost / count * 1e6)
        self.client_costs.append(told["processor"] / count * 1e6)


def _measure(
    report: Report, program: Path, ports: dict[str, int], case: Case, rounds: int, count: int
) -> None:
    found = {name: _Turns() for name in ports}
    bare, of_bare = [], []
    for _ in range(rounds):
        if case.mode == "latency" and not case.apart:
            told = _run(program, 0, case._replace(mode="bare"), count)
            bare.append(told["median"])
            of_bare.append(told["relay"] / count * 1e6)
        for name, port in ports.items():
            pid = listening_process(port)
            with apart([pid]) if case.apart else nullcontext():
                before = processor_seconds(pid)
                told = _run(program, port, case, count)
                found[name].add(told, processor_seconds(pid) - before, count)
    unit = TIME if case.mode == "latency" else RATE
    for name, turns in found.items():
        report.figures.append(Figure(case.name, name, unit, turns.values))
        if case.mode == "latency":
            tail = f"{name}, 99th percentile"
            report.figures.append(Figure(case.name, tail, unit, turns.tails))
    if bare:
        report.figures.append(Figure(case.name, "bare relay", unit, bare))
    for name, turns in found.items():
        report.figures.append(Figure(case.name, name, COST, turns.costs))
        report.figures.append(Figure(case.name, f"client of {name}", COST, turns.client_costs))
    if bare:
        report.figures.append(Figure(case.name, "bare relay", COST, of_bare))
        report.comparisons.append(
            Comparison(
                case.name,
                f"processor time of {OURS}",
                "of the bare relay",
                _ratio(found[OURS].costs, of_bare),
            )
        )
    if case.mode != "latency":
        report.notes.append(_busy(case, found))
    ours = found[OURS]
    for name, theirs in found.items():
        if name == OURS:
            continue
        speed = Comparison(case.name, OURS, name, _ratio(ours.values, theirs.values))
        if case.demanded and case.mode == "latency":
            speed.at_most = AT_MOST
        elif case.demanded:
            speed.at_least = AT_LEAST
        cost = _ratio(ours.costs, theirs.costs)
        report.comparisons.append(speed)
        report.comparisons.append(
            Comparison(case.name, f"processor time of {OURS}", f"of {name}", cost)
        )


def _busy(case: Case, found: dict[str, _Turns]) -> str:
    """Return how many processors a broker and its client used, which says what limits the rate."""
    shares = []
    for name, turns in found.items():
        rate = statistics.median(turns.values) / 1e6
        of_broker = rate * statistics.median(turns.costs)
        of_client = rate * statistics.median(turns.client_costs)
        shares.append(f"{name} {of_broker:.2f}, its client {of_client:.2f}")
    return f"Processors used in “{case.name}”: {'; '.join(shares)}."


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _run(program: Path, port: int, case: Case, count: int) -> dict[str, float]:
    command = [str(program), "127.0.0.1", str(port), str(count), str(case.size)]
    done = subprocess.run(
        [*command, case.mode, case.calls], capture_output=True, text=True, timeout=_LIMIT
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load on port {port} failed: {done.stderr}")
    told: dict[str, float] = json.loads(done.stdout)
    return told
