"""The broker: messages per second, end to end, from one producer to one consumer.

Brokers take turns under the same client, which is a separate process. Every message is numbered and
checked; a run in which one is lost, repeated or out of order has no rate and counts as a failure.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bench.process import Server
from bench.results import Figure, Report
from bench.tree import Trees, command, environment

MESSAGES: Final = "messages/s"
OURS: Final = "ferrymq"
IN_FLIGHT: Final = 500
CREDIT: Final = 500
DEMAND: Final = 100_000
EXTERNAL: Final = "external tool"
PROBE: Final = 2_000


class Case(NamedTuple):
    """A kind of message traffic."""

    size: int
    settled: bool

    @property
    def name(self) -> str:
        """The name in tables."""
        size = f"{self.size} B" if self.size < 1024 else f"{self.size // 1024} KiB"
        return f"{size}, {'pre-settled' if self.settled else 'unsettled'}"


CASES: Final = (Case(100, False), Case(100, True), Case(1024, False), Case(1024, True))


@dataclass
class Candidate:
    """A broker to measure: its URL, and its process if we started it."""

    name: str
    url: str
    server: Server | None = None
    address: str = "bench"
    counts: dict[Case, int] = field(default_factory=dict)


class LoadFailed(Exception):
    """A run ended early, or not every message arrived once, complete and in order."""


def run_client(trees: Trees, to: Candidate, case: Case, count: int, warm_up: int) -> dict[str, Any]:
    """Run the bench's own client once, and return its result.

    Raises:
        LoadFailed: with what went wrong.
    """
    arguments = [
        f"--url={to.url}",
        f"--address={to.address}",
        f"--count={count}",
        f"--warm-up={warm_up}",
        f"--size={case.size}",
        f"--in-flight={IN_FLIGHT}",
        f"--credit={CREDIT}",
    ]
    if case.settled:
        arguments.append("--settled")
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


def run_external(tool: str, to: Candidate, case: Case, count: int, warm_up: int) -> float:
    """Run the external tool once, and return the messages per second.

    The tool is called as `TOOL both -p PORT -a ADDRESS -n COUNT -w WARM_UP -s SIZE -i IN_FLIGHT
    -c CREDIT [--presettled]` and prints one JSON object with `ok`, `error` and `through_msgs_s`.

    Raises:
        LoadFailed: with the tool's error.
    """
    port = to.url.rpartition(":")[2]
    arguments = [tool, "both", "-p", port, "-a", to.address, "-n", str(count), "-w", str(warm_up)]
    arguments += ["-s", str(case.size), "-i", str(IN_FLIGHT), "-c", str(CREDIT)]
    if case.settled:
        arguments.append("--presettled")
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        result = json.loads(done.stdout)
    except (OSError, json.JSONDecodeError) as error:
        raise LoadFailed(f"{tool}: {error}") from None
    if not result["ok"]:
        raise LoadFailed(f"{tool}: {result['error']}")
    rate: float = result["through_msgs_s"]
    return rate


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
            for candidate in list(self.candidates):
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
                if case in candidate.counts:
                    self._attempt(candidate, case, step)

    def _attempt(self, candidate: Candidate, case: Case, step: Any) -> None:
        try:
            step(candidate, case)
        except LoadFailed as error:
            self.report.failures.append(f"{candidate.name}, {case.name}: {error}")

    def _calibrate(self, candidate: Candidate, case: Case) -> None:
        """Choose the number of messages that takes about the configured time."""
        count = PROBE
        rate = run_client(self.trees, candidate, case, count, 200)["rate"]
        if rate > 20 * PROBE:
            # The probe was too short: repeat it with more messages.
            count = int(rate * self.seconds / 4)
            rate = run_client(self.trees, candidate, case, count, PROBE)["rate"]
        candidate.counts[case] = max(PROBE, int(rate * self.seconds))

    def _run(self, candidate: Candidate, case: Case) -> None:
        count = candidate.counts[case]
        warm_up = max(200, count // 20)
        server = candidate.server
        before = None if server is None else server.cpu_seconds()
        result = run_client(self.trees, candidate, case, count, warm_up)
        after = None if server is None else server.cpu_seconds()
        self._add(case.name, candidate.name, MESSAGES, result["rate"])
        if before is not None and after is not None:
            micros = 1e6 * (after - before) / (count + warm_up)
            self._add(case.name, f"{candidate.name}, broker's processor time", "µs/message", micros)

    def _run_external(self, candidate: Candidate, case: Case) -> None:
        count = candidate.counts[case]
        assert self.tool is not None
        rate = run_external(self.tool, candidate, case, count, max(200, count // 20))
        self._add(f"{case.name}, {EXTERNAL}", candidate.name, MESSAGES, rate)

    def _note_memory(self) -> None:
        """Record the brokers' peak memory with our client, which limits its messages in flight."""
        for candidate in self.candidates:
            peak = None if candidate.server is None else candidate.server.peak_memory()
            if peak is not None:
                self.memory.append(
                    Figure("peak memory, all of the above", candidate.name, "MiB", [peak / 2**20])
                )

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
                    demanded = contender == OURS and case.startswith(CASES[0].name)
                    report.figures.append(
                        Figure(case, contender, unit, values, demand=DEMAND if demanded else None)
                    )
            mine = self.values.get((wanted, OURS, MESSAGES), [])
            for candidate in self.candidates:
                other = self.values.get((wanted, candidate.name, MESSAGES), [])
                if candidate.name != OURS and mine and len(mine) == len(other):
                    report.compare(wanted, OURS, candidate.name, unit=MESSAGES)
        report.figures += self.memory
