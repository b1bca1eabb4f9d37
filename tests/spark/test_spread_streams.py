"""A stream whose partitions are on several brokers: one URL leads to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from ferrymq import blocking
from ferrymq.partitioning import partition_of_key
from pyspark_ferrymq.brokers.spread_streams import expect_here, with_placement
from pyspark_ferrymq.errors import AmqpSourceError
from pyspark_ferrymq.options import BrokerOptions, Values
from pyspark_ferrymq.stream_metadata import StreamRanges
from tests.interop.broker_process import BrokerProcess
from tests.interop.brokers.process import free_ports
from tests.spark.kit import drain, follow, numbers, read
from tests.spark.sinking import forget_commit, lines, run, write_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SpreadCluster:
    """Brokers on three ports; those that run have two partitions each of the stream `orders`."""

    def __init__(self, folder: Path) -> None:
        self.ports = free_ports(3)
        self.folder = folder
        self.running: list[BrokerProcess] = []

    def start(self, count: int) -> None:
        """Start so many brokers, which know each other, with their stores."""
        self.stop()
        entries = [
            f"{2 * at}-{2 * at + 1} amqp://127.0.0.1:{port}"
            for at, port in enumerate(self.ports[:count])
        ]
        for number, port in enumerate(self.ports[:count]):
            broker = BrokerProcess(
                f'advertise = "amqp://127.0.0.1:{port}"\n'
                f'[store]\npath = "{self.folder / str(number)}"\n'
                f'[[stream]]\nname = "orders"\npartitions-on = {entries}\n'
            )
            broker.port = port
            broker.start()
            self.running.append(broker)

    def stop(self) -> None:
        """Stop all brokers in good order."""
        while self.running:
            self.running.pop().stop()

    def fill(self, first: int, count: int) -> None:
        """Records whose bodies are numbers, in all partitions in turn."""
        with (
            blocking.connect(self.running[0].url) as connection,
            connection.partitioned_sender("orders") as sender,
        ):
            sender.send_many([b"%d" % number for number in range(first, first + count)])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SpreadCluster]:
    with ExitStack() as stack:
        made = SpreadCluster(tmp_path / "stores")
        stack.callback(made.stop)
        made.start(2)
        yield made


def test_a_query_with_one_url_reads_all_partitions(
    spark: SparkSession, cluster: SpreadCluster, tmp_path: Path
) -> None:
    columns = "body binary, broker string, partition int, offset bigint"
    cluster.fill(0, 20)
    for broker in cluster.running:
        rows = read(spark, broker, subscribe="orders", schema=columns).collect()
        assert sorted(int(row.body) for row in rows) == [*range(20)]
        # The number of a partition counts in the whole stream.
        assert len({(row.partition, row.offset) for row in rows}) == 20
        assert {row.partition for row in rows} == {0, 1, 2, 3}
        assert len({row.broker for row in rows}) == 2
    only = read(spark, cluster.running[0], assign='{"orders": [3]}', schema=columns)
    assert {row.partition for row in only.collect()} == {3}
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"

    def copy(broker: BrokerProcess) -> list[int]:
        frame = follow(
            spark,
            broker,
            subscribe="orders",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=12,
            schema="body binary",
        )
        drain(frame, checkpoint, output)
        return numbers(spark.read.schema("body binary").parquet(str(output)))

    assert copy(cluster.running[0]) == [*range(20)]
    cluster.fill(20, 10)
    # The query goes on, whichever of the brokers it is given.
    assert copy(cluster.running[1]) == [*range(30)]
    # Another broker adds partitions.
    cluster.start(3)
    cluster.fill(30, 30)
    assert copy(cluster.running[0]) == [*range(60)]


def test_a_broker_that_is_not_there_is_missed(spark: SparkSession, cluster: SpreadCluster) -> None:
    cluster.fill(0, 4)
    cluster.running.pop().stop()
    with pytest.raises(PySparkException, match=f"127.0.0.1:{cluster.ports[1]} cannot be reached"):
        read(spark, cluster.running[0], subscribe="orders").collect()


def test_a_query_with_one_url_writes_to_all_partitions(
    spark: SparkSession, cluster: SpreadCluster, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    write_lines(folder, 0, range(100))
    write_lines(folder, 1, range(100, 200))
    frame = lines(spark, folder).withColumn("partitionKey", F.col("body"))
    for broker in cluster.running:
        # The second time the batch is repeated.
        run(frame, checkpoint, url=broker.url, address="orders")
        forget_commit(checkpoint, 0)
    write_lines(folder, 2, range(200, 300))
    run(frame, checkpoint, url=cluster.running[0].url, address="orders")
    job = {"address": "orders", "txnAppId": "job", "txnVersion": "1"}
    more = spark.range(300, 400, 1, 2).selectExpr("concat('row-', id) as body")
    for broker in cluster.running:
        writer = more.withColumn("partitionKey", F.col("body")).write.format("amqp")
        writer.options(url=broker.url, **job).mode("append").save()
    columns = "body string, partition int"
    found = read(spark, cluster.running[1], subscribe="orders", schema=columns).collect()
    assert sorted((row.body, row.partition) for row in found) == sorted(
        (f"row-{number}", partition_of_key(b"row-%d" % number, 4)) for number in range(400)
    )


# -- without Spark ------------------------------------------------------------------------------


def settings(url: str) -> BrokerOptions:
    return BrokerOptions.parse(Values({"url": url}))


def stream(*urls: str) -> StreamRanges:
    return StreamRanges("orders", "i", {}, {1: urls})


def test_other_brokers_get_the_same_login() -> None:
    given = settings("amqps://me:s%2Fcret@a.example?hostname=vhost:tenant")
    found = with_placement(given, [stream("amqp://b.example", "amqps://b.example:5673")])
    assert found.url == (
        "amqps://me:s%2Fcret@a.example?hostname=vhost:tenant,"
        "amqps://me:s%2Fcret@b.example:5673?hostname=vhost:tenant"
    )
    assert found.place == "amqps://me@a.example:5671, amqps://b.example:5673"
    assert with_placement(found, [stream("amqps://b.example:5673")]) is found


def test_all_brokers_have_tls_or_none() -> None:
    with pytest.raises(AmqpSourceError, match="partition 1 of the stream 'orders' is at amqp://b"):
        with_placement(settings("amqps://a.example"), [stream("amqp://b.example")])


def test_work_of_one_broker_says_what_is_elsewhere() -> None:
    expect_here([StreamRanges("orders", "i", {})], "amqp://a")
    with pytest.raises(AmqpSourceError, match="partition 1 of the stream 'orders' is at amqp://b"):
        expect_here([stream("amqp://b")], "amqp://a")
