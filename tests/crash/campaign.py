"""A long run: rounds of kills, of failing disks, and of power cuts."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.cuts import random_cuts
from tests.crash.disk import Disk
from tests.crash.failing import random_failures
from tests.crash.failovers.failover_rounds import failover_round
from tests.crash.failovers.outages import summarize
from tests.crash.kills import random_calls, random_deaths
from tests.crash.processes import Starter
from tests.crash.rounds import Result, play_round, tidy
from tests.crash.stage import Stage

# Deaths of a round: many for one directory, few enough for what is left over to be looked at.
KILLS_A_ROUND = 25
CALLS_A_ROUND = 20
CUTS_A_ROUND = 15
FAULTS_A_ROUND = 12

DISK_BYTES = 256 << 20

Round = Callable[[Starter, int, Path, int], Awaitable[Result]]


async def kill_round(starter: Starter, seed: int, folder: Path, deaths: int) -> Result:
    """SIGKILL at random moments."""
    return tidy(await play_round(Stage(starter, seed, folder), random_deaths(seed, deaths)))


async def call_round(starter: Starter, seed: int, folder: Path, deaths: int) -> Result:
    """SIGKILL at the n-th call of a kind."""
    return tidy(await play_round(Stage(starter, seed, folder), random_calls(seed, deaths)))


async def cut_round(
    starter: Starter, seed: int, folder: Path, deaths: int, *, sync: bool = True
) -> Result:
    """Power cuts; without `sync` the broker only pretends to sync, and must be found out."""
    environment = {} if sync else {"FERRYMQ_UNSAFE_NO_SYNC": "1"}
    with Disk(folder, DISK_BYTES) as disk:
        stage = Stage(starter, seed, folder, data=disk.path / "data", environment=environment)
        result = await play_round(stage, random_cuts(disk, seed, deaths))
        if result.violations:
            # What is on the disk goes with it.
            shutil.copytree(stage.data, folder / "data", dirs_exist_ok=True)
    return tidy(result)


async def failure_round(starter: Starter, seed: int, folder: Path, deaths: int) -> Result:
    """Writes and syncs that fail."""
    return tidy(await play_round(Stage(starter, seed, folder), random_failures(seed, deaths)))


ROUNDS: dict[str, tuple[Round, int]] = {
    "kills": (kill_round, KILLS_A_ROUND),
    "calls": (call_round, CALLS_A_ROUND),
    "failures": (failure_round, CALLS_A_ROUND),
    "cuts": (cut_round, CUTS_A_ROUND),
    "failovers": (failover_round, FAULTS_A_ROUND),
}


@dataclass
class Campaign:
    """How many deaths of each kind there are to be, and what has come of them so far."""

    seed: int
    folder: Path
    wanted: dict[str, int]
    done: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[str, int, Result]] = field(default_factory=list)
    outages: list[tuple[str, int]] = field(default_factory=list)

    async def run(self, progress: Callable[[Campaign], object]) -> None:
        """Play all rounds; `progress` is told of the end of each."""
        random = Random(self.seed)
        starter = Starter()
        try:
            for kind, wanted in self.wanted.items():
                play, usual = ROUNDS[kind]
                while self.done[kind] < wanted:
                    seed = random.randrange(1 << 32)
                    deaths = min(usual, wanted - self.done[kind])
                    folder = self.folder / f"{kind}-{seed}"
                    folder.mkdir(parents=True)
                    began = time.monotonic()
                    result = await play(starter, seed, folder, deaths)
                    self.seconds[kind] += time.monotonic() - began  # type: ignore[assignment]
                    self.done[kind] += deaths
                    self.counts.update(result.counts)
                    self.outages += result.outages
                    if result.violations:
                        self.failed.append((kind, deaths, result))
                    progress(self)
        finally:
            starter.close()

    def summary(self) -> dict[str, Any]:
        """The campaign in figures, for a file."""
        return {
            "seed": self.seed,
            "deaths": dict(self.done),
            "seconds": {kind: round(seconds, 1) for kind, seconds in self.seconds.items()},
            "ledger": dict(sorted(self.counts.items())),
            "seconds without service": summarize(self.outages),
            "violations": sum(len(result.violations) for _, _, result in self.failed),
            "failed": [
                {
                    "again": again(kind, deaths, result.seed),
                    "folder": str(result.folder),
                    "violations": [list(violation) for violation in result.violations[:100]],
                }
                for kind, deaths, result in self.failed
            ],
        }


def again(kind: str, deaths: int, seed: int) -> str:
    """The command that plays one round again."""
    return f"python -m tests.crash round {kind} {seed} --deaths {deaths}"
