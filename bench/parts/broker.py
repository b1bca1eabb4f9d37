"""The broker: messages per second, end to end, from one producer to one consumer.

Brokers of AMQP 1.0 take turns under the same client, which is a separate process. Every message is
numbered and checked; a run in which one is lost, repeated or out of order has no rate and counts as
a failure. Others may take their turns under a client of their own: see `bench.foreign`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bench.encoding import DURABLE_HEADER
from bench.machine import PEAK, memory_of, processor_seconds
from bench.results import Figure, Report
from bench.tree import Trees, command, environment

MESSAGES: Final = "messages/s"
OURS: Final = "ferrymq"
IN_FLIGHT: Final = 500
CREDIT: Final = 500
DEMAND: Final = 100_000
EXTERNAL: Final = "external tool"
COST: Final = "µs/message"
TIME: Final = "µs"
RELAY: Final = "relay without a protocol"
# What the broker's processor time for one message in flight may be, in that of the relay.
AT_MOST: Final = 1.25
PROBE: Final = 2_000


class Case(NamedTuple):
    """A kind of message traffic."""

    size: int
    settled: bool
    durable: bool = False
    in_flight: int = IN_FLIGHT

    @property
    def name(self) -> str:
        """The name in tables."""
        size = f"{self.size} B" if self.size < 1024 else f"{self.size // 1024} KiB"
        kept = ", durable" if self.durable else ""
        alone = ", one in flight" if self.in_flight == 1 else ""
        return f"{size}{kept}{alone}, {'pre-settled' if self.settled else 'unsettled'}"


IN_MEMORY: Final = (
    Case(100, False),
    Case(100, True),
    Case(1024, False),
    Case(1024, True),
    Case(100, False, in_flight=1),
    Case(100, True, in_flight=1),
)
DURABLE: Final = Case(1024, False, durable=True)
ALONE: Final = Case(100, False, in_flight=1)
CASES: Final = (*IN_MEMORY[:4], DURABLE, *IN_MEMORY[4:])


@dataclass
class Candidate:
    """A broker to measure: its URL, and its process if its processor time counts.

    `run` is its client: it sends so many measured messages after so many that are not, and returns
    what `run_client` does. Several candidates may have one name, with different cases.
    """

    name: str
    url: str
    pid: int | None = None
    address: str = "bench"
    cases: tuple[Case, ...] = CASES
    run: Callable[[Candidate, Case, int, int, int], dict[str, Any]] | None = None
    counts: dict[Case, int] = field(default_factory=dict)


class LoadFailed(Exception):
    """A run ended early, or not every message arrived once, complete and in order."""


def run_client(
    trees: Trees, to: Candidate, case: Case, count: int, warm_up: int, rate: int = 0
) -> dict[str, Any]:
    """Run the bench's own client once, and return its result: `rate`, in messages per second.

    With a `rate`, messages are sent at even intervals, and the result has `latency_us`: the 50th,
    99th and 99.9th percentile of the times in which messages arrive.

    Raises:
        LoadFailed: with what went wrong.
    """
    arguments = [
        f"--url={to.url}",
        f"--address={to.address}",
        f"--count={count}",
        f"--warm-up={warm_up}",
        f"--size={case.size}",
        f"--in-flight={case.in_flight}",
        f"--credit={CREDIT}",
    ]
    if rate:
        arguments.append(f"--rate={rate}")
    if case.settled:
        arguments.append("--settled")
    if case.durable:
        arguments.append(f"--head={DURABLE_HEADER.hex()}")
    return run_load(trees, arguments)


def run_load(trees: Trees, arguments: Sequence[str]) -> dict[str, Any]:
    """Run `python -m bench.load` with these arguments, and return its result.

    Raises:
        LoadFailed: with what went wrong.
    """
    done = subprocess.run(
        command("bench.load", *arguments),
        env=environment(trees.loops),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise LoadFailed(done.stderr.strip() or f"exit status {done.returncode}") from None
    if not result["ok"]:
        faults = ("lost", "duplicated", "reordered", "damaged", "foreign", "refused")
        counts = ", ".join(f"{result[name]} {name}" for name in faults if result[name])
        raise LoadFailed("; ".join(part for part in (result["error"], counts) if part))
    return result


def run_external(
    tool: str, to: Candidate, case: Case, count: int, warm_up: int, rate: int = 0
) -> dict[str, Any]:
    """Run the external tool once, and return its result.

    The tool is called as `TOOL both -p PORT -a ADDRESS -n COUNT -w WARM_UP -s SIZE -i IN_FLIGHT
    -c CREDIT [--rate RATE] [--presettled]` and prints one JSON object with `ok`, `error`,
    `through_msgs_s`, and `latency_us`: `p50`, `p99` and `p99_9`.

    Raises:
        LoadFailed: with the tool's error.
    """
    port = to.url.rpartition(":")[2]
    arguments = [tool, "both", "-p", port, "-a", to.address, "-n", str(count), "-w", str(warm_up)]
    arguments += ["-s", str(case.size), "-i", str(IN_FLIGHT), "-c", str(CREDIT)]
    if rate:
        arguments += ["--rate", str(rate)]
    if case.settled:
        arguments.append("--presettled")
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        result: dict[str, Any] = json.loads(done.stdout)
    except (OSError, json.JSONDecodeError) as error:
        raise LoadFailed(f"{tool}: {error}") from None
    if not result["ok"]:
        raise LoadFailed(f"{tool}: {result['error']}")
    return result


def cost_of(name: str) -> str:
    """Return the contender whose figure is the processor time of a broker's process."""
    return f"{name}, broker's processor time"


