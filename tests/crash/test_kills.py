"""SIGKILL under load: at any moment, while starting, and at the n-th call of a kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.campaign import call_round, kill_round
from tests.crash.kills import kill_after
from tests.crash.processes import Starter
from tests.crash.rounds import play_round
from tests.crash.stage import Stage
from tests.support.lanes import amount

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("seed", [1, 2][: amount(1, 2)])
async def test_kills_at_random_moments_lose_nothing(
    starter: Starter, folder: Path, seed: int
) -> None:
    result = await kill_round(starter, seed, folder, amount(6, 14))
    assert not result.violations, result.describe()
    assert result.counts["killed"] >= amount(4, 10)
    assert result.counts["sent and accepted"] > amount(200, 500)
    assert result.counts["committed"] > amount(1, 5)


async def test_kills_at_the_nth_write_lose_nothing(
    starter: Starter, folder: Path, strace: None
) -> None:
    result = await call_round(starter, 1, folder, amount(5, 12))
    assert not result.violations, result.describe()
    assert result.counts["killed at a call"] + result.counts["ended while starting"] >= amount(2, 6)


async def test_a_broker_without_a_store_is_found_out(starter: Starter, folder: Path) -> None:
    """The harness notices when a kill costs something."""
    stage = Stage(starter, 1, folder, memory=True)
    result = await play_round(stage, [kill_after(0.3)])
    found = {violation.rule for violation in result.violations}
    assert {"lost", "half"} <= found
