"""Disks that fail, are slow, or full."""

from __future__ import annotations

import re
import time
from pathlib import Path
from random import Random

from tests.crash.kills import SYNCS, WRITES
from tests.crash.processes import NotReady
from tests.crash.rounds import Death
from tests.crash.stage import Stage

# So long may a broker live on with a disk that has failed.
_AT_ONCE = 3.0


def fail_at_call(calls: tuple[str, ...], number: int, seconds: float, *, for_good: bool) -> Death:
    """EIO at the n-th of these calls, or from there on: the broker has to end at once, by itself,
    with a reason, and nothing may be acknowledged any more."""

    async def death(stage: Stage) -> None:
        await stage.end("killed")
        names = ",".join(f"?{call}" for call in calls)
        trace = stage.folder / "strace.log"
        inject = f"inject={names}:error=EIO:when={number}{'+' if for_good else ''}"
        strace = ["-ttt", "-o", str(trace), "-e", f"trace={names}", "-e", inject]
        life = stage.begin(strace)
        try:
            try:
                await life.ready()
            except NotReady:
                stage.ledger.write("dies", how="disk failed while starting")
            else:
                stage.ledger.write("lives", seconds=life.start_time)
                stage.up.set()
                await life.ended(seconds)
                stage.ledger.write("dies", how="disk failed")
        except TimeoutError:
            if failed_at(trace) is not None:
                # That may have been a moment ago.
                try:
                    await life.ended(_AT_ONCE)
                except TimeoutError:
                    stage.wrong(f"the broker lives on after {inject}")
        ended, status, said = time.time(), life.status, life.said()
        await stage.end("killed")
        failed = failed_at(trace)
        if status is not None and failed is not None:
            judge(stage, status, said, ended - failed)
        elif status is not None:
            stage.wrong(f"the broker ended with status {status}, without a failure: {said[-1000:]}")
        await stage.start()

    return death


def judge(stage: Stage, status: int, said: str, seconds: float) -> None:
    """Whether this is how a broker ends whose disk has failed."""
    if status <= 0:
        stage.wrong(f"the disk failed, and the broker ended with status {status}: {said[-1000:]}")
    if "Input/output error" not in said and "Errno 5" not in said:
        stage.wrong(f"the disk failed, and the broker did not say so: {said[-1000:]}")
    if seconds > _AT_ONCE:
        stage.wrong(f"the disk failed, and the broker lived on for {seconds:.1f} s")


def failed_at(trace: Path) -> float | None:
    """When the first call was made to fail (seconds since the epoch), by what strace wrote."""
    for line in trace.read_text(errors="replace").splitlines():
        if "(INJECTED)" in line:
            found = re.search(r"\b(\d{9,}\.\d+)\b", line)
            return None if found is None else float(found[1])
    return None


def random_failures(seed: int, count: int) -> list[Death]:
    """Failures of writes and syncs, soon after the start or later."""
    random = Random(f"{seed} failures")
    deaths: list[Death] = []
    for _ in range(count):
        calls = random.choice((("pwritev2",), ("fdatasync",), SYNCS, WRITES))
        number = random.randint(1, random.choice((5, 30, 100)))
        deaths.append(fail_at_call(calls, number, 1.5, for_good=random.random() < 0.5))
    return deaths
