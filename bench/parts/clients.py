"""Clients: messages per second that a program sends or receives, on ferrymq's and other brokers.

Clients take turns at each broker. Each sends a number of durable messages of 100 B to an empty
queue, and receives and accepts them. A client that fails leaves the case, and its queue may keep
messages: the report has the failure.
"""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from typing import Final

from bench.clients import ASYNCIO, BLOCKING, CLIENTS, CREDIT, PROTON
from bench.parts.broker import MESSAGES, Candidate, LoadFailed
from bench.results import Figure, Report
from bench.tree import Trees, command, environment

SIZE: Final = 100
DIRECTIONS: Final = ("send", "receive")
# Seconds that one client may take for all messages in one direction.
PATIENCE: Final = 120.0


class ClientBench:
    """The whole part: all clients with all brokers, in rounds."""

    def __init__(self, trees: Trees, brokers: list[Candidate], *, rounds: int, count: int) -> None:
        self.trees = trees
        self.brokers = brokers
        self.rounds = rounds
        self.count = count
        self.values: dict[tuple[str, str], list[float]] = {}
        options = {"rounds": rounds, "messages": count, "credit": CREDIT}
        self.report = Report("clients", options=options)
        self.clients = list(CLIENTS)
        if find_spec("proton") is None:
            self.clients.remove(PROTON)
            self.report.notes.append(f"{PROTON} is not installed")

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        left = [(broker, client) for broker in self.brokers for client in self.clients]
        for round in range(self.rounds):
            shift = round % len(self.clients)
            for broker, client in [*left[shift:], *left[:shift]]:
                try:
                    for direction in DIRECTIONS:
                        rate = self._run(broker, client, direction)
                        self.values.setdefault((case(direction, broker), client), []).append(rate)
                except LoadFailed as error:
                    self.report.failures.append(f"{broker.name}, {client}: {error}")
                    left.remove((broker, client))
        self._finish()
        return self.report

    def _run(self, broker: Candidate, client: str, direction: str) -> float:
        arguments = [f"--url={broker.url}", f"--address={broker.address}"]
        arguments += [f"--count={self.count}", f"--size={SIZE}"]
        try:
            done = subprocess.run(
                command("bench.clients", client, direction, *arguments),
                env=environment(self.trees.loops),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"{direction}: not done in {PATIENCE:g} s") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise LoadFailed(f"{direction}: {lines[-1]}")
        return float(self.count / json.loads(done.stdout)["seconds"])

    def _finish(self) -> None:
        report = self.report
        for direction in DIRECTIONS:
            for broker in self.brokers:
                name = case(direction, broker)
                for client in self.clients:
                    values = self.values.get((name, client), [])
                    if len(values) == self.rounds:
                        report.figures.append(Figure(name, client, MESSAGES, values))
                for client in (ASYNCIO, BLOCKING):
                    report.compare(name, client, PROTON, unit=MESSAGES)


def case(direction: str, broker: Candidate) -> str:
    """Return the name of the case in tables."""
    return f"{broker.name}: {direction}"
