"""The capture sink: streams to files, once, whatever is retried or repeated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ferrymq.capture import (
    CaptureName,
    LocalPlace,
    coverage,
    read_stream_file,
    stream_folder,
)
from ferrymq.capture.place import leftovers_in, names_in
from pyspark_ferrymq import AmqpOptionError, AmqpWriteError, register
from pyspark_ferrymq.capture.commit import discard, settle
from pyspark_ferrymq.capture.options import CaptureSinkOptions
from pyspark_ferrymq.capture.write_task import WrittenFiles, write_runs
from pyspark_ferrymq.spark_api import ADMISSION_CONTROL
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import publish

if TYPE_CHECKING:

    from pyspark.sql import SparkSession

COLUMNS = ("body", "address", "partition", "offset", "enqueuedTime")
HOUR = 3_600_000_000
T0 = 492_000 * HOUR


CONFIG = "[[stream]]\npattern = '*'\npartitions = 2\ndurable = false\n"


def files_of(path: Path, stream: str) -> list[CaptureName]:
    return sorted(names_in(LocalPlace(path / stream_folder(stream))))


def bodies(path: Path, stream: str) -> list[int]:
    folder = path / stream_folder(stream)
    tables = [parquet.ParquetFile(folder / name.path).read() for name in files_of(path, stream)]
    return sorted(int(body) for table in tables for body in table["body"].to_pylist())


def archive(spark: SparkSession, broker: BrokerProcess, address: str, path: Path) -> None:
    """Run the query until it has all there is."""
    register(spark)
    reader = (
        spark.readStream.format("amqp")
        .option("url", broker.url)
        .option("subscribe", address)
        .option("startingOffsets", "earliest")
        .option("includeMetadata", "true")
        .option("includeRaw", "true")
    )
    if ADMISSION_CONTROL:
        reader = reader.option("maxOffsetsPerTrigger", "70")
    query = (
        reader.load()
        .writeStream.format("amqp_capture")
        .option("path", str(path / "capture"))
        .option("url", broker.url)
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(120)
    finally:
        query.stop()


def test_a_query_captures_and_goes_on(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 150)
    archive(spark, broker, address, tmp_path)
    assert bodies(tmp_path / "capture", address) == list(range(150))
    publish(broker, address, 150, 50)
    archive(spark, broker, address, tmp_path)
    assert bodies(tmp_path / "capture", address) == list(range(200))
    covered = coverage(files_of(tmp_path / "capture", address))
    assert [each.ranges for each in covered.values()] == [[(0, 100)], [(0, 100)]]
    said = read_stream_file(LocalPlace(tmp_path / "capture" / address))
    assert said is not None and said.stream == address and said.incarnation


def test_a_batch_that_comes_again_writes_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 60)
    archive(spark, broker, address, tmp_path)
    before = files_of(tmp_path / "capture", address)
    # The driver has died between naming the files and telling that the batch is done; it had named
    # one of two.
    commits = sorted((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda f: int(f.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    last = before[-1]
    (tmp_path / "capture" / address / last.path).unlink()
    archive(spark, broker, address, tmp_path)
    assert files_of(tmp_path / "capture", address) == before
    assert bodies(tmp_path / "capture", address) == list(range(60))
    assert leftovers_in(LocalPlace(tmp_path / "capture" / address)) == []


@pytest.mark.parametrize("limit", ["1024", "2147483647"], ids=["of few rows", "not weighed"])
def test_files_are_the_same_of_batches_of_any_size(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path, limit: str
) -> None:
    publish(broker, address, 0, 60)
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", limit)
    try:
        archive(spark, broker, address, tmp_path)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxBytesPerBatch")
    files = files_of(tmp_path / "capture", address)
    assert [(file.partition, file.first, file.last) for file in files] == [(0, 0, 29), (1, 0, 29)]
    for file in files:
        assert parquet.read_metadata(tmp_path / "capture" / address / file.path).num_row_groups == 1
    assert bodies(tmp_path / "capture", address) == list(range(60))


def test_a_stream_made_anew_is_refused(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    publish(broker, address, 0, 10)
    archive(spark, broker, address, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    file = tmp_path / "capture" / address / "_stream.json"
    said = read_stream_file(LocalPlace(file.parent))
    assert said is not None
    file.write_text(file.read_text().replace(said.incarnation, "another"))
    with pytest.raises(StreamingQueryException, match="another incarnation"):
        archive(spark, broker, address, tmp_path)


def test_options_and_columns_are_checked(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    register(spark)
    frame = spark.range(3)
    with pytest.raises(Exception, match="did you mean 'allowGaps'"):
        frame.write.format("amqp_capture").mode("append").option("allowGap", "true").save()
    writer = frame.write.format("amqp_capture").mode("append").option("path", str(tmp_path))
    with pytest.raises(Exception, match="capture files have no column 'id'"):
        writer.save()
    bare = frame.selectExpr("cast(null as binary) as body").write.format("amqp_capture")
    with pytest.raises(Exception, match="the column 'address' is missing"):
        bare.mode("append").option("path", str(tmp_path)).save()


def test_a_batch_of_a_range(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    register(spark)
    publish(broker, address, 0, 40)
    frame = spark.read.format("amqp").option("url", broker.url).option("subscribe", address).load()
    for _ in range(2):
        writer = frame.write.format("amqp_capture").mode("append")
        writer.option("path", str(tmp_path / "capture")).save()
    assert bodies(tmp_path / "capture", address) == list(range(40))


# -- without Spark: what tasks and the driver do ------------------------------------------------


def rows(first: int, count: int, time: int = T0, partition: int = 0) -> pa.RecordBatch:
    from ferrymq.arrow import schema_of

    offsets = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "body": [b"%d" % offset for offset in offsets],
            "address": ["orders"] * count,
            "partition": [partition] * count,
            "offset": list(offsets),
            "enqueuedTime": [time] * count,
        },
        schema=schema_of(COLUMNS),
    )


def task(path: Path, *batches: pa.RecordBatch, **options: Any) -> WrittenFiles:
    return write_runs(CaptureSinkOptions(path=str(path), **options), COLUMNS, iter(batches))


def commit(path: Path, *written: WrittenFiles, **options: Any) -> None:
    settle(CaptureSinkOptions(path=str(path), **options), written)


def test_files_end_with_hours_and_with_their_number_of_records(tmp_path: Path) -> None:
    written = task(
        tmp_path, rows(0, 5), rows(5, 2), rows(7, 3, T0 + HOUR), rows(0, 1, T0, 1),
        max_records_per_file=4,
    )  # fmt: skip
    assert files_of(tmp_path, "orders") == []
    commit(tmp_path, written)
    hour = T0 // HOUR
    assert files_of(tmp_path, "orders") == [
        CaptureName(hour, 0, 0, 3),
        CaptureName(hour, 0, 4, 6),
        CaptureName(hour, 1, 0, 0),
        CaptureName(hour + 1, 0, 7, 9),
    ]


def test_one_batch_with_several_runs(tmp_path: Path) -> None:
    batch = pa.Table.from_batches(
        [rows(0, 3), rows(3, 2, T0 + HOUR), rows(8, 4, T0, 1)]
    ).combine_chunks()
    commit(tmp_path, task(tmp_path, *batch.to_batches()))
    assert [name[1:] for name in files_of(tmp_path, "orders")] == [(0, 0, 2), (1, 8, 11), (0, 3, 4)]


def test_two_attempts_of_a_task_are_one(tmp_path: Path) -> None:
    first, second = task(tmp_path, rows(0, 5)), task(tmp_path, rows(0, 5))
    commit(tmp_path, second)
    discard(CaptureSinkOptions(path=str(tmp_path)), [first])
    assert bodies(tmp_path, "orders") == list(range(5))
    assert leftovers_in(LocalPlace(tmp_path / "orders")) == []


def test_what_attempts_leave_behind_goes_with_the_next_batch(tmp_path: Path) -> None:
    first, second = task(tmp_path, rows(0, 5)), task(tmp_path, rows(0, 5))
    # One attempt was ended before it could say anything; both were of one query.
    first.job = second.job = "query"
    [(tmp, _)] = first.files["orders"]
    folder = tmp_path / "orders" / Path(tmp).parent
    (tmp_path / "orders" / tmp).rename(folder / "_tmp-query-0-p0-0.parquet")
    (folder / "_tmp-other-0-p0-0.parquet").write_bytes(b"")
    commit(tmp_path, second)
    assert bodies(tmp_path, "orders") == list(range(5))
    left = leftovers_in(LocalPlace(tmp_path / "orders"))
    assert [Path(path).name for path in left] == ["_tmp-other-0-p0-0.parquet"]


def test_a_replay_cut_otherwise_replaces(tmp_path: Path) -> None:
    commit(tmp_path, task(tmp_path, rows(0, 5)))
    commit(tmp_path, task(tmp_path, rows(5, 3)))
    commit(tmp_path, task(tmp_path, rows(5, 7)))
    assert [name[2:] for name in files_of(tmp_path, "orders")] == [(0, 4), (5, 11)]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    commit(tmp_path, task(tmp_path, rows(0, 10)))
    with pytest.raises(AmqpWriteError, match=r"partition 0: .*p0-0-9.parquet has a part of the"):
        commit(tmp_path, task(tmp_path, rows(5, 10)))
    with pytest.raises(AmqpWriteError, match="end at 9, and the next row has the offset 12"):
        commit(tmp_path, task(tmp_path, rows(12, 10)))
    assert [name[2:] for name in files_of(tmp_path, "orders")] == [(0, 9)]
    commit(tmp_path, task(tmp_path, rows(12, 10), allow_gaps=True), allow_gaps=True)
    assert [name[2:] for name in files_of(tmp_path, "orders")] == [(0, 9), (12, 21)]


def test_rows_that_are_no_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AmqpWriteError, match="from 3 to before 5 are missing"):
        task(tmp_path, rows(0, 3), rows(5, 3))
    with pytest.raises(AmqpWriteError, match="offset 1 comes after that with 2"):
        task(tmp_path, rows(0, 3), rows(1, 3))
    with pytest.raises(AmqpWriteError, match="a row has no address"):
        columns = rows(0, 1).to_pydict() | {"address": [None]}
        task(tmp_path, pa.RecordBatch.from_pydict(columns, schema=rows(0, 1).schema))
    assert leftovers_in(LocalPlace(tmp_path / "orders")) == []


def test_options() -> None:
    with pytest.raises(AmqpOptionError, match="'path' is missing"):
        CaptureSinkOptions.parse({})
    assert CaptureSinkOptions.parse({"path": "x", "allowgaps": "true"}).allow_gaps
