"""Queues consumed by queries: leases for each batch, settled when the batch is committed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pyspark.errors import StreamingQueryException

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import PATIENCE, eventually, follow, publish, take_all
from tests.spark.worker_python import write_worker_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[[queue]]
pattern = "*"

[[queue]]
pattern = "*-poison"
delivery-limit = 1
dead-letter = "letters"
"""


class Consuming:
    """A query that keeps what each batch has read."""

    def __init__(
        self, spark: SparkSession, broker: BrokerProcess, checkpoint: Path, **options: object
    ) -> None:
        self.read: dict[int, list[list[int]]] = {}
        self.checkpoint = checkpoint
        # The batches that fail, after they have read everything.
        self.fails: set[int] = set()
        self.frame = follow(spark, broker, queueMode="consume", schema="body binary", **options)

    def _keep(self, frame: DataFrame, batch: int) -> None:
        rows = sorted(int(row.body) for row in frame.collect())
        self.read.setdefault(batch, []).append(rows)
        if batch in self.fails:
            raise RuntimeError("the batch fails")

    def run(self) -> None:
        """Run until what there is has been read."""
        query = (
            self.frame.writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def fail(self, batch: int) -> None:
        """Run, and fail in this batch."""
        self.fails = {batch}
        with pytest.raises(StreamingQueryException, match="the batch fails"):
            self.run()
        self.fails = set()

    @property
    def all(self) -> list[int]:
        """What all batches have read, as often as they did."""
        return sorted(row for runs in self.read.values() for rows in runs for row in rows)


def leases(broker: BrokerProcess, queue: str) -> list[dict[str, Any]]:
    with blocking.connect(broker.url) as connection, connection.management() as management:
        found: list[dict[str, Any]] = management.request("LIST-LEASES", "queue", queue, {}).map()[
            "leases"
        ]
    return found


def depth(broker: BrokerProcess, queue: str) -> tuple[int, int]:
    """How many messages of a queue are available, and how many are leased."""
    with blocking.connect(broker.url) as connection, connection.management() as management:
        read = management.request("READ", "queue", queue, {}).map()
    return read["available"], read["leased"]


def test_every_message_once(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 100)
    consuming = Consuming(
        spark, broker, tmp_path, subscribe=address, maxOffsetsPerTrigger=40, minPartitions=3
    )
    consuming.run()
    assert [len(consuming.read[batch][0]) for batch in sorted(consuming.read)] == [0, 40, 40, 20]
    assert consuming.all == list(range(100))
    # The last batch is settled too.
    assert depth(broker, address) == (0, 0) and leases(broker, address) == []
    publish(broker, address, 100, 10)
    consuming.run()
    assert consuming.all == list(range(110))


def test_a_batch_that_failed_is_repeated_with_the_same_messages(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 50)
    consuming = Consuming(spark, broker, tmp_path, subscribe=address, maxOffsetsPerTrigger=30)
    consuming.fail(1)
    # The messages of the batch are kept for it, also without a query.
    assert depth(broker, address) == (20, 30)
    consuming.run()
    assert consuming.read[1] == [list(range(30))] * 2
    assert consuming.read[2] == [list(range(30, 50))]
    assert depth(broker, address) == (0, 0)


def test_messages_of_a_lease_that_lapsed_come_again(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 50)
    consuming = Consuming(
        spark,
        broker,
        tmp_path,
        subscribe=address,
        maxOffsetsPerTrigger=30,
        queueLeaseMs="1s",
        minPartitions=2,
    )
    consuming.fail(1)
    eventually(lambda: depth(broker, address) == (50, 0))
    consuming.run()
    # The batch is repeated without messages; then they come, in their order.
    assert consuming.read[1] == [list(range(30)), []]
    assert consuming.read[2] == [list(range(30))] and consuming.read[3] == [list(range(30, 50))]
    assert depth(broker, address) == (0, 0)


def test_leases_are_renewed_while_a_batch_takes_long(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 10)
    expiries: list[object] = []

    def work(frame: DataFrame, batch: int) -> None:
        if frame.isEmpty():
            return

        def renewed() -> bool:
            (lease,) = leases(broker, address)
            if lease["expiry"] not in expiries:
                expiries.append(lease["expiry"])
            return len(expiries) > 5

        # Longer than the lease would hold.
        eventually(renewed)

    frame = follow(spark, broker, subscribe=address, queueMode="consume", queueLeaseMs="1s")
    query = (
        frame.writeStream.foreachBatch(work)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert depth(broker, address) == (0, 0)


def test_several_queues(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    names = [f"{address}-{number}" for number in range(3)]
    publish(broker, names[0], 0, 30)
    publish(broker, names[1], 30, 5)
    with blocking.connect(broker.url) as connection:
        connection.sender(names[2]).close()
    consuming = Consuming(
        spark, broker, tmp_path, subscribe=",".join(names), maxOffsetsPerTrigger=30
    )
    consuming.run()
    assert consuming.all == list(range(35))
    assert all(len(rows) <= 30 for runs in consuming.read.values() for rows in runs)
    assert [depth(broker, name) for name in names] == [(0, 0)] * 3


def test_columns_are_those_of_browsing(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    with blocking.connect(broker.url) as connection:
        connection.sender(address).send(Message(b"1", subject="s", message_id="m"))
    rows: list[Any] = []
    frame = follow(spark, broker, subscribe=address, queueMode="consume", includeMetadata=True)
    query = (
        frame.writeStream.foreachBatch(lambda frame, batch: rows.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (row,) = rows
    assert (row.address, row.partition, row.offset, row.enqueuedTime) == (address, *[None] * 3)
    assert (row.subject, row.messageId, row.deliveryCount) == ("s", "m", 0)


def test_poison_becomes_a_dead_letter(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    queue = f"{address}-poison"
    publish(broker, queue, 0, 3)
    consuming = Consuming(
        spark, broker, tmp_path, subscribe=queue, queueLeaseMs="1s", maxOffsetsPerTrigger=2
    )
    consuming.fail(1)
    eventually(lambda: depth(broker, queue) == (3, 0))
    # The first batch is repeated without messages.
    consuming.fail(2)
    eventually(lambda: depth(broker, queue) == (1, 0))
    consuming.run()
    assert consuming.read[3] == [[2]]
    assert sorted(int(message.body) for message in take_all(broker, "letters")) == [0, 1]


def test_a_queue_that_does_not_exist(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess('[[queue]]\nname = "there"\n') as broker:
        consuming = Consuming(spark, broker, tmp_path, subscribe="there,missing")
        with pytest.raises(StreamingQueryException, match="LIST-LEASES of the queue 'missing'"):
            consuming.run()


def test_messages_of_pika(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess('[personality]\nname = "rabbitmq"\n') as broker:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        for number in range(20):
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "work", b"%d" % number, properties)
        connection.close()
        consuming = Consuming(spark, broker, tmp_path, subscribe="work")
        consuming.run()
    assert consuming.all == list(range(20))


def test_our_sink_after_a_batch_that_is_repeated(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    """Once, as long as the lease holds; after a lapse it takes a decision."""
    target = f"{address}-target"
    publish(broker, address, 0, 10)
    fails = True
    sure = "true"

    def write(frame: DataFrame, batch: int) -> None:
        writer = frame.write.format("amqp").mode("append").option("url", broker.url)
        identity = {"txnAppId": address, "txnVersion": batch, "deterministic": sure}
        writer.option("address", target).options(**identity).save()
        if batch and fails:
            raise RuntimeError("the batch fails")

    def run(lease: str) -> None:
        frame = follow(
            spark,
            broker,
            subscribe=address,
            queueMode="consume",
            queueLeaseMs=lease,
            schema="body binary",
        )
        writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    with pytest.raises(StreamingQueryException):
        run("5m")
    fails = False
    run("5m")
    assert sorted(int(message.body) for message in take_all(broker, target)) == list(range(10))
    fails = True
    publish(broker, address, 10, 1)
    with pytest.raises(StreamingQueryException):
        run("1s")
    fails = False
    eventually(lambda: depth(broker, address) == (1, 0))
    with pytest.raises(StreamingQueryException, match="with other rows than now"):
        run("5m")
    sure = "false"
    run("5m")
    assert [int(message.body) for message in take_all(broker, target)] == [10, 10]


_DRIVER = """
import sys
from pyspark.sql import SparkSession
from pyspark_ferrymq.source import register

url, queue, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
register(spark)


def work(frame, batch):
    if frame.count():
        print("working", flush=True)
        sys.stdin.readline()


options = {"url": url, "subscribe": queue, "queueMode": "consume", "queueLeaseMs": "3s"}
frame = spark.readStream.format("amqp").options(**options).load()
frame.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint).start()
spark.streams.awaitAnyTermination()
"""


@pytest.mark.slow
def test_a_query_that_is_killed_gives_its_messages_back(
    broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    publish(broker, address, 0, 5)
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    with (tmp_path / "driver.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(script), broker.url, address, str(tmp_path / "checkpoint")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": write_worker_python(tmp_path)},
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "working\n", (tmp_path / "driver.txt").read_text()
            assert depth(broker, address) == (0, 5)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    with blocking.connect(broker.url) as connection:
        receiver = connection.receiver(address)
        taken = [receiver.receive(timeout=PATIENCE).message for _ in range(5)]
    assert [int(message.body) for message in taken] == list(range(5))
    assert {message.delivery_count for message in taken} == {1}
