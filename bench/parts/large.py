"""Large messages through a queue: what a MiB costs the broker."""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.machine import processor_seconds, versions
from bench.parts.broker import OURS, LoadFailed, run_load
from bench.process import broker
from bench.results import Figure, Report
from bench.tree import Trees, variant_on

COST: Final = "ms/MiB"
RATE: Final = "MiB/s"
# The processor time that a MiB may cost the broker.
DEMAND: Final = 0.9


class Case(NamedTuple):
    """Messages of this many MiB, of which so many may be without an outcome."""

    size: int
    in_flight: int

    @property
    def name(self) -> str:
        """The name of the case."""
        return f"{self.size} MiB, unsettled, {self.in_flight} in flight"


CASES: Final = (Case(1, 8), Case(15, 2), Case(60, 1))


def measure(trees: Trees, *, rounds: int, amount: int) -> Report:
    """Measure each size with `amount` MiB in each round, after as many to warm up."""
    report = Report("large", options={"rounds": rounds, "MiB in a round": amount})
    for case in CASES:
        count = max(2, amount // case.size)
        costs: list[float] = []
        rates: list[float] = []
        arguments = [
            f"--count={count}",
            "--warm-up=1",
            f"--size={case.size << 20}",
            f"--in-flight={case.in_flight}",
            f"--credit={case.in_flight}",
        ]
        with broker(trees) as server:
            try:
                for turn in range(-1, rounds):
                    before = processor_seconds(server.pid)
                    told = run_load(trees, [f"--url=amqp://127.0.0.1:{server.port}", *arguments])
                    used = processor_seconds(server.pid) - before
                    if turn >= 0:
                        costs.append(1e3 * used / (case.size * (count + 1)))
                        rates.append(case.size * told["rate"])
            except LoadFailed as error:
                report.failures.append(f"{case.name}: {error}")
                continue
        report.figures.append(Figure(case.name, f"{OURS}, processor time", COST, costs, DEMAND))
        report.figures.append(Figure(case.name, OURS, RATE, rates))
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report