def _only_ours(candidate: Candidate, case: Case) -> bool:
    """Return whether the external tool cannot have this load."""
    return candidate.run is not None or case.durable or case.in_flight == 1


class BrokerBench:
    """The whole part: all cases with all candidates, in rounds."""

    def __init__(
        self, trees: Trees, candidates: list[Candidate], *, rounds: int, seconds: float,
        tool: str | None,
    ) -> None:  # fmt: skip
        self.trees = trees
        self.candidates = candidates
        self.rounds = rounds
        self.seconds = seconds
        self.tool = tool
        self.values: dict[tuple[str, str, str], list[float]] = {}
        self.memory: list[Figure] = []
        self.report = Report(
            "broker",
            options={
                "rounds": rounds,
                "seconds": seconds,
                "in_flight": IN_FLIGHT,
                "credit": CREDIT,
                "external_tool": bool(tool),
            },
        )

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        for case in CASES:
            for candidate in self.candidates:
                if case in candidate.cases:
                    self._attempt(candidate, case, self._calibrate)
        for round in range(self.rounds):
            self._round(round, self._run)
            if round == 0:
                self._note_memory()
            if self.tool is not None:
                self._round(round, self._run_external)
        self._finish()
        return self.report

    def _round(self, round: int, step: Any) -> None:
        shift = round % len(self.candidates)
        for case in CASES:
            for candidate in [*self.candidates[shift:], *self.candidates[:shift]]:
                external = step == self._run_external
                if case in candidate.counts and not (external and _only_ours(candidate, case)):
                    self._attempt(candidate, case, step)

    def _attempt(self, candidate: Candidate, case: Case, step: Any) -> None:
        try:
            step(candidate, case)
        except LoadFailed as error:
            self.report.failures.append(f"{candidate.name}, {case.name}: {error}")

    def _calibrate(self, candidate: Candidate, case: Case) -> None:
        """Choose the number of messages that takes about the configured time."""
        count = PROBE
        rate = self._rate(candidate, case, count, 200)
        if rate > 20 * PROBE:
            # The probe was too short: repeat it with more messages.
            count = int(rate * self.seconds / 4)
            rate = self._rate(candidate, case, count, PROBE)
        candidate.counts[case] = max(PROBE, int(rate * self.seconds))

    def _rate(self, candidate: Candidate, case: Case, count: int, warm_up: int) -> float:
        if candidate.run is not None:
            told = candidate.run(candidate, case, count, warm_up, 0)
        else:
            told = run_client(self.trees, candidate, case, count, warm_up)
        rate: float = told["rate"]
        return rate

    def _run(self, candidate: Candidate, case: Case) -> None:
        count = candidate.counts[case]
        warm_up = max(200, count // 20)
        pid = candidate.pid
        before = 0.0 if pid is None else processor_seconds(pid)
        rate = self._rate(candidate, case, count, warm_up)
        if case.in_flight == 1:
            self._add(case.name, candidate.name, TIME, 1e6 / rate)
        else:
            self._add(case.name, candidate.name, MESSAGES, rate)
        if pid is not None:
            micros = 1e6 * (processor_seconds(pid) - before) / (count + warm_up)
            self._add(case.name, cost_of(candidate.name), COST, micros)

    def _run_external(self, candidate: Candidate, case: Case) -> None:
        count = candidate.counts[case]
        assert self.tool is not None
        told = run_external(self.tool, candidate, case, count, max(200, count // 20))
        self._add(f"{case.name}, {EXTERNAL}", candidate.name, MESSAGES, told["through_msgs_s"])

    def _note_memory(self) -> None:
        """Record the brokers' peak memory with our client, which limits its messages in flight."""
        for candidate in self.candidates:
            if candidate.pid is None or DURABLE in candidate.cases or candidate.name == RELAY:
                continue
            if (peak := memory_of(candidate.pid, PEAK)) is not None:
                self.memory.append(
                    Figure("peak memory, all of the above", candidate.name, "MiB", [peak / 2**20])
                )

    def _compare(
        self, case: str, ours: str, peer: str, unit: str, at_most: float | None = None
    ) -> None:
        """Compare two contenders, if both have had their turn in every round."""
        values = [self.values.get((case, name, unit), []) for name in (ours, peer)]
        if values[0] and len(values[0]) == len(values[1]):
            self.report.compare(case, ours, peer, unit=unit, at_most=at_most)

    def _add(self, case: str, contender: str, unit: str, value: float) -> None:
        self.values.setdefault((case, contender, unit), []).append(value)

    def _finish(self) -> None:
        report = self.report
        cases = dict.fromkeys(
            name for case in CASES for name in (case.name, f"{case.name}, {EXTERNAL}")
        )
        for wanted in cases:
            for (case, contender, unit), values in self.values.items():
                if case == wanted:
                    demanded = (contender, unit) == (OURS, MESSAGES) and case.startswith(
                        CASES[0].name
                    )
                    report.figures.append(
                        Figure(case, contender, unit, values, demand=DEMAND if demanded else None)
                    )
            for name in dict.fromkeys(candidate.name for candidate in self.candidates):
                if name not in (OURS, RELAY):
                    self._compare(wanted, OURS, name, MESSAGES)
                    self._compare(wanted, OURS, name, TIME)
            for name in dict.fromkeys(candidate.name for candidate in self.candidates):
                if name != OURS:
                    limit = AT_MOST if name == RELAY and wanted == ALONE.name else None
                    self._compare(wanted, cost_of(OURS), cost_of(name), COST, limit)
        report.figures += self.memory
