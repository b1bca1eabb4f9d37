"""Fixtures: a broker process for each module, and raw peers whose bytes nothing of ours makes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.raw.client import Client
from tests.raw.fixtures import address, broker, config, pytest_runtest_makereport
from tests.raw.process import Broker

__all__ = ["address", "broker", "config", "peer", "pytest_runtest_makereport"]


@pytest.fixture
def peer(broker: Broker) -> Iterator[Client]:
    """A raw peer of the broker with a session on channel 0."""
    with Client(broker.port) as client:
        yield client.begin()
    broker.check()
