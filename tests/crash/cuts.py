"""Power cuts under load."""

from __future__ import annotations

import asyncio
from random import Random

from tests.crash.disk import Disk
from tests.crash.rounds import Death
from tests.crash.stage import Stage


def cut_after(disk: Disk, seconds: float, grace: float) -> Death:
    """Let the power go under load after some time; the broker goes on for a moment without a disk,
    which must be seen by nobody, and is killed."""

    async def death(stage: Stage) -> None:
        await asyncio.sleep(seconds)
        disk.cut()
        await asyncio.sleep(grace)
        await stage.end("power cut")
        await asyncio.to_thread(_again, disk)
        await stage.start()

    return death


def _again(disk: Disk) -> None:
    disk.unmount()
    disk.mount()


def random_cuts(disk: Disk, seed: int, count: int) -> list[Death]:
    """Cuts at random moments."""
    random = Random(f"{seed} cuts")
    return [
        cut_after(disk, random.random() * 0.35, random.choice((0.0, 0.0, 0.01, 0.05)))
        for _ in range(count)
    ]
