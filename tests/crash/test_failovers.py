"""Fail-overs under load: brokers and their database are killed, stopped and parted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.failovers import database_faults, member_faults
from tests.crash.failovers.cluster_stage import ClusterStage
from tests.crash.failovers.failover_rounds import failover_round, play_failovers
from tests.crash.failovers.faults import Faults
from tests.crash.processes import Starter

pytestmark = [pytest.mark.crash, pytest.mark.once]

FEW: Faults = [
    ("kill leader", member_faults.kill_leader),
    ("promote database", database_faults.promote_database),
]


async def test_failovers_lose_nothing(starter: Starter, folder: Path, postgresql: None) -> None:
    result = await play_failovers(ClusterStage(starter, 1, folder), FEW)
    assert not result.violations, result.describe()
    # One after the kill, one before the second look.
    assert result.counts["fail-overs"] >= 2
    assert result.counts["sent and accepted"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_faults_of_all_kinds_lose_nothing(
    starter: Starter, folder: Path, postgresql: None, seed: int
) -> None:
    result = await failover_round(starter, seed, folder, 10)
    assert not result.violations, result.describe()
    assert result.counts["sent and accepted"] > 500


@pytest.mark.slow
async def test_a_missing_fence_is_found_out(
    starter: Starter, folder: Path, postgresql: None
) -> None:
    environment = {"FERRYMQ_UNSAFE_NO_FENCE": "1"}
    stage = ClusterStage(starter, 1, folder, environment=environment)
    result = await play_failovers(stage, [("fence late leader", member_faults.fence_late_leader)])
    assert "not fenced" in {violation.rule for violation in result.violations}


@pytest.mark.slow
async def test_commits_that_do_not_wait_for_the_standby_are_found_out(
    starter: Starter, folder: Path, postgresql: None
) -> None:
    stage = ClusterStage(starter, 1, folder, environment={"FERRYMQ_UNSAFE_NO_SYNC": "1"})
    result = await play_failovers(
        stage, [("promote late database", database_faults.promote_late_database)]
    )
    found = {violation.rule for violation in result.violations}
    assert {"lost", "redelivered"} & found
