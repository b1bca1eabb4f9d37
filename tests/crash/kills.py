"""Deaths of the process: at any moment, while it starts, and at a certain call to the system."""

from __future__ import annotations

import asyncio
import signal
from random import Random

from tests.crash.processes import NotReady
from tests.crash.rounds import Death
from tests.crash.stage import Stage

# What the store changes its files with, by way of Python and by way of LMDB.
WRITES = ("pwritev2", "pwritev", "pwrite64")
SYNCS = ("pwritev2", "fdatasync", "fsync")
NAMES = ("rename", "renameat2", "unlink", "unlinkat", "ftruncate", "mkdir")


def kill_after(seconds: float, starting: tuple[float, ...] = ()) -> Death:
    """SIGKILL under load after some time, then again so many seconds after each next start."""

    async def death(stage: Stage) -> None:
        await asyncio.sleep(seconds)
        await stage.end("killed")
        for moment in starting:
            life = stage.begin()
            ready = asyncio.create_task(life.ready())
            await asyncio.wait([ready], timeout=moment)
            if ready.done() and ready.exception() is not None:
                # It has not come up, and nobody has killed it.
                await stage.end("ended while starting")
                await ready
            await stage.end("killed while starting")
            await asyncio.wait([ready])
            ready.exception()
        await stage.start()

    return death


def stop_after(seconds: float) -> Death:
    """SIGTERM under load: in good order, for once."""

    async def death(stage: Stage) -> None:
        await asyncio.sleep(seconds)
        life = stage.life
        assert life is not None
        stage.up.clear()
        life.signal(signal.SIGTERM)
        status = await life.ended()
        await stage.end("stopped")
        if status != 0:
            stage.wrong(f"SIGTERM ended it with status {status}: {life.said()[-2000:]}")
        await stage.start()

    return death


def kill_at_call(calls: tuple[str, ...], number: int, seconds: float) -> Death:
    """SIGKILL at the n-th of these calls after a start, while it starts or under load; after some
    time at the latest, when there were fewer."""

    async def death(stage: Stage) -> None:
        await stage.end("killed")
        names = ",".join(f"?{call}" for call in calls)
        inject = f"inject={names}:signal=KILL:when={number}"
        try:
            life = await stage.start(["-o", "/dev/null", "-e", f"trace={names}", "-e", inject])
            try:
                await life.ended(seconds)
                how = "killed at a call"
            except TimeoutError:
                how = "killed"
            await stage.end(how)
        except NotReady as error:
            if not str(error).startswith("status -9"):
                raise
        await stage.start()

    return death


def random_deaths(seed: int, count: int) -> list[Death]:
    """Kills at random moments; every third or so also while starting, some in good order."""
    random = Random(f"{seed} deaths")
    deaths: list[Death] = []
    for _ in range(count):
        seconds = random.random() * 0.4
        if random.random() < 0.05:
            deaths.append(stop_after(seconds))
        else:
            again = random.choice((0, 0, 1, 1, 2))
            deaths.append(kill_after(seconds, tuple(random.random() * 0.06 for _ in range(again))))
    return deaths


def random_calls(seed: int, count: int) -> list[Death]:
    """Kills at calls of every kind, the first ones of a start more often than later ones."""
    random = Random(f"{seed} calls")
    deaths: list[Death] = []
    for _ in range(count):
        calls = random.choice((WRITES, WRITES, ("pwritev2",), SYNCS, ("fdatasync",), NAMES))
        most = random.choice((5, 20, 100)) if calls is not NAMES else 8
        deaths.append(kill_at_call(calls, random.randint(1, most), 0.5))
    return deaths
