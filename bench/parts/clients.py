"""Clients: messages per second that a program sends or receives, on ferrymq's and other brokers.

Clients take turns at each broker. Each sends a number of durable messages of 100 B to an empty
queue, and receives and accepts them, in the ways that it has. A client that fails leaves the case,
and its queue may keep messages: the report has the failure.
"""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from typing import Final

from bench.clients import (
    ASYNCIO,
    BLOCKING,
    CLIENTS,
    CREDIT,
    ECHO,
    GATHER,
    GATHERED,
    PROTON,
    PROTON_BLOCKING,
    RECEIVE,
    RECEIVE_EACH,
    SEND,
    SEND_EACH,
    Took,
)
from bench.parts.broker import MESSAGES, OURS, Candidate, LoadFailed
from bench.results import Figure, Report
from bench.tree import Trees, command, environment

SIZE: Final = 100
PROCESSOR: Final = "µs/message"
"""Unit of the processor time of a client."""
# What fills the queue, with what empties it. A client that has only one of them is helped out, not
# measured, by the asyncio client.
PAIRS: Final = ((SEND, RECEIVE), (SEND_EACH, RECEIVE_EACH), (GATHER, RECEIVE))
WORKS: Final = (SEND, RECEIVE, SEND_EACH, RECEIVE_EACH, GATHER)
"""The cases, in the order of tables."""
# Messages per second that are demanded on ferrymq's broker.
DEMANDS: Final = {
    (SEND, BLOCKING): 150_000.0,
    (RECEIVE, BLOCKING): 150_000.0,
    (RECEIVE_EACH, BLOCKING): 40_000.0,
    (GATHER, ASYNCIO): 120_000.0,
}
# The most processor time of a send, in that of an echo of as many bytes.
MOST_PROCESSOR: Final = 1.5
# Seconds that one client may take for all messages in one way.
PATIENCE: Final = 120.0


class ClientBench:
    """The whole part: all clients with all brokers, in rounds."""

    def __init__(self, trees: Trees, brokers: list[Candidate], *, rounds: int, count: int) -> None:
        self.trees = trees
        self.brokers = brokers
        self.rounds = rounds
        self.count = count
        self.values: dict[tuple[str, str, str], list[float]] = {}
        options = {"rounds": rounds, "messages": count, "credit": CREDIT, "gathered": GATHERED}
        self.report = Report("clients", options=options)
        self.clients = list(CLIENTS)
        if find_spec("proton") is None:
            self.clients.remove(PROTON)
            self.clients.remove(PROTON_BLOCKING)
            self.report.notes.append(f"{PROTON} is not installed")

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        left = [
            (broker, client)
            for broker in self.brokers
            for client in self.clients
            if client != ECHO or broker is self.brokers[0]
        ]
        for round in range(self.rounds):
            shift = round % len(self.clients)
            for broker, client in [*left[shift:], *left[:shift]]:
                try:
                    self._run_all(broker, client)
                except LoadFailed as error:
                    self.report.failures.append(f"{broker.name}, {client}: {error}")
                    left.remove((broker, client))
        self._finish()
        return self.report

    def _run_all(self, broker: Candidate, client: str) -> None:
        """Measure all that a client does on a broker."""
        works = CLIENTS[client]
        for fill, empty in PAIRS:
            if fill not in works:
                continue
            for work in (fill, empty):
                measured = work in works and (work, fill) != (RECEIVE, GATHER)
                if measured:
                    took = self._run(broker, client, work)
                    name = case(work, broker)
                    rate = self.count / took.seconds
                    processor = took.processor / self.count * 1e6
                    self.values.setdefault((name, client, MESSAGES), []).append(rate)
                    self.values.setdefault((name, client, PROCESSOR), []).append(processor)
                elif client != ECHO:
                    self._run(broker, ASYNCIO, RECEIVE)

    def _run(self, broker: Candidate, client: str, work: str) -> Took:
        arguments = [f"--url={broker.url}", f"--address={broker.address}"]
        arguments += [f"--count={self.count}", f"--size={SIZE}"]
        try:
            done = subprocess.run(
                command("bench.clients", client, work, *arguments),
                env=environment(self.trees.loops),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"{work}: not done in {PATIENCE:g} s") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise LoadFailed(f"{work}: {lines[-1]}")
        return Took(**json.loads(done.stdout))

    def _finish(self) -> None:
        report = self.report
        for work in WORKS:
            for broker in self.brokers:
                name = case(work, broker)
                for client in self.clients:
                    demand = DEMANDS.get((work, client)) if broker.name == OURS else None
                    values = self.values.get((name, client, MESSAGES), [])
                    if len(values) == self.rounds:
                        report.figures.append(Figure(name, client, MESSAGES, values, demand))
                for client in (ASYNCIO, BLOCKING):
                    for peer in (PROTON, PROTON_BLOCKING):
                        report.compare(name, client, peer, unit=MESSAGES)
        # The other rates say enough about the processor time.
        name = case(SEND_EACH, self.brokers[0])
        for client in self.clients:
            values = self.values.get((name, client, PROCESSOR), [])
            if len(values) == self.rounds:
                report.figures.append(Figure(name, client, PROCESSOR, values))
        report.compare(name, ASYNCIO, ECHO, at_most=MOST_PROCESSOR, unit=PROCESSOR)


def case(work: str, broker: Candidate) -> str:
    """Return the name of the case in tables."""
    return f"{broker.name}: {work}"
