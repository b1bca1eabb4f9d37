"""Records that are gone, streams made anew, brokers that come and go."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_ferrymq.spark_api import ADMISSION_CONTROL
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, drain, eventually, follow, numbers, read


@pytest.fixture(scope="module")
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    with Streams(broker) as kit:
        yield kit


def test_records_that_are_gone(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 2)
    streams.fill(address, 20)
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"

    def run(**options: object) -> None:
        drain(
            follow(
                spark,
                broker,
                subscribe=address,
                startingOffsets="earliest",
                schema="body binary",
                **options,
            ),
            checkpoint,
            output,
        )

    run()
    streams.fill(address, 20, 20)
    streams.trim(address)
    streams.fill(address, 20, 40)
    with pytest.raises(PySparkException) as caught:
        run()
    message = str(caught.value)
    assert "AmqpDataLossError" in message
    assert (
        f"stream '{address}', partition 0: expected offsets from 10 on, available from 20 to"
        " before 30" in message
    )
    assert "'failOnDataLoss' to false" in message
    run(failOnDataLoss=False, **({"maxOffsetsPerTrigger": 8} if ADMISSION_CONTROL else {}))
    there = numbers(spark.read.schema("body binary").parquet(str(output)))
    assert there == [*range(20), *range(40, 60)]


def test_a_batch_over_records_that_are_gone(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address, 1)
    streams.fill(address, 20)
    streams.trim(address)
    streams.fill(address, 5, 20)
    start = json.dumps({address: {"0": 7}})
    with pytest.raises(PySparkException, match="expected offsets from 7 on, available from 20"):
        read(spark, broker, subscribe=address, startingOffsets=start).collect()
    rest = read(spark, broker, subscribe=address, startingOffsets=start, failOnDataLoss=False)
    assert numbers(rest) == [20, 21, 22, 23, 24]


def test_records_that_go_between_planning_and_reading(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address, 1)
    streams.fill(address, 20)
    for fails in (True, False):
        frame = read(spark, broker, subscribe=address, failOnDataLoss=fails, schema="body binary")
        # Planned now: what is read is decided.
        rdd = frame.rdd
        rdd.getNumPartitions()
        first, end = streams.ranges(address)[0]
        streams.trim(address)
        streams.fill(address, 5, 1000)
        if fails:
            says = f"expected offsets {first} to before {end}|from {first} to before {end}"
            with pytest.raises(Exception, match=says):
                rdd.collect()
        else:
            assert rdd.collect() == []


def test_a_stream_made_anew(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    streams.create(address, 1)
    streams.fill(address, 20)

    def run(**options: object) -> None:
        frame = follow(
            spark,
            broker,
            subscribe=address,
            startingOffsets="earliest",
            schema="body binary",
            **options,
        )
        drain(frame, tmp_path / "checkpoint", tmp_path / "output")

    run()
    streams.delete(address)
    with pytest.raises(PySparkException, match="available nothing; there is no such stream"):
        run()
    # More records than before: offsets alone would not tell.
    streams.create(address, 1)
    streams.fill(address, 30, 100)
    with pytest.raises(PySparkException, match="deleted and made again"):
        run()
    run(failOnDataLoss=False)
    there = numbers(spark.read.schema("body binary").parquet(str(tmp_path / "output")))
    assert there == [*range(20), *range(100, 130)]


def test_a_batch_that_cannot_be_done_again(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str, tmp_path: Path
) -> None:
    """Its end is in the log, and the stream has not got so far any more: nobody waits for it."""
    streams.create(address, 1)
    streams.fill(address, 20)
    frame = follow(
        spark, broker, subscribe=address, startingOffsets="earliest", schema="body binary"
    )
    checkpoint = tmp_path / "checkpoint"
    drain(frame, checkpoint, tmp_path / "output")
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    log = checkpoint / "offsets" / "1"
    log.write_text(log.read_text().replace('"0": 20', '"0": 50'))
    (checkpoint / "offsets" / ".1.crc").unlink()
    with pytest.raises(
        PySparkException, match="from 0 to before 50, available from 0 to before 20"
    ):
        # Written elsewhere, where the batch has not been written yet.
        drain(frame, checkpoint, tmp_path / "another")


def test_bad_credentials(spark: SparkSession) -> None:
    config = '[security.users]\nreader = "open sesame"\n'
    with BrokerProcess(config) as broker:
        frame = read(spark, broker, subscribe="orders", username="reader", password="geheim")
        with pytest.raises(PySparkException, match="refuses the login of 'reader'") as caught:
            frame.collect()
        assert "geheim" not in str(caught.value)
        good = read(
            spark,
            broker,
            subscribePattern=".*",
            username="reader",
            password="open sesame",
            schema="offset bigint",
        )
        assert good.count() == 0


STORED = """
[store]
path = "store"

