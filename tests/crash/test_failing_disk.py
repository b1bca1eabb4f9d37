"""Disks that fail, are slow, or full."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.actors.actor import Actor
from tests.crash.actors.consumers import Consumer
from tests.crash.actors.producers import Producer
from tests.crash.campaign import failure_round
from tests.crash.checks import check
from tests.crash.disk import Disk
from tests.crash.draining import drain
from tests.crash.play import cast, playing, prepare
from tests.crash.processes import Starter
from tests.crash.stage import Stage
from tests.support.lanes import amount

pytestmark = pytest.mark.crash

HALF_A_SECOND = "delay_enter=500000"


async def test_a_write_that_fails_ends_the_broker_and_nothing_else(
    starter: Starter, folder: Path, strace: None
) -> None:
    result = await failure_round(starter, 1, folder, amount(4, 8))
    assert not result.violations, result.describe()
    failed = result.counts["disk failed"] + result.counts["disk failed while starting"]
    assert failed >= amount(1, 3)


async def test_a_slow_disk_costs_no_connection(
    starter: Starter, folder: Path, strace: None
) -> None:
    """Half a second for each sync, one after the other, and clients that want to hear something
    every two seconds: a broker that waited for its syncs would be silent for longer."""
    stage = Stage(starter, 1, folder, idle_time_out=2)
    stage.on_lost = stage.wrong
    life = await stage.start()
    await prepare(stage)
    calls = "pwritev2,fdatasync"
    life.trace(["-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:{HALF_A_SECOND}"])
    before = stage.ledger.counts["answered"]
    async with playing([actor for actor in cast(stage) if "once" not in actor.name]):
        await asyncio.sleep(5)
        answered = stage.ledger.counts["answered"] - before
        life.untrace()
    await finish(stage)
    assert answered > 20


@pytest.mark.parametrize("megabytes", [14, 32, 48][: amount(1, 3)])
async def test_a_full_disk_stops_producers_until_there_is_room(
    starter: Starter, folder: Path, disks: None, megabytes: int
) -> None:
    """What producers may have on its way then is little beside what is kept in reserve."""
    with Disk(folder, megabytes << 20) as disk:
        data = disk.path / "data"
        stage = Stage(starter, 1, folder, data=data, segment_bytes=512 * 1024, credit=50)
        stage.on_lost = stage.wrong
        life = await stage.start()
        await prepare(stage)
        producers = [Big(stage, f"fills-{number}", "orders") for number in range(2)]
        takers: list[Actor] = [
            Consumer(stage, f"takes-{number}", "orders", {"accepted": 1}) for number in range(2)
        ]
        try:
            async with playing([*producers]):
                await until(lambda: "the disk is full" in life.said())
                await stalled(stage, "answered")
                full = stage.ledger.counts["answered"]
                async with playing(takers):
                    await until(lambda: "the disk has room again" in life.said())
                    await until(lambda: stage.ledger.counts["answered"] > full + 20)
        except BaseException:
            await stage.end("over")
            raise
        await finish(stage)


async def test_a_disk_that_somebody_else_fills(starter: Starter, folder: Path, disks: None) -> None:
    """Without a warning there is no room for anything: the broker waits, and goes on later."""
    with Disk(folder, 48 << 20) as disk:
        data = disk.path / "data"
        stage = Stage(starter, 2, folder, data=data, segment_bytes=512 * 1024, credit=50)
        stage.on_lost = stage.wrong
        life = await stage.start()
        await prepare(stage)
        producers = [Big(stage, f"fills-{number}", "orders") for number in range(2)]
        takers: list[Actor] = [Consumer(stage, "takes", "orders", {"accepted": 1})]
        try:
            async with playing([*producers]):
                await until(lambda: stage.ledger.counts["answered"] > 100)
            # Nothing is written while the room is taken.
            await asyncio.sleep(1)
            hog = disk.path / "hog"
            space = os.statvfs(disk.path)
            with hog.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, (space.f_bavail - 40) * space.f_frsize)
            async with playing([*producers]):
                await until(lambda: "the disk is full" in life.said())
                await stalled(stage, "answered")
                full = stage.ledger.counts["answered"]
                async with playing(takers):
                    await stalled(stage, "confirmed")
                    hog.unlink()
                    await until(lambda: "the disk has room again" in life.said())
                    await until(lambda: stage.ledger.counts["answered"] > full + 20)
        except BaseException:
            await stage.end("over")
            raise
        await finish(stage)


class Big(Producer):
    """Sends what fills disks."""

    def size(self) -> int:
        return self.random.randrange(self.stage.largest)


async def until(true: Callable[[], bool]) -> None:
    """Wait for something."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  (a process says it, not an event)
            await asyncio.sleep(0.05)


async def stalled(stage: Stage, what: str) -> None:
    """Wait until a second has gone by without an entry of a kind."""
    async with asyncio.timeout(60):
        while True:
            before = stage.ledger.counts[what]
            await asyncio.sleep(1)
            if stage.ledger.counts[what] == before:
                return


async def finish(stage: Stage) -> None:
    """Take out all there is after a kill, and judge."""
    try:
        await stage.end("killed")
        await stage.start()
        await drain(stage)
    finally:
        if stage.life is not None:
            await stage.end("over")
    assert check(stage.ledger.entries) == []
