"""Fixtures of the tests that talk to a broker process with raw bytes.

A conftest imports the names it offers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.raw.process import Broker
from tests.support.processes import own_address, show_logs


@pytest.fixture(scope="module")
def config(request: pytest.FixtureRequest) -> str:
    """The configuration of the module's broker: its ``CONFIG``, if it has one."""
    return getattr(request.module, "CONFIG", "")


@pytest.fixture(scope="module")
def broker(config: str) -> Iterator[Broker]:
    """One broker process for the tests of a module."""
    with Broker(config) as process:
        yield process


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test uses."""
    return own_address(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's log to the report of a test that failed."""
    report = yield
    show_logs(item, report, Broker)
    return report
