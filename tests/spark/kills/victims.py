"""Victims: each is killed by SIGKILL, and started again if nobody else does that."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Final

from tests.spark.kills.spark_processes import python_workers_of
from tests.spark.kills.stage import KillStage


def kill_single_broker(stage: KillStage, random: Random) -> None:
    """The broker without a standby."""
    stage.single.kill()


def kill_leader(stage: KillStage, random: Random) -> None:
    """The leader of the other broker: its standby takes over."""
    stage.replicated.kill()


def kill_executor(stage: KillStage, random: Random) -> None:
    """An executor: its worker starts another one."""
    _kill_one(stage, random, stage.executors)


def kill_python_worker(stage: KillStage, random: Random) -> None:
    """A Python worker of an executor: Spark repeats its task."""
    _kill_one(stage, random, lambda: [w for e in stage.executors() for w in python_workers_of(e)])


def kill_worker(stage: KillStage, random: Random) -> None:
    """A worker of the cluster: its executors end too."""
    stage.cluster.kill_worker(random.randrange(len(stage.cluster.workers)))


def kill_driver(stage: KillStage, random: Random) -> None:
    """The driver, at any moment."""
    stage.driver.kill()
    stage.driver.start()


def kill_driver_within_batch(stage: KillStage, random: Random) -> None:
    """The driver, when rows of a batch are written and the batch is not committed."""
    stage.stop_within_batch()
    kill_driver(stage, random)


Kill = Callable[[KillStage, Random], None]
VICTIMS: Final[dict[str, Kill]] = {
    "broker": kill_single_broker,
    "leader": kill_leader,
    "executor": kill_executor,
    "python-worker": kill_python_worker,
    "worker": kill_worker,
    "driver": kill_driver,
    "driver-within-batch": kill_driver_within_batch,
}


def _kill_one(stage: KillStage, random: Random, find: Callable[[], Iterable[int]]) -> None:
    """Kill one of the processes that are found; wait until there is one."""
    found: list[int] = []

    def look() -> bool:
        found[:] = find()
        return bool(found)

    while True:
        stage.wait_until(look)
        # It may have ended since.
        with suppress(ProcessLookupError):
            os.kill(random.choice(found), signal.SIGKILL)
            return
