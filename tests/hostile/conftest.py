"""What these tests share: a broker and a witness for each module, and the two together."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.hostile.process import Broker
from tests.hostile.site import Site
from tests.hostile.witness import Witness
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


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address no other test uses."""
    return own_address(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    show_logs(item, report, Broker)
    return report
