"""Queries: where they begin, how far a batch goes, what a replay reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_ferrymq import LagListener
from pyspark_ferrymq.lag import Lag
from tests.interop.broker_process import PATIENCE, BrokerProcess
from tests.spark.kit import Streams, drain, eventually, follow, numbers


@pytest.fixture(scope="module")
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    with Streams(broker) as kit:
        yield kit


def written(spark: SparkSession, output: Path) -> list[int]:
    return numbers(spark.read.schema("body binary").parquet(str(output)))


def logged(checkpoint: Path) -> list[dict[str, dict[str, int]]]:
    """The ends of the batches in the log of a query, by stream and partition."""
    found = []
    for batch in sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        offset = json.loads(batch.read_text().splitlines()[-1])
        found.append({name: stream["p"] for name, stream in offset["streams"].items()})
    return found


def test_from_the_earliest_and_on(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 2)
    streams.fill(address, 100)
    frame = follow(
        spark, broker, subscribe=address, startingOffsets="earliest", schema="body binary"
    )
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    drain(frame, checkpoint, output)
    assert logged(checkpoint) == [{address: {"0": 50, "1": 50}}]
    streams.fill(address, 10, 100)
    drain(frame, checkpoint, output)
    assert written(spark, output) == list(range(110))
    # With nothing new there is no batch.
    drain(frame, checkpoint, output)
    assert len(logged(checkpoint)) == 2


def test_the_latest_is_where_the_query_began(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 1)
    streams.fill(address, 20)
    frame = follow(spark, broker, subscribe=address, schema="body binary")
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    drain(frame, checkpoint, output)
    assert logged(checkpoint) == [{address: {"0": 20}}]
    # What comes between two runs is read, though the query has never read anything.
    streams.fill(address, 5, 20)
    drain(frame, checkpoint, output)
    assert written(spark, output) == [20, 21, 22, 23, 24]


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_that_is_done_again_reads_the_same(
    spark: SparkSession,
    broker: BrokerProcess,
    streams: Streams,
    address: str,
    tmp_path: Path,
    batch: int,
) -> None:
    streams.create(address, 2)
    streams.fill(address, 100)
    read: dict[int, list[list[int]]] = {}

    def keep(frame: object, number: int) -> None:
        read.setdefault(number, []).append(numbers(frame))  # type: ignore[arg-type]

    def run() -> None:
        frame = follow(
            spark,
            broker,
            subscribe=address,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=40,
            schema="body binary",
        )
        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert [len(read[number][0]) for number in sorted(read)] == [40, 40, 20]
    # As if the query had died before it had written down that these are done.
    for number in range(batch, 3):
        (tmp_path / "commits" / str(number)).unlink()
        (tmp_path / "commits" / f".{number}.crc").unlink()
        if number > batch:
            (tmp_path / "offsets" / str(number)).unlink()
            (tmp_path / "offsets" / f".{number}.crc").unlink()
    streams.fill(address, 10, 100)
    run()
    assert read[batch][0] == read[batch][1]
    # A batch that was not written down is planned anew, with what there is now.
    again = [number for runs in read.values() for number in runs[-1]]
    assert sorted(again) == list(range(110))


def test_rows_and_bytes_in_a_batch(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 3)
    streams.publish(address, [b"%0100d" % number for number in range(90)])
    for option, most in (({"maxOffsetsPerTrigger": 20}, 20), ({"maxBytesPerTrigger": "3k"}, 36)):
        name = next(iter(option))
        frame = follow(
            spark, broker, subscribe=address, startingOffsets="earliest", **option  # type: ignore
        )
        query = drain(frame, tmp_path / name, tmp_path / f"{name}-output")
        rows = [p.numInputRows for p in query.recentProgress]
        assert sum(rows) == 90 and all(0 < n <= most for n in rows)
        assert len(rows) >= 3


def test_it_waits_until_there_is_enough(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 1)
    streams.fill(address, 1)
    frame = follow(
        spark,
        broker,
        subscribe=address,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="1h",
        schema="body binary",
    )
    output = tmp_path / "output"
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(output))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        # The first one waits for nobody.
        eventually(lambda: output.exists() and written(spark, output) == [0])
        eventually(lambda: sum(p.numInputRows for p in query.recentProgress) == 1)
        streams.fill(address, 5, 1)
        before = time.monotonic()
        while time.monotonic() < before + 1.5:
            assert sum(p.numInputRows for p in query.recentProgress) == 1
            time.sleep(0.1)
        streams.fill(address, 5, 6)
        eventually(lambda: written(spark, output) == list(range(11)))
    finally:
        query.stop()


def test_streams_and_partitions_that_come_later(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(f"{address}-1", 1)
    streams.fill(f"{address}-1", 3)
    frame = follow(
        spark,
        broker,
        subscribePattern=f"{address}-.",
        startingOffsets="latest",
        schema="body binary",
    )
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    drain(frame, checkpoint, output)
    streams.create(f"{address}-2", 1)
    streams.fill(f"{address}-2", 3, 10)
    streams.ask("UPDATE", "stream", f"{address}-1", partitions=2)
    streams.fill(f"{address}-1::1", 3, 20)
    drain(frame, checkpoint, output)
    assert written(spark, output) == [10, 11, 12, 20, 21, 22]
    assert logged(checkpoint)[-1] == {f"{address}-1": {"0": 3, "1": 3}, f"{address}-2": {"0": 3}}


def test_what_comes_after_it_has_begun_is_for_the_next_run(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 1)
    streams.fill(address, 30)
    seen: list[int] = []

    def keep(frame: object, number: int) -> None:
        streams.fill(address, 10, 1000)
        seen.extend(numbers(frame))  # type: ignore[arg-type]

    frame = follow(
        spark, broker, subscribe=address, startingOffsets="earliest", maxOffsetsPerTrigger=10
    )
    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == list(range(30))


def test_one_batch_with_all_there_is(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 2)
    streams.fill(address, 30)
    frame = follow(
        spark,
        broker,
        subscribe=address,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=10,
        schema="body binary",
    )
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "output"))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    assert written(spark, tmp_path / "output") == list(range(30))


def test_no_connection_stays_and_they_have_names(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 2)
    streams.fill(address, 10)
    # Workers keep the connections of earlier queries for a while.
    eventually(lambda: streams.others() == [])
    names: list[str] = []

    frame = follow(spark, broker, subscribe=address, startingOffsets="earliest", groupId="till-7")
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    try:
        stop = threading.Event()

        def watch() -> None:
            with Streams(broker) as kit:
                while not stop.is_set():
                    names.extend(kit.others())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            number = 10
            while not any(f"/query-{query.id}/read/" in name for name in names):
                streams.fill(address, 1000, number)
                number += 1000
                assert number < 1_000_000
        finally:
            stop.set()
            watcher.join(PATIENCE)
        assert any(name.startswith("till-7/driver/") for name in names)
        # One that has not said yet what it is called has no name.
        assert {name.split("/")[0] for name in names if name} == {"till-7"}
    finally:
        query.stop()
    eventually(lambda: streams.others() == [])


def test_no_connection_stays_after_all_there_is(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 2)
    streams.fill(address, 10)
    drain(
        follow(spark, broker, subscribe=address, startingOffsets="earliest"),
        tmp_path / "checkpoint",
        tmp_path / "output",
    )
    eventually(lambda: streams.others() == [])


def test_real_time_mode_is_not_for_python(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    """When this fails, Spark has opened the mode to Python, and the page on latency is wrong."""
    streams.create(address, 1)
    writer = follow(spark, broker, subscribe=address).writeStream.format("amqp")
    writer = writer.options(url=broker.url, address=address, checkpointLocation=str(tmp_path))
    with pytest.raises(PySparkException, match="STREAMING_REAL_TIME_MODE"):
        writer.outputMode("update").trigger(realTime="5 seconds").start()


def test_a_hold_goes_along(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 1, **{"max-records": 16})
    streams.fill(address, 10)
    frame = follow(
        spark,
        broker,
        subscribe=address,
        startingOffsets="earliest",
        hold="my-query",
        maxOffsetsPerTrigger=50,
        schema="body binary",
    )
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    drain(frame, checkpoint, output)
    # What the query has not read stays, whatever the limit says.
    streams.fill(address, 200, 10)
    assert streams.ranges(address)[0][0] <= 10
    drain(frame, checkpoint, output)
    assert written(spark, output) == list(range(210))
    # The hold is behind by one batch at most: Spark commits one when it plans the next.
    holds = streams.ask("READ", "stream", address)["holds"]
    assert [hold["holder"] for hold in holds] == ["my-query"]
    streams.fill(address, 50, 210)
    drain(frame, checkpoint, output)
    assert streams.ranges(address)[0][0] > 100


def test_the_lag_of_a_query(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 2)
    streams.fill(address, 40)
    lags: list[Lag] = []
    file = tmp_path / "lag.json"
    listener = LagListener(lags.append, file=file)
    spark.streams.addListener(listener)
    try:
        query = drain(
            follow(
                spark,
                broker,
                subscribe=address,
                startingOffsets="earliest",
                maxOffsetsPerTrigger=10,
            ),
            tmp_path / "checkpoint",
            tmp_path / "output",
        )

        def told() -> dict[str, object]:
            if not file.exists():
                return {}
            return json.loads(file.read_text())["queries"].get(str(query.id), {})

        eventually(lambda: told().get("running") is False)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.total for lag in lags] == [30, 20, 10, 0]
    assert lags[0].streams == {address: {0: 15, 1: 15}}
    assert told()["total"] == 0 and told()["streams"] == {address: {"0": 0, "1": 0}}
