"""Metrics: figures beside those of the ledger, windows written once, and a report to open."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ferrymq import Message, blocking
from pyspark_ferrymq.cli.error_messages import reason_of
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.pipelines.metrics import MetricsOptions, measured, run, windowed
from pyspark_ferrymq.pipelines.metrics_report import write_report
from pyspark_ferrymq.pipelines.stream_input import Choice
from pyspark_ferrymq.spark_api import ADMISSION_CONTROL
from pyspark_ferrymq.traffic import Traffic
from pyspark_ferrymq.traffic.run import run_producer
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_figures_are_those_of_the_ledger(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    traffic = Traffic(seed=3, count=2500, late=0.03, duplicates=0.04, prefix=address, queues=False)
    ledger = asyncio.run(run_producer({"url": broker.url}, traffic))
    options = MetricsOptions(
        connection={"url": broker.url},
        source=Choice(pattern=re.escape(address) + r"\..*"),
        window="365 days",
        once=True,
    )
    found = run(spark, options)
    figures = {
        row["address"]: (row["messages"], row["bytes"], row["late"], row["duplicates"])
        for row in found.rows
    }
    assert figures == {
        name: (counted.messages, counted.bytes, counted.late, counted.duplicates)
        for name, counted in ledger.addresses.items()
    }
    assert all(0 < row["p50"] < row["p95"] < row["p99"] <= row["slowest"] for row in found.rows)

    page = tmp_path / "report.html"
    write_report(page, found, options, "all of it")
    text = page.read_text("utf-8")
    assert text.count("Plotly.newPlot(") == 7
    assert f"<b>{ledger.messages:,}</b><span>messages</span>" in text
    # Whoever opens it needs no network.
    assert re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?(?:https?:)?//""", text) == []


def test_percentiles_windows_and_what_is_missing(spark: SparkSession) -> None:
    rows = [
        # A window of a hundred, of which each took a millisecond longer than the one before.
        ("a", b"xy", NOON + timedelta(seconds=i / 4), i + 1, f"m-{i % 97}") for i in range(100)
    ]  # fmt: skip
    rows += [("a", b"", NOON + timedelta(seconds=60), 120_000, None)] * 2
    rows += [("b", None, NOON + timedelta(seconds=5), None, "m-1")]
    frame = spark.createDataFrame(
        [
            (address, body, at, None if took is None else at - timedelta(milliseconds=took), id)
            for address, body, at, took, id in rows
        ],
        "address string, body binary, enqueuedTime timestamp, creationTime timestamp,"
        " messageId string",
    )
    first, second, other = (
        windowed(measured(frame, "1 minute"), "30 seconds").sort("address", "start").collect()
    )
    assert (first["messages"], first["bytes"], first["late"]) == (100, 200, 0)
    assert (first["p50"], first["p95"], first["p99"], first["slowest"]) == (50, 95, 99, 100)
    assert first["duplicates"] == 3
    assert (second["messages"], second["late"], second["duplicates"]) == (2, 2, 0)
    assert (other["messages"], other["bytes"], other["p50"], other["late"]) == (1, 0, None, 0)


def made_at(minute: float, number: int) -> Message:
    moment = NOON + timedelta(minutes=minute)
    return Message(
        b"12345", message_id=f"{number}", creation_time=int(moment.timestamp() * 1000)
    )  # fmt: skip


def results(broker: BrokerProcess, address: str, count: int) -> list[dict[str, object]]:
    """All results there are: `count`, and no more."""
    with blocking.connect(broker.url) as connection:
        receiver = connection.receiver(address, start="first", credit=0)
        receiver.add_credit(1000)
        receiver.drain(timeout=30)
        found = receiver.receive_many(1000, timeout=5)
    assert len(found) == count
    return [json.loads(delivery.message.body) for delivery in found]


def test_windows_come_once_when_they_are_over_and_are_written_once(
    spark: SparkSession,
    broker: BrokerProcess,
    address: str,
    tmp_path: Path,
    cell: Callable[[str], None],
) -> None:
    options = MetricsOptions(
        connection={"url": broker.url},
        source=Choice(streams=(address,)),
        by="created",
        window="1 minute",
        watermark="2 minutes",
        to=f"{address}.results",
        parquet=str(tmp_path / "parquet"),
        checkpoint=str(tmp_path / "checkpoint"),
        once=True,
    )
    with Streams(broker) as streams:
        streams.create(address, 2)
        streams.create(options.to or "")
        streams.publish(address, [made_at(i / 10, i) for i in range(50)])
        seen = run(spark, options).rows
        if not ADMISSION_CONTROL:
            # An old Spark ends a query without the batch that comes after the last records.
            streams.publish(address, [made_at(5, 100)])
            assert (len(seen), [row["messages"] for row in run(spark, options).rows]) == (
                0,
                [10, 10],
            )
            cell("in the next run")
            return
        # Until 12:04:54 there are records: until 12:02 windows are over.
        assert [row["messages"] for row in seen] == [10, 10]
        # Too late for 12:01, in time for 12:03; and what ends the others.
        streams.publish(address, [made_at(1, 100), made_at(3, 101), made_at(20, 102)])
        again = run(spark, options)
        assert [row["messages"] for row in again.rows] == [10, 11, 10]
        assert again.course.dropped
        written = results(broker, options.to or "", 5)
        assert [row["messages"] for row in written] == [10, 10, 10, 11, 10]
        assert str(written[3]["start"]).startswith("2026-03-02T12:03:00")
        # The driver dies after the last batch with results, and before Spark has noted it.
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in commits.iterdir():
            if path.name.strip(".").split(".")[0] == str(last):
                path.unlink()
        replayed = run(spark, options)
        assert replayed.rows == again.rows
        assert results(broker, options.to or "", 5) == written
    table = spark.read.parquet(str(tmp_path / "parquet"))
    assert sorted(row["messages"] for row in table.collect()) == [10, 10, 10, 10, 11]


def test_what_cannot_be_kept_is_said(spark: SparkSession, broker: BrokerProcess) -> None:
    options = MetricsOptions(
        connection={"url": broker.url}, source=Choice(streams=("no-such-stream",)), to="x"
    )
    with pytest.raises(AmqpOptionError, match="give --checkpoint DIR"):
        run(spark, options)
    with pytest.raises(Exception, match="no-such-stream") as caught:
        run(spark, replace(options, to=None, once=True))
    said = reason_of(caught.value)
    assert "no-such-stream" in said
    assert "\n" not in said and "Traceback" not in said
    with pytest.raises(AmqpOptionError, match="is not a time"):
        Choice(streams=("a",), start="yesterday").batch()
    with pytest.raises(AmqpOptionError, match="choose streams"):
        Choice()
