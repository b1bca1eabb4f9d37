"""The policy `target-latency`: how long messages wait in a queue, and what that costs.

A producer is faster than its consumer (`bench.waits`). Two queues take turns: one with the policy,
one without limits. Without a limit the queue grows until the end of a turn, so the times of its
messages say only how long the turn was.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.machine import versions
from bench.parts.broker import MESSAGES, OURS, LoadFailed
from bench.process import Server, broker
from bench.results import Figure, Report
from bench.tree import Trees, command, environment, variant_on

TARGET: Final = 5
"""Milliseconds."""
RATES: Final = (10_000, 50_000)
"""Messages per second that the consumer takes."""
WITH: Final = f"{OURS}, target-latency {TARGET} ms"
WITHOUT: Final = f"{OURS}, without the policy"
AT_LEAST: Final = 0.9
_QUEUE: Final = """
[[queue]]
name = "{name}"
overflow = "block"
target-latency = "{target}ms"
"""


def measure(trees: Trees, *, rounds: int, seconds: float) -> Report:
    """Measure both queues at each rate, for so many seconds in each round."""
    report = Report("target-latency", options={"rounds": rounds, "seconds": seconds})
    names = [(rate, round) for rate in RATES for round in range(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "queues.toml")
        text = "".join(_QUEUE.format(name=f"short-{a}-{b}", target=TARGET) for a, b in names)
        config.write_text(text, "utf-8")
        for rate in RATES:
            with broker(trees, config) as server:
                _measure(report, trees, server, rate, rounds, seconds)
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "ferrymq.engine.connection"),
        **versions(),
    }
    return report


def _measure(
    report: Report, trees: Trees, server: Server, rate: int, rounds: int, seconds: float
) -> None:
    case = f"a consumer that takes {rate:,} messages/s".replace(",", " ")
    queues = {WITH: "short", WITHOUT: "long"}
    found: dict[tuple[str, str], list[float]] = {}
    for round in range(rounds):
        for name in list(queues)[:: -1 if round % 2 else 1]:
            try:
                told = _run(trees, server, f"{queues[name]}-{rate}-{round}", rate, seconds)
            except LoadFailed as error:
                report.failures.append(f"{case}, {name}: {error}")
                return
            for quantity, value in told.items():
                found.setdefault((name, quantity), []).append(value)
    for name in queues:
        report.figures.append(Figure(case, name, MESSAGES, found[name, "rate"]))
    for share in ("p50", "p99"):
        for name in queues:
            demand = float(TARGET) if (name, share) == (WITH, "p50") else None
            values = found[name, share]
            report.figures.append(Figure(f"{case}, {share}", name, "ms", values, demand=demand))
    report.compare(case, WITH, WITHOUT, unit=MESSAGES, at_least=AT_LEAST)


def _run(trees: Trees, server: Server, address: str, rate: int, seconds: float) -> dict[str, float]:
    done = subprocess.run(
        command(
            "bench.waits", f"--port={server.port}", f"--address={address}", f"--rate={rate}",
            f"--seconds={seconds}",
        ),
        env=environment(trees.loops), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise LoadFailed(done.stderr.strip() or f"exit status {done.returncode}")
    told: dict[str, float] = json.loads(done.stdout)
    return told
