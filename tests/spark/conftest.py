"""What the tests with Spark share: one session a process, a broker process, streams of one's own.

All go to one process of a run (`tests/conftest.py`), so that there is one Java process. Without
Java 17 or newer they are left out, which the end of the run says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.support.processes import own_address, show_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent

# Processes of minutes are not worth the second of Java's compilers, nor threads that collect.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The data source is interpreted on both builds. What it reads with is not: this meets both.
_BOTH = {"test_source_batch.py"}


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.is_relative_to(_HERE):
        item.add_marker(pytest.mark.spark)
        if item.path.name not in _BOTH:
            item.add_marker(pytest.mark.once)
        # A first job compiles a lot.
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session: two cores, a task is tried three times, nothing listens but on loopback."""
    from pyspark.sql import SparkSession

    # Spark looks for data sources, and runs tasks, with a Python that has our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    place = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("ferrymq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(place / "local"))
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


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
