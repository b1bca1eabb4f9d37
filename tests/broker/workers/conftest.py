"""Fixtures: a broker of two workers for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.workers.several import WorkerBroker
from tests.raw.fixtures import address, config, pytest_runtest_makereport

__all__ = ["address", "broker", "config", "pytest_runtest_makereport"]


@pytest.fixture(scope="module")
def broker(config: str) -> Iterator[WorkerBroker]:
    """One broker of two workers for the tests of a module, whose ``CONFIG`` it has."""
    with WorkerBroker(config) as process:
        yield process
