"""Messages at an even rate: how long they are on their way while the broker has much time to spare.

Brokers take turns. A client sends messages at even intervals, whether earlier ones have arrived or
not, and receives them. The time of a message begins when it is due, not when it is sent: if the
client or the broker stalls, the messages that are due meanwhile count, too. The client never
sleeps, so that its own waking up is not measured. It has one processor, and the brokers have
another: a broker that wakes up beside the client would wait until the system takes the processor
away from the client, for milliseconds.
"""

from __future__ import annotations

from typing import Any, Final

from bench.machine import apart, versions
from bench.parts.broker import OURS, RELAY, Candidate, Case, LoadFailed, run_client
from bench.results import Figure, Report
from bench.tree import Trees, variant_on

RATE: Final = 5_000
"""Messages per second."""
CASES: Final = (Case(100, False), Case(100, True))
SHARES: Final = ("p50", "p99", "p99.9")
US: Final = "µs"
# What the last of the shares may be.
DEMAND: Final = 1_000


def measure(trees: Trees, candidates: list[Candidate], *, rounds: int, seconds: float) -> Report:
    """Measure all candidates that have the case, for so many seconds in each round."""
    report = Report("rate", options={"rounds": rounds, "seconds": seconds, "messages/s": RATE})
    with apart({each.pid for each in candidates if each.pid is not None}):
        _measure(report, trees, candidates, rounds, seconds)
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def _measure(
    report: Report, trees: Trees, candidates: list[Candidate], rounds: int, seconds: float
) -> None:
    for case in CASES:
        contenders = [each for each in candidates if case in each.cases]
        found: dict[str, list[dict[str, float]]] = {}
        for round in range(rounds):
            shift = round % len(contenders)
            for candidate in [*contenders[shift:], *contenders[:shift]]:
                try:
                    told = _run(trees, candidate, case, int(RATE * seconds))
                except LoadFailed as error:
                    report.failures.append(f"{candidate.name}, {case.name}: {error}")
                    continue
                found.setdefault(candidate.name, []).append(told["latency_us"])
        _add(report, case, found)


def _run(trees: Trees, candidate: Candidate, case: Case, count: int) -> dict[str, Any]:
    run = candidate.run
    if run is None:
        return run_client(trees, candidate, case, count, RATE, RATE)
    return run(candidate, case, count, RATE, RATE)


def _add(report: Report, case: Case, found: dict[str, list[dict[str, float]]]) -> None:
    for share in SHARES:
        name = f"{case.name}, {share}"
        last = share == SHARES[-1]
        for contender, rounds in found.items():
            values = [told[share] for told in rounds]
            demand = DEMAND if last and contender == OURS else None
            report.figures.append(Figure(name, contender, US, values, demand))
        for contender, rounds in found.items():
            if contender != OURS and len(rounds) == len(found.get(OURS, [])):
                limit = 1.0 if last and contender != RELAY else None
                report.compare(name, OURS, contender, unit=US, at_most=limit)
