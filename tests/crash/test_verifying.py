"""What `ferrymq store verify` says of a store agrees with what a broker finds in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.verifying import verify_stores

pytestmark = [pytest.mark.crash, pytest.mark.slow]


async def test_no_store_is_condemned_that_opens_and_none_praised_that_lost(folder: Path) -> None:
    campaign = await verify_stores(1, 5, folder, lambda so_far: None)
    assert campaign.stores == 5 and campaign.damaged > 2
    assert campaign.refused > 0, "damage is found"
    assert not campaign.wrong
