"""The tutorial works when a newcomer does exactly what it says, in a new environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.tutorial import ROOT, Newcomer, build_wheel

TUTORIAL = ROOT / "docs/tutorial"


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    somebody = Newcomer(tmp_path_factory.mktemp("tutorial"), wheel)
    yield somebody
    somebody.stop_broker()


@pytest.mark.timeout(400)
def test_a_killed_worker_loses_nothing(newcomer: Newcomer) -> None:
    newcomer.follow(TUTORIAL / "README.md")
    orders = {f"order {number}" for number in range(1, 11)}
    printed = newcomer.printed
    assert {line.removeprefix("sent ") for line in printed if line.startswith("sent ")} == orders
    packed = [line.removeprefix("packed ") for line in printed if line.startswith("packed ")]
    assert set(packed) == orders
    assert len(packed) <= len(orders) + 1, "only the order in hand is packed twice"
    # What was sent before the broker was stopped is there again.
    assert newcomer.waits("orders") == [f"order {number}" for number in range(1, 11)]
    assert newcomer.waits("orders.dead") == []
