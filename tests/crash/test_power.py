"""Power cuts: what was acknowledged is on the disk, not in a cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.campaign import cut_round
from tests.crash.processes import Starter
from tests.support.lanes import amount

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("seed", [1, 2][: amount(1, 2)])
async def test_power_cuts_lose_nothing(
    starter: Starter, folder: Path, disks: None, seed: int
) -> None:
    cuts = amount(3, 6)
    result = await cut_round(starter, seed, folder, cuts)
    assert not result.violations, result.describe()
    assert result.counts["power cut"] == cuts
    assert result.counts["sent and accepted"] > amount(80, 200)


@pytest.mark.slow
async def test_a_broker_that_only_pretends_to_sync_is_found_out(
    starter: Starter, folder: Path, disks: None
) -> None:
    result = await cut_round(starter, 1, folder, 2, sync=False)
    assert "lost" in {violation.rule for violation in result.violations}
