"""What these tests share: the broker, an address of one's own, the broker's log on failure."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.broker.tls.pki import Pki
from tests.interop.broker_process import BrokerProcess
from tests.interop.tls_broker import configure
from tests.support.processes import own_address, show_logs

if TYPE_CHECKING:
    from proton.utils import BlockingConnection


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """One broker process for the tests of a module, with the module's ``CONFIG`` if it has one."""
    with BrokerProcess(getattr(request.module, "CONFIG", None)) as process:
        yield process


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    """A blocking connection of Proton to the broker."""
    # Without Proton the modules that use it are not collected.
    from tests.interop.proton_client import connect

    with connect(broker.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Pki]]:
    """A broker with TLS whose clients may show certificates, and the certificates around it."""
    pki, config = configure(tmp_path_factory.mktemp("tls"))
    with BrokerProcess(config, "amqps") as broker:
        yield broker, pki


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
