"""A round of fail-overs: a cluster to which many things are done under load, and then the ledger
and the journal are read."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import psycopg

from ferrymq import AmqpError
from tests.crash.checks import check
from tests.crash.draining import drain
from tests.crash.failovers.clocks import ClockLibrary, why_no_clocks
from tests.crash.failovers.cluster_stage import ClusterStage
from tests.crash.failovers.faults import Faults, random_faults
from tests.crash.failovers.journal_checks import check_journal
from tests.crash.failovers.outages import find_outages
from tests.crash.failovers.small_disk import SmallDisk
from tests.crash.history import Violation
from tests.crash.ledger import summary
from tests.crash.play import cast, playing, prepare
from tests.crash.processes import NotReady, Starter
from tests.crash.rounds import Result, tidy

# A round that takes longer than this for each fault hangs, in seconds.
_LONGEST: Final = 60.0

# What depends on the time of day, which a round with stepped clocks does not have.
_RULES_OF_TIME: Final = (
    "before its time",
    "time",
    "taken from a lease",
    "lapsed early",
    "lapsed late",
)


async def failover_round(starter: Starter, seed: int, folder: Path, count: int) -> Result:
    """Faults of all kinds; in some rounds clocks are set, in some the database has a small disk."""
    random = Random(f"{seed} round")
    size = random.choice((2, 2, 3))
    special = random.choice(("clocks", "disk", "", "", "", ""))
    if special == "clocks" and why_no_clocks() is None:
        return tidy(await _round_with_clocks(seed, folder, count, size))
    if special == "disk" and os.geteuid() == 0:
        with _open_folder() as place, SmallDisk(place) as disk:
            stage = ClusterStage(starter, seed, folder, size=size, disk=disk)
            result = await play_failovers(stage, random_faults(seed, count, disk=True))
        return tidy(result)
    stage = ClusterStage(starter, seed, folder, size=size)
    return tidy(await play_failovers(stage, random_faults(seed, count)))


async def _round_with_clocks(seed: int, folder: Path, count: int, size: int) -> Result:
    with _open_folder() as place:
        library = ClockLibrary(place)
        stepped = Starter(library.environment)
        try:
            stage = ClusterStage(stepped, seed, folder, size=size, clocks=library)
            result = await play_failovers(stage, random_faults(seed, count, clocks=True))
        finally:
            stepped.close()
    result.violations = [one for one in result.violations if one.rule not in _RULES_OF_TIME]
    return result


@contextmanager
def _open_folder() -> Iterator[Path]:
    """A folder into which the user of the database can look."""
    with tempfile.TemporaryDirectory(prefix="ferrymq-failovers-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


async def play_failovers(stage: ClusterStage, chosen: Faults) -> Result:
    """Let clients work while things are done to the cluster, then look at everything twice, with
    the death of the leader in between, and judge."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    random = Random(f"{stage.seed} moments")
    result = Result(stage.seed, stage.folder)
    journal: list[Violation] = []
    is_whole = False
    try:
        async with asyncio.timeout(_LONGEST * (len(chosen) + 2)):
            await stage.start()
            await prepare(stage)
            async with playing(cast(stage)):
                for kind, fault in chosen:
                    await asyncio.sleep(0.1 + random.random() * 0.5)
                    async with stage.disturbed(kind) as leader:
                        await fault(stage, leader, random)
                await asyncio.sleep(0.3)
            await drain(stage)
            await stage.kill(await stage.find_leader())
            await stage.wait_for_leader()
            await drain(stage)
            audit = await stage.database.audit()
            journal = list(check_journal(audit, await stage.database.numbers()))
            is_whole = True
            logs = [member.log.read_text() for member in stage.members]
            result.counts["set aside"] = sum(log.count("records were set aside") for log in logs)
            result.counts["snapshots"] = sum(log.count("snapshot made") for log in logs)
            # Without the first leader of a round.
            elections = sum(row.what == "term" and row.member != "" for row in audit)
            result.counts["fail-overs"] = elections - 1
            result.counts["batches"] = sum(row.what == "batch" for row in audit)
    except NotReady as error:
        stage.wrong(f"nobody serves: {error}")
    except TimeoutError as error:
        stage.wrong(f"the round came to no end: {error!r}")
    except (AmqpError, OSError, AssertionError, psycopg.Error) as error:
        stage.wrong(f"the round was broken off: {error!r}")
    finally:
        await stage.close()
        stage.ledger.close()
    result.violations = journal
    if is_whole:
        result.violations += check(stage.ledger.entries)
    else:
        # Of a ledger without an end, only this can be said.
        wrong = (entry.about["what"] for entry in stage.ledger.entries if entry.what == "wrong")
        result.violations += [Violation("wrong", what) for what in wrong]
    result.counts.update(summary(stage.ledger.entries))
    result.outages = find_outages(stage.ledger.entries)
    result.seconds = loop.time() - began
    return result
