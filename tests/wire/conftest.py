"""Fixtures: a broker process for each module, and raw peers whose bytes nothing of ours makes."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.hostile.client import Client
from tests.hostile.process import Broker
from tests.support.processes import own_address, show_logs


@pytest.fixture(scope="module")
def config() -> str:
    """The configuration of the module's broker; a module may have its own."""
    return ""


@pytest.fixture(scope="module")
def broker(config: str) -> Iterator[Broker]:
    """One broker process for the tests of a module."""
    with Broker(config) as process:
        yield process


@pytest.fixture
def peer(broker: Broker) -> Iterator[Client]:
    """A raw peer of the broker with a session on channel 0."""
    with Client(broker.port) as client:
        yield client.begin()
    broker.check()


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test uses."""
    return own_address(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    show_logs(item, report, Broker)
    return report
