"""Several brokers in one query: read, added to it, lost from it; written to, each row once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import PySparkException

from ferrymq import blocking
from pyspark_ferrymq import lag_of
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, drain, follow, numbers, read
from tests.spark.sinking import expected, forget_commit, ledger, lines, rows, run, write_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Two(NamedTuple):
    """Two brokers with a store each."""

    a: BrokerProcess
    b: BrokerProcess

    @property
    def urls(self) -> str:
        return f"{self.a.url},{self.b.url}"


def config(folder: Path) -> str:
    return f'[[stream]]\npattern = "*"\npartitions = 2\n[store]\npath = "{folder}"\n'


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("stores")
    with BrokerProcess(config(folder / "a")) as a, BrokerProcess(config(folder / "b")) as b:
        yield Two(a, b)


def fill(broker: BrokerProcess, stream: str, count: int, first: int) -> None:
    with Streams(broker) as kit:
        kit.fill(stream, count, first)


def id_of(broker: BrokerProcess) -> str:
    with blocking.connect(broker.url) as connection:
        return str(connection.remote_properties["ferrymq:broker-id"])


def test_a_batch_over_two(spark: SparkSession, two: Two, address: str) -> None:
    fill(two.a, address, 20, 0)
    fill(two.b, address, 10, 100)
    frame = read(
        spark,
        two.a,
        url=two.urls,
        subscribe=address,
        schema="body binary, broker string, partition int, offset bigint",
    )
    rows = frame.collect()
    assert sorted(int(row.body) for row in rows) == [*range(20), *range(100, 110)]
    # Partition and offset alone are not unique, with the broker they are.
    assert len({(row.partition, row.offset) for row in rows}) == 20
    assert len({(row.broker, row.partition, row.offset) for row in rows}) == 30
    assert {row.broker for row in rows} == {id_of(two.a), id_of(two.b)}
    with pytest.raises(PySparkException, match="each offset has to name its broker"):
        start = json.dumps({address: {"0": 0, "1": 0}})
        read(spark, two.a, url=two.urls, subscribe=address, startingOffsets=start).collect()


def test_a_broker_is_added_and_lost(
    spark: SparkSession, two: Two, address: str, tmp_path: Path
) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"

    def run(url: str, **options: object) -> list[int]:
        frame = follow(
            spark,
            two.a,
            url=url,
            subscribe=address,
            startingOffsets="earliest",
            schema="body binary",
            maxOffsetsPerTrigger=12,
            **options,
        )
        drain(frame, checkpoint, output)
        return numbers(spark.read.schema("body binary").parquet(str(output)))

    fill(two.a, address, 20, 0)
    assert run(two.a.url) == [*range(20)]
    fill(two.a, address, 5, 20)
    fill(two.b, address, 10, 100)
    both = [*range(25), *range(100, 110)]
    assert run(two.urls) == both
    # The batch that is written down last is done again.
    last = max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()
    fill(two.b, address, 5, 110)
    assert run(two.urls) == sorted([*both, *range(110, 115)])
    fill(two.a, address, 5, 25)
    with pytest.raises(PySparkException) as caught:
        run(two.a.url)
    message = str(caught.value)
    assert "AmqpDataLossError" in message
    assert f"stream '{address}' at the broker '{id_of(two.b)}', partition 0" in message
    assert "no URL leads to this broker any more" in message
    everything = sorted([*both, *range(110, 115), *range(25, 30)])
    assert run(two.a.url, failOnDataLoss=False) == everything
    # It is back, as a broker that the query does not know any more.
    assert run(two.urls) == sorted([*everything, *range(100, 115)])


def test_a_task_is_killed_between_the_commits(
    spark: SparkSession, two: Two, address: str, tmp_path: Path
) -> None:
    """The worker is gone after the first broker has committed, and before the second one."""
    from pyspark_ferrymq.source import DefaultSource
    from pyspark_ferrymq.writing.stream_writer import StreamWriter

    mark = str(tmp_path / "mark")

    class Killed(StreamWriter):
        def write(self, iterator):  # type: ignore[no-untyped-def]
            from pyspark import TaskContext

            from pyspark_ferrymq.writing import many_brokers

            context = TaskContext.get()
            assert context is not None
            real, done = many_brokers.write_kept, []

            def killing(*arguments):  # type: ignore[no-untyped-def]
                if done and not os.path.exists(f"{mark}-{context.partitionId()}"):
                    Path(f"{mark}-{context.partitionId()}").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                done.append(real(*arguments))
                return done[-1]

            many_brokers.write_kept = killing  # type: ignore[assignment]
            try:
                return super().write(iterator)
            finally:
                many_brokers.write_kept = real

    class Source(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "amqp-killed"

        def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def]
            writer = super().streamWriter(schema, overwrite)
            killed = Killed.__new__(Killed)
            killed.__dict__.update(writer.__dict__)
            return killed

    spark.dataSource.register(Source)
    folder, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    for number in range(4):
        write_lines(folder, number, range(number * 100, number * 100 + 100))
    query = (
        lines(spark, folder)
        .writeStream.format("amqp-killed")
        .option("checkpointLocation", str(checkpoint))
        .option("url", two.urls)
        .option("address", address)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(one.name for one in tmp_path.glob("mark-*")) == ["mark-0", "mark-1"]
    found = [ledger(broker.url, address) for broker in two]
    assert found[0] + found[1] == expected(range(400))
    assert all(one.total() > 100 for one in found)
    # The last batch again, as after the end of the driver, and then more.
    forget_commit(checkpoint, 1)
    write_lines(folder, 9, range(400, 500))
    run(lines(spark, folder), checkpoint, url=two.urls, address=address)
    found = [ledger(broker.url, address) for broker in two]
    assert found[0] + found[1] == expected(range(500))


def test_the_list_is_changed_while_a_batch_is_not_done(
    spark: SparkSession, two: Two, address: str, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    write_lines(folder, 1, range(100))
    run(lines(spark, folder), checkpoint, url=two.a.url, address=address)
    forget_commit(checkpoint, 0)
    with pytest.raises(PySparkException, match="with other brokers than those"):
        run(lines(spark, folder), checkpoint, url=two.urls, address=address)
    run(lines(spark, folder), checkpoint, url=two.a.url, address=address)
    write_lines(folder, 2, range(100, 200))
    run(lines(spark, folder), checkpoint, url=two.urls, address=address)
    found = [ledger(broker.url, address) for broker in two]
    assert found[0] + found[1] == expected(range(200))
    assert found[1].total() > 20


def test_a_partition_needs_a_broker(spark: SparkSession, two: Two, address: str) -> None:
    frame = rows(spark, 10).selectExpr("body", "1 as partition")
    writer = frame.write.format("amqp").mode("append").option("address", address)
    with pytest.raises(PySparkException, match=r"'partition'.*add a column 'broker'"):
        writer.option("url", two.urls).save()
    named = frame.selectExpr("*", f"'{id_of(two.b)}' as broker")
    named.write.format("amqp").mode("append").option("address", address).option(
        "url", two.urls
    ).save()
    assert ledger(two.b.url, address) == expected(range(10))
    with Streams(two.b) as kit:
        assert kit.ranges(address)[1] == (0, 10)


def test_a_query_from_two_to_two(
    spark: SparkSession, two: Two, address: str, tmp_path: Path
) -> None:
    source, target = f"{address}-source", f"{address}-target"
    for broker, first in ((two.a, 0), (two.b, 1000)):
        fill(broker, source, 200, first)
    frame = follow(
        spark,
        two.a,
        url=two.urls,
        subscribe=source,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=150,
        schema="body binary, broker string",
    )
    frame = frame.selectExpr("concat('row-', cast(body as string)) as body")
    query = run(frame, tmp_path / "checkpoint", url=two.urls, address=target)
    found = [ledger(broker.url, target) for broker in two]
    assert found[0] + found[1] == expected(range(200), range(1000, 1200))
    lag = lag_of(query.recentProgress[0])  # type: ignore[arg-type]
    assert query.lastProgress is not None
    last = lag_of(query.lastProgress)  # type: ignore[arg-type]
    assert lag is not None and last is not None and last.total == 0
    assert set(last.brokers) == {id_of(two.a), id_of(two.b)}
