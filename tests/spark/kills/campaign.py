"""A run: what is killed in which order, how long the query stands still, what the ledger says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from tests.spark.kills.copy_ledger import Judgement
from tests.spark.kills.stage import KillStage, QueryHangs
from tests.spark.kills.victims import VICTIMS

# Batches that have to be committed after a kill before the next one.
_BATCHES: Final = 2
# How often the next kill does not wait for that.
_TOGETHER: Final = 0.15
# Seconds: about what a batch takes.
_MOMENT: Final = 1.5


@dataclass
class KillReport:
    """Result of a run. `stalls` are by victim, in seconds: the longest time without a batch after
    each kill."""

    seed: int
    stalls: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    batches: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def kills(self) -> int:
        """How many there were."""
        return sum(map(len, self.stalls.values()))

    def add_violation(self, rule: str, what: str) -> None:
        """Count something that must not happen, whatever is in the target."""
        self.violations[rule] = self.violations.get(rule, 0) + 1
        self.examples.setdefault(rule, []).append(what)

    def describe(self) -> str:
        """Return the figures as text."""
        lines = [f"{'victim':20} {'kills':>5} {'median':>8} {'longest stall':>14}"]
        for victim, stalls in self.stalls.items():
            middle, longest = median(stalls), max(stalls)
            lines.append(f"{victim:20} {len(stalls):5} {middle:6.1f} s {longest:12.1f} s")
        lines.append(
            f"{self.kills} kills in {self.seconds:.0f} s, {self.batches} batches;"
            f" {self.acknowledged} records acknowledged, {self.unacknowledged} not"
        )
        for rule, count in self.violations.items():
            lines.append(f"VIOLATED: {rule}, {count} times")
            lines += [f"  {example}" for example in self.examples[rule]]
        if not self.violations:
            lines.append(
                "each acknowledged record once, in the order of its key; no other one twice"
            )
        return "\n".join(lines)

    def summary(self) -> dict[str, object]:
        """Return the figures, for JSON."""
        victims = {
            victim: {
                "kills": len(stalls),
                "median stall": round(median(stalls), 1),
                "longest stall": round(max(stalls), 1),
            }
            for victim, stalls in self.stalls.items()
        }
        return {
            "seed": self.seed,
            "kills": self.kills,
            "seconds": round(self.seconds),
            "batches": self.batches,
            "acknowledged": self.acknowledged,
            "unacknowledged": self.unacknowledged,
            "victims": victims,
            "violations": self.violations,
            "examples": self.examples,
        }


def plan(random: Random, kills: int, victims: Sequence[str]) -> Iterator[list[str]]:
    """Yield what is killed together, mostly one: all victims in some order, then in another one."""
    order: list[str] = []
    group: list[str] = []
    for _ in range(kills):
        order = order or random.sample(victims, len(victims))
        group.append(order.pop())
        if random.random() >= _TOGETHER:
            yield group
            group = []
    if group:
        yield group


def run(
    folder: Path,
    seed: int,
    kills: int,
    victims: Sequence[str] = tuple(VICTIMS),
    tell: Callable[[str], object] = lambda line: None,
    workers: int = 2,
    without: str = "",
) -> KillReport:
    """Kill, drain, and judge. `without` is what the query lacks; `tell` gets a line after each
    kill."""
    report = KillReport(seed)
    began = time.monotonic()
    with KillStage(folder, seed, workers, without) as stage:
        try:
            _kill(stage, report, plan(Random(seed), kills, victims), tell)
            stage.drain()
        except QueryHangs as error:
            # Records that were not read count as lost too.
            report.add_violation("hangs", f"{error}\n{stage.driver.log[-4000:]}")
        for end in stage.ends:
            report.add_violation("ended", end)
        report.batches = stage.driver.committed() + 1
        stage.driver.kill()
        stage.stop_producers()
        sent = [producer.records for producer in stage.producers]
        judgement = Judgement(sent, stage.copies())
    report.acknowledged = sum(one.acknowledged for one in sent)
    report.unacknowledged = sum(map(len, sent)) - report.acknowledged
    report.violations |= judgement.violations
    report.examples |= judgement.examples
    report.seconds = time.monotonic() - began
    return report


def _kill(
    stage: KillStage,
    report: KillReport,
    victims: Iterator[list[str]],
    tell: Callable[[str], object],
) -> None:
    random = Random(f"{report.seed} moments")
    stage.wait_for_batches(_BATCHES)
    for group in victims:
        # Anywhere in a batch: planning, tasks, the driver's last step.
        threading.Event().wait(random.uniform(0, _MOMENT))
        before, at = stage.driver.committed(), time.time()
        for victim in group:
            VICTIMS[victim](stage, random)
        stage.wait_for_batches(_BATCHES)
        after = range(before + 1, stage.driver.committed() + 1)
        times = [at, *(stage.driver.commit_time(batch) for batch in after)]
        stall = max(second - first for first, second in pairwise(times))
        for victim in group:
            report.stalls.setdefault(victim, []).append(stall)
        report.batches = stage.driver.committed() + 1
        report.acknowledged = sum(one.records.acknowledged for one in stage.producers)
        tell(
            f"{report.kills} kills, {report.batches} batches, {report.acknowledged} records"
            f" acknowledged; {' and '.join(group)}: {stall:.1f} s"
        )
