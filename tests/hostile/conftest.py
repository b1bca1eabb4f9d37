"""Fixtures: a broker process and a witness for each module, and the two together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from tests.hostile.witness import Witness
from tests.raw.fixtures import address, broker, config, pytest_runtest_makereport
from tests.raw.process import Broker

__all__ = ["address", "broker", "config", "pytest_runtest_makereport", "site", "witness"]


@pytest.fixture(scope="module")
def witness(broker: Broker) -> Iterator[Witness]:
    """A client of that broker that has nothing to do with the attack."""
    with Witness(broker.port, broker.pid) as process:
        yield process


@pytest.fixture
def site(broker: Broker, witness: Witness) -> Iterator[Site]:
    """Where the attack is made; the broker must be well when it is over."""
    yield Site(broker, witness)
    broker.check()
