"""What these tests share: the broker, an address of one's own, the broker's log on failure."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.support.processes import own_address, show_logs


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """One broker process for the tests of a module."""
    with BrokerProcess() as process:
        yield process


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address no other test uses."""
    return own_address(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    show_logs(item, report, BrokerProcess)
    return report
