"""What the tests with Spark share: one session a process, a broker process, streams of one's own.

All go to one process of a run (`tests/conftest.py`), so that there is one Java process. Without
Java 17 or newer they are left out, which the end of the run says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.spark.worker_python import write_worker_python
from tests.support.processes import own_address, show_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent

# Processes of minutes are not worth the second of Java's compilers, nor threads that collect.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The data source is interpreted on both builds. What it reads with is not: this meets both.
_BOTH = {"test_source_batch.py"}


# Of the tests with a session, those that `make test` runs: each way in and out of Spark works once.
# A query takes seconds whatever it is about; `make test-all` runs them all.
_SLICE = {
    "test_capture_reading.py": {"test_what_the_broker_has_captured", "test_gaps_and_overlaps"},
    "test_capture_sink.py": {"test_a_query_captures_and_goes_on"},
    "test_foreign_event_hubs.py": {
        "test_a_hub_is_read_like_a_stream",
        "test_from_here_to_there_by_a_consumer_group",
        "test_from_a_time_on",
        "test_what_retention_has_taken",
        "test_rows_into_a_hub_by_their_keys",
        "test_what_is_not_there",
        "test_who_may_not",
    },
    "test_failover.py": {"test_a_query_follows_the_broker"},
    "test_many_brokers.py": {"test_a_query_from_two_to_two"},
    "test_kafka_columns.py": {"test_the_columns_of_kafka", "test_rows_of_kafka_are_written"},
    "test_pipelines_archive.py": {
        "test_everything_is_archived_once_and_held_until_then",
        "test_live_alone_byte_for_byte",
    },
    "test_pipelines_metrics.py": {
        "test_figures_are_those_of_the_ledger",
        "test_what_cannot_be_kept_is_said",
    },
    "test_pipelines_triage.py": {
        "test_groups_are_those_of_the_ledger",
        "test_what_is_chosen_goes_back_and_the_rest_stays",
    },
    "test_queue_browse.py": {
        "test_all_there_is_and_nothing_is_taken",
        "test_selectors",
        "test_options_that_make_no_sense",
    },
    "test_queue_consume.py": {"test_a_batch_that_failed_is_repeated_with_the_same_messages"},
    "test_queues_of_proton.py": {"test_all_there_is_and_nothing_is_taken"},
    "test_round_trip.py": {"test_bodies_of_every_type_are_written_as_they_were_read"},
    "test_sink_batch.py": {
        "test_every_row_once_in_a_stream",
        "test_a_task_that_fails_after_its_commit_writes_nothing_twice",
        "test_queues_and_topics",
        "test_a_column_says_where_each_row_goes",
        "test_partitions_and_keys",
        "test_every_column",
        "test_raw_messages_and_values",
        "test_rows_that_are_refused_are_named",
        "test_what_is_too_large_is_named",
        "test_mistakes_are_told_before_a_task_runs",
    },
    "test_sink_fences.py": {
        "test_a_checkpoint_that_is_older_than_the_target_is_refused",
        "test_a_job_with_a_lower_version_is_refused",
        "test_a_batch_with_other_rows_is_refused",
    },
    "test_sink_streaming.py": {
        "test_a_batch_that_is_repeated_writes_nothing_twice",
        "test_a_batch_that_was_begun_by_more_tasks_is_noticed",
    },
    "test_source_batch.py": {
        "test_everything_there_is",
        "test_all_columns",
        "test_from_offsets_to_offsets",
        "test_by_time",
        "test_what_is_not_there_is_named",
        "test_wrong_options_show_at_load",
    },
    "test_source_filters.py": {"test_a_selector"},
    "test_source_loss.py": {"test_records_that_are_gone", "test_bad_credentials"},
    "test_source_stream.py": {
        "test_from_the_earliest_and_on",
        "test_a_batch_that_is_done_again_reads_the_same",
        "test_rows_and_bytes_in_a_batch",
        "test_the_lag_of_a_query",
    },
}


def _is_slow(item: pytest.Item) -> bool:
    name = getattr(item, "originalname", item.name)
    return "spark" in getattr(item, "fixturenames", ()) and name not in _SLICE.get(
        item.path.name, ()
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.is_relative_to(_HERE):
        if _is_slow(item):
            item.add_marker(pytest.mark.slow)
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
    place = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = write_worker_python(place)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
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
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """One broker process for the tests of a module, with the module's ``CONFIG`` if it has one."""
    with BrokerProcess(getattr(request.module, "CONFIG", None)) as process:
        yield process


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address no other test uses."""
    return own_address(request)


@pytest.fixture
def cell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Gives the test's cell in the table of versions another text than "yes"."""

    def say(text: str) -> None:
        request.node.user_properties.append(("cell", text))

    return say


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    show_logs(item, report, BrokerProcess)
    return report