[[stream]]
name = "stored"
partitions = 2
"""


def test_a_broker_that_dies_while_a_batch_is_read(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess(STORED) as broker:
        with Streams(broker) as kit:
            kit.fill("stored", 20_000)
        begun, go_on = tmp_path / "begun", tmp_path / "go-on"

        def slowly(rows: Iterator[object]) -> Iterator[int]:
            """In a task: stop after some rows until the broker is back."""
            import time

            for number, row in enumerate(rows):
                if number == 1000:
                    begun.touch()
                    while not go_on.exists():
                        time.sleep(0.02)
                yield int(row.body)  # type: ignore[attr-defined]

        def kill() -> None:
            eventually(begun.exists)
            broker.kill()
            broker.start()
            go_on.touch()

        frame = read(
            spark, broker, subscribe="stored", maxRecordsPerBatch=200, schema="body binary"
        )
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            found = frame.rdd.mapPartitions(slowly).collect()
        finally:
            killer.join()
        assert sorted(found) == list(range(20_000))


def test_a_broker_that_is_started_again_between_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    with BrokerProcess(STORED) as broker:
        with Streams(broker) as kit:
            kit.fill("stored", 100)
        output = tmp_path / "output"
        frame = follow(
            spark, broker, subscribe="stored", startingOffsets="earliest", schema="body binary"
        )

        def there() -> list[int]:
            if not output.exists():
                return []
            return numbers(spark.read.schema("body binary").parquet(str(output)))

        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(output))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            eventually(lambda: there() == list(range(100)))
            broker.kill()
            broker.start()
            with Streams(broker) as kit:
                kit.fill("stored", 100, 100)
            eventually(lambda: there() == list(range(200)))
            assert query.exception() is None
        finally:
            query.stop()


def test_a_task_waits_again_for_a_broker_that_cannot_be_reached(
    broker: BrokerProcess, streams: Streams, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as `fetchOffset.numRetries` says, as it does when a connection is lost."""
    from pyspark_ferrymq import worker_connections
    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.options.connection import AmqpUnreachableError
    from pyspark_ferrymq.read_columns import ReadColumns
    from pyspark_ferrymq.reading import read_task
    from pyspark_ferrymq.task_planning import OffsetRange

    streams.create(address, 1)
    streams.fill(address, 20)
    connect, away = worker_connections.connect, [3]

    def sometimes(*arguments: object, **options: object) -> object:
        if away[0]:
            away[0] -= 1
            raise AmqpUnreachableError("the broker is away")
        return connect(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(worker_connections, "connect", sometimes)
    options = SourceOptions.parse({"url": broker.url, "subscribe": address})
    whole = OffsetRange(address, "", 0, 0, 20)
    body = ReadColumns(("body",))
    assert sum(len(batch) for batch in read_task.read_range(options, body, whole)) == 20
    away[0] = 4
    with pytest.raises(AmqpUnreachableError, match="away"):
        list(read_task.read_range(options, body, whole))
