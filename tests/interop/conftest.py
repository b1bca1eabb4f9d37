"""What these tests share: the broker, an address of one's own, the broker's log on failure."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator

import pytest

from tests.interop.broker_process import BrokerProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """One broker process for the tests of a module."""
    with BrokerProcess() as process:
        yield process


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address no other test uses."""
    return f"{request.node.originalname}-{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, BrokerProcess):
                report.sections.append((f"stderr of {name}", value.log[-8000:]))
    return report
