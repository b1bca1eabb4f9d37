"""The recipes of the page for queries that come from Kafka, run as they are written there."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, follow, read
from tests.spark.sinking import forget_commit, messages_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

CONFIG = """
[[queue]]
name = "table"
last-value-key = "order"
"""
PAGE = Path(__file__).parents[2] / "docs" / "pipeline" / "from-kafka.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def run(mark: str, broker: BrokerProcess, folder: Path, **names: str) -> dict[str, Any]:
    """Run the block that has this text, with other names of streams; return its variables."""
    (code,) = [block for block in BLOCKS if mark in block]
    code = code.replace("amqp://localhost", broker.url).replace('"/checkpoints/', f'"{folder}/')
    for old, new in names.items():
        code = code.replace(f'"{old}"', f'"{new}"')
    module = ModuleType("page")
    exec(compile(code, PAGE.name, "exec"), vars(module))
    return vars(module)


def finish(spark: SparkSession) -> StreamingQuery:
    """Wait until the query of a block has done all there is, and stop it."""
    (query,) = spark.streams.active
    query.processAllAvailable()
    assert query.exception() is None
    query.stop()
    return query


def repeat_last_batch(checkpoint: Path) -> None:
    """As if the driver had died after the last batch, before Spark noted it."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    forget_commit(checkpoint, last)


def test_update(spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path) -> None:
    orders, totals = f"{address}-orders", f"{address}-totals"
    with Streams(broker) as streams:
        streams.create(orders)
        streams.create(totals)
        page = run("def write_changes", broker, tmp_path, totals=totals)
        frame = follow(spark, broker, subscribe=orders, startingOffsets="earliest")
        for bodies in ([b"a", b"b", b"a"], [b"b"]):
            streams.publish(orders, bodies)
            page["write_changes"](frame)
            finish(spark)
        repeat_last_batch(tmp_path / "changes")
        page["write_changes"](frame)
        finish(spark)
    rows = read(spark, broker, subscribe=totals, columns="kafka", schema="key string, value string")
    assert Counter(map(tuple, rows.collect())) == {("a", "2"): 1, ("b", "1"): 1, ("b", "2"): 1}


def test_complete(spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path) -> None:
    with Streams(broker) as streams:
        streams.create(address)
        page = run("def write_table", broker, tmp_path)
        frame = follow(spark, broker, subscribe=address, startingOffsets="earliest")
        for bodies, table in (
            ([b"a", b"b", b"a"], {"a": b"2", "b": b"1"}),
            ([b"b", b"c"], {"a": b"2", "b": b"2", "c": b"1"}),
        ):
            streams.publish(address, bodies)
            page["write_table"](frame)
            finish(spark)
            assert browsed(broker) == table
        repeat_last_batch(tmp_path / "table")
        page["write_table"](frame)
        finish(spark)
    assert browsed(broker) == table


def browsed(broker: BrokerProcess) -> dict[str, bytes]:
    """The messages in the queue, which stay there."""
    with blocking.connect(broker.url) as connection:
        receiver = connection.receiver("table", mode="copy", credit=0)
        receiver.add_credit(100)
        receiver.drain(timeout=30)
        found = [delivery.message for delivery in receiver.receive_many(100, timeout=5)]
    table = {str(one.application_properties["order"]): bytes(one.body) for one in found}
    assert len(table) == len(found)
    return table


def test_a_query_moves_with_its_offsets(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    """Instead of Kafka there is a stream whose offsets are shown with gaps."""
    kafka, mirrored = f"{address}-kafka", f"{address}-mirrored"
    headers = {"a": b"\xff"}
    with Streams(broker) as streams:
        for name in (kafka, mirrored):
            streams.create(name, 3)
        for number in (0, 1, 2):
            streams.publish(
                f"{kafka}::{number}",
                [
                    Message(
                        f"{number}-{i}".encode(),
                        message_annotations={"x-opt-partition-key": "key"},
                        application_properties=headers if i % 2 else None,
                    )
                    for i in range(8)
                ],
            )
    topic = follow(
        spark,
        broker,
        subscribe=kafka,
        startingOffsets="earliest",
        columns="kafka",
        includeHeaders="true",
    ).withColumn("offset", 10 * f.col("offset") + 100)
    # 1. The mirror.
    run("def mirror", broker, tmp_path, orders=mirrored)["mirror"](topic)
    finish(spark)
    columns = ("partition", "offset", "key", "value")
    left, right = (
        sorted(map(tuple, read(spark, broker, subscribe=name, columns="kafka")
                   .select(*columns).collect()))
        for name in (kafka, mirrored)
    )  # fmt: skip
    assert left == right and len(right) == 24
    first, second = messages_at(broker.url, f"{mirrored}::2", start="first")[:2]
    assert first.application_properties == {"kafka-offset": "100"}
    assert second.application_properties == {"a": b"\xff", "kafka-offset": "110"}
    # 2. The checkpoint of a query over the topic, in which Spark has planned one more batch. Of
    # partition 0 it has read 3 records and ends in a gap, of partition 1 all, of partition 2 none.
    checkpoint = tmp_path / "of-kafka"
    query = (
        topic.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    done = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    log = (checkpoint / "offsets" / str(done)).read_text("utf-8").splitlines()
    assert len(log) == 3
    for batch, offsets in ((done, [125, 180, 100]), (done + 1, [180, 180, 180])):
        log[2] = json.dumps({mirrored: {str(number): at for number, at in enumerate(offsets)}})
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(log), "utf-8")
        (checkpoint / "offsets" / f".{batch}.crc").unlink(missing_ok=True)
    # 3. and 4. The new query.
    page = run("starting_offsets", broker, tmp_path, orders=mirrored)
    assert json.loads(page["starting_offsets"]) == {mirrored: {"0": 3, "1": 8, "2": -2}}
    frame = read(spark, broker, subscribe=mirrored, startingOffsets=page["starting_offsets"])
    assert sorted(bytes(row.body).decode() for row in frame.collect()) == [
        *(f"0-{i}" for i in range(3, 8)),
        *(f"2-{i}" for i in range(8)),
    ]
