"""What holds on each version of Spark, and what an old one refuses: `tests.spark.versions` runs
these tests on all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from pyspark_ferrymq.spark_api import ADMISSION_CONTROL
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, drain, eventually, follow, numbers, read
from tests.spark.sinking import (
    expected,
    forget_commit,
    ledger,
    lines,
    messages_at,
    run,
    write_lines,
)
from tests.spark.versions.copy_query import copy
from tests.spark.versions.obtain import ROOT, folder_of, release_of
from tests.spark.versions.results import PAGE, page, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Clocks are set back at 06:00 UTC: the local time 01:30 comes twice.
_ZONE, _TWICE = "America/New_York", (1_793_511_000_123, 1_793_514_600_123)


@pytest.fixture(scope="module")
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    with Streams(broker) as kit:
        yield kit


def test_every_record_once_through_restarts_and_repeated_batches(
    spark: SparkSession,
    broker: BrokerProcess,
    streams: Streams,
    address: str,
    tmp_path: Path,
    cell: Callable[[str], None],
) -> None:
    streams.create(address, 2)
    streams.fill(address, 60)
    batches: dict[int, list[int]] = {}

    def keep(frame: DataFrame, number: int) -> None:
        found = numbers(frame)
        assert batches.get(number, found) == found, "a repeated batch has other records"
        batches[number] = found

    def go_on() -> None:
        frame = follow(
            spark, broker, subscribe=address, startingOffsets="earliest", schema="body binary"
        )
        writer = frame.writeStream.foreachBatch(keep).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    def all_read() -> list[int]:
        return sorted(number for batch in batches.values() for number in batch)

    go_on()
    assert all_read() == list(range(60))
    if len(batches) == 1:
        cell("yes, in one batch")
    forget_commit(tmp_path, max(batches))
    streams.fill(address, 40, 60)
    # An old Spark ends after the batch that it repeats.
    go_on()
    go_on()
    assert all_read() == list(range(100))
    count = len(batches)
    go_on()
    assert len(batches) == count


def test_limits_with_available_now(
    spark: SparkSession,
    broker: BrokerProcess,
    streams: Streams,
    address: str,
    tmp_path: Path,
    cell: Callable[[str], None],
) -> None:
    streams.create(address)
    streams.fill(address, 50)
    frame = follow(
        spark, broker, subscribe=address, startingOffsets="earliest", maxOffsetsPerTrigger=20
    )
    if ADMISSION_CONTROL:
        query = drain(frame, tmp_path / "checkpoint", tmp_path / "output")
        assert [each.numInputRows for each in query.recentProgress] == [20, 20, 10]
        return
    with pytest.raises(
        PySparkException, match=r"needs Spark 4\.2 or newer, or the option"
    ) as caught:
        drain(frame, tmp_path / "checkpoint", tmp_path / "output")
    assert "UnboundLocalError" not in str(caught.value)
    cell("refused")


def test_limits_with_a_trigger_that_is_named(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address)
    streams.fill(address, 50)
    sizes: list[int] = []
    frame = follow(
        spark,
        broker,
        subscribe=address,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=20,
        trigger="processingTime",
        schema="body binary",
    )
    query = (
        frame.writeStream.foreachBatch(lambda frame, number: sizes.append(frame.count()))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        eventually(lambda: query.exception() is not None or sum(sizes) >= 50)
    finally:
        query.stop()
    assert sizes == [20, 20, 10]


def test_times_are_the_same_in_every_time_zone(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    """A local time that comes twice stays the instant that it was: read, written in a batch, and
    written by a query."""
    streams.create(f"{address}-1")
    streams.create(f"{address}-2")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", _ZONE)
    try:
        for file, moment in enumerate(_TWICE):
            write_lines(tmp_path / "lines", file, range(moment, moment + 1))
        made = "timestamp_millis(cast(substring(body, 5) as bigint)) as creationTime"
        frame = lines(spark, tmp_path / "lines").selectExpr("body", made)
        run(frame, tmp_path / "checkpoint", url=broker.url, address=f"{address}-1")
        once = read(spark, broker, subscribe=f"{address}-1", includeMetadata=True)
        copy = once.select("body", "creationTime").write.format("amqp").mode("append")
        copy.options(url=broker.url, address=f"{address}-2").save()
        again = read(spark, broker, subscribe=f"{address}-2", includeMetadata=True)
        rows = again.selectExpr("unix_millis(creationTime) as at").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert sorted(row.at for row in rows) == list(_TWICE)
    for name in (f"{address}-1", f"{address}-2"):
        found = messages_at(broker.url, name, start="first")
        assert sorted(int(one.creation_time or 0) for one in found) == list(_TWICE)


def test_a_query_moves_to_a_newer_spark_and_back(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    """The first batch, done on the oldest version, is repeated on the newest."""
    if release_of("4.0") is None or not ADMISSION_CONTROL:
        pytest.skip("it takes Spark 4.0 (`make old-sparks`) and the newest")
    source, target, checkpoint = f"{address}-1", f"{address}-2", tmp_path / "checkpoint"
    given = (broker.url, source, target, str(checkpoint))
    path = os.pathsep.join([str(folder_of("4.0")), os.environ.get("PYTHONPATH", "")])

    def on_the_oldest() -> None:
        command = [sys.executable, "-m", "tests.spark.versions.copy_query", *given]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True)

    streams.create(source, 2)
    streams.create(target)
    for number, go_on in enumerate((on_the_oldest, lambda: copy(spark, *given), on_the_oldest)):
        rows = range(number * 50, number * 50 + 50)
        streams.publish(source, [b"row-%d" % row for row in rows])
        go_on()
        assert ledger(broker.url, target) == expected(range(rows.stop))
        if number == 0:
            forget_commit(checkpoint, 0)


def test_the_page_has_the_results_of_the_run() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run `python -m tests.spark.versions page`"
    assert "| no |" not in table() and "not run" not in table()
