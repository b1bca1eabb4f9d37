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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_worker_tries_again_gives_up_and_outlives_its_broker(newcomer: Newcomer) -> None:
    """In the environment, and with the broker, of the first page."""
    began = len(newcomer.printed)
    newcomer.follow(TUTORIAL / "worker.md")
    printed = newcomer.printed[began:]
    done = {f"order {number}" for number in range(1, 11)} - {"order 7"}
    # Three times: by hand, by the worker, and after the broker was away.
    packed = [line.removeprefix("packed ") for line in printed if line.startswith("packed ")]
    assert {order: packed.count(order) for order in packed} == dict.fromkeys(done, 3)
    assert printed.count("failed: order 7 is too heavy") == 4
    assert printed.count("attempt 2: order 3") == 2
    assert printed.count("attempt 1: order 7") == 2
    assert newcomer.waits("orders") == []
    assert newcomer.waits("orders.dead") == ["order 7"] * 3
