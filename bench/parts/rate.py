"""Messages at an even rate: how long they are on their way while the broker has much time to spare.

Brokers take turns. A client sends messages at even intervals, whether earlier ones have arrived or
not, and receives them. The time of a message begins when it is due, not when it is sent: if the
client or the broker stalls, the messages that are due meanwhile count, too. The client sleeps until
the next message is due or one arrives. A client that never sleeps would occupy a processor: what
else the system has to do would take the broker's, for milliseconds at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bench.machine import versions
from bench.parts.broker import (
    EXTERNAL,
    OURS,
    RELAY,
    Candidate,
    Case,
    LoadFailed,
    run_client,
    run_external,
)
from bench.results import Figure, Report
from bench.tree import Trees, variant_on

RATE: Final = 5_000
"""Messages per second."""
CASES: Final = (Case(100, False), Case(100, True))
SHARES: Final = ("p50", "p99", "p99.9")
US: Final = "µs"
# What the last of the shares may be.
DEMAND: Final = 1_000


def measure(
    trees: Trees, candidates: list[Candidate], *, rounds: int, seconds: float, tool: str | None
) -> Report:
    """Measure all candidates that have the case, for so many seconds in each round; brokers of AMQP
    also with an external `tool`, if there is one."""
    report = Report("rate", options={"rounds": rounds, "seconds": seconds, "messages/s": RATE})
    count = int(RATE * seconds)

    def with_ours(candidate: Candidate, case: Case) -> dict[str, float]:
        run = candidate.run
        if run is None:
            return _shares(run_client(trees, candidate, case, count, RATE, RATE))
        return _shares(run(candidate, case, count, RATE, RATE))

    def with_tool(candidate: Candidate, case: Case) -> dict[str, float]:
        assert tool is not None
        return _shares(run_external(tool, candidate, case, count, RATE, RATE))

    for case in CASES:
        contenders = [each for each in candidates if case in each.cases]
        _measure(report, case.name, case, contenders, rounds, with_ours)
        if tool is not None:
            spoken = [each for each in contenders if each.run is None]
            _measure(report, f"{case.name}, {EXTERNAL}", case, spoken, rounds, with_tool)
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def _measure(
    report: Report,
    name: str,
    case: Case,
    contenders: list[Candidate],
    rounds: int,
    run: Callable[[Candidate, Case], dict[str, float]],
) -> None:
    found: dict[str, list[dict[str, float]]] = {}
    for round in range(rounds):
        shift = round % len(contenders)
        for candidate in [*contenders[shift:], *contenders[:shift]]:
            try:
                found.setdefault(candidate.name, []).append(run(candidate, case))
            except LoadFailed as error:
                report.failures.append(f"{candidate.name}, {name}: {error}")
    _add(report, name, found)


def _shares(told: dict[str, Any]) -> dict[str, float]:
    """Return the percentiles in what a client tells; some write `p99_9`."""
    return {share.replace("_", "."): time for share, time in told["latency_us"].items()}


def _add(report: Report, case: str, found: dict[str, list[dict[str, float]]]) -> None:
    for share in SHARES:
        name = f"{case}, {share}"
        last = share == SHARES[-1]
        for contender, rounds in found.items():
            values = [told[share] for told in rounds]
            demand = DEMAND if last and contender == OURS else None
            report.figures.append(Figure(name, contender, US, values, demand))
        for contender, rounds in found.items():
            if contender != OURS and len(rounds) == len(found.get(OURS, [])):
                limit = 1.0 if last and contender != RELAY else None
                report.compare(name, OURS, contender, unit=US, at_most=limit)
