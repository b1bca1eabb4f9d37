"""Frames with the columns of Spark's Kafka connector, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ferrymq import Message
from ferrymq_types.messaging import AmqpValue
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, follow, read
from tests.spark.sinking import messages_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = "array<struct<key:string,value:binary>>"
KEY = "x-opt-partition-key"
# The schema of Spark's connector, as its guide has it.
KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint,"
    " timestamp timestamp, timestampType int"
)


def write(frame: DataFrame, broker: BrokerProcess, **options: str) -> None:
    writer = frame.write.format("amqp").options(url=broker.url, columns="kafka", **options)
    writer.mode("append").save()


def test_the_columns_of_kafka(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    with Streams(broker) as streams:
        streams.create(address, 2)
        streams.publish(
            f"{address}::1",
            [
                Message(
                    b"\x00\xff",
                    message_annotations={KEY: "straße"},
                    application_properties={"a": "é", "b": b"\xff", "n": 5, "x": None},
                ),
                Message(AmqpValue("text"), message_annotations={KEY: b"\xff"}),
                Message(AmqpValue(None)),
                Message(AmqpValue({"a": [1]})),
            ],
        )
    frame = read(spark, broker, subscribe=address, columns="kafka", includeHeaders="true")
    assert frame.drop("headers").schema.simpleString() == (
        spark.createDataFrame([], KAFKA).schema.simpleString()
    )
    assert frame.schema["headers"].dataType.simpleString() == HEADERS
    without = read(spark, broker, subscribe=address, columns="kafka")
    assert without.columns == frame.columns[:-1]
    native = read(spark, broker, subscribe=address, schema="offset bigint, enqueuedTime timestamp")
    times = {row.offset: row.enqueuedTime for row in native.collect()}
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [row.value for row in rows] == [b"\x00\xff", b"text", None, b'{"a":[1]}']
    assert [row.key for row in rows] == ["straße".encode(), b"\xff", None, None]
    for offset, row in enumerate(rows):
        assert (row.topic, row.partition, row.offset) == (address, 1, offset)
        assert (row.timestamp, row.timestampType) == (times[offset], 1)
    assert [tuple(header) for header in rows[0].headers] == [
        ("a", "é".encode()),
        ("b", b"\xff"),
        ("n", b"5"),
        ("x", None),
    ]
    assert [row.headers for row in rows[1:]] == [None, None, None]
    # Any of them, in any order, and as text.
    for schema in (
        "timestampType int",
        "offset bigint, value binary",
        f"headers {HEADERS}, key binary",
        "topic string, timestampType int, timestamp timestamp",
    ):
        some = read(spark, broker, subscribe=address, columns="kafka", schema=schema)
        assert some.count() == len(some.collect()) == 4
        names = some.columns
        assert sorted(map(str, some.collect())) == sorted(map(str, frame.select(names).collect()))
    with pytest.raises(PySparkException, match="did you mean 'value'"):
        read(spark, broker, subscribe=address, columns="kafka", schema="valu binary").collect()
    with pytest.raises(PySparkException, match=r"'value' is a column with the option 'columns' ="):
        read(spark, broker, subscribe=address, schema="value binary").collect()


def test_bodies_as_text(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    with Streams(broker) as streams:
        streams.create(address)
        streams.publish(address, ["straße".encode(), Message(AmqpValue({"a": 1}))])
        texts = {"body string": {}, "value string": {"columns": "kafka"}}
        for schema, options in texts.items():
            frame = read(spark, broker, subscribe=address, schema=schema, **options)
            assert sorted(row[0] for row in frame.collect()) == sorted(["straße", '{"a":1}'])
        streams.publish(address, [b"\xff"])
        for schema, options in texts.items():
            says = rf"{address}::0: the record 2 has a {schema.split()[0]} that is not UTF-8"
            with pytest.raises(PySparkException, match=says):
                read(spark, broker, subscribe=address, schema=schema, **options).collect()
    # What the error advises.
    frame = read(spark, broker, subscribe=address, schema="body binary")
    valid = frame.selectExpr("make_valid_utf8(cast(body as string)) as body")
    assert sorted(row.body for row in valid.collect()) == sorted(["straße", '{"a":1}', "\ufffd"])


def test_rows_of_kafka_are_written(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    with Streams(broker) as streams:
        streams.create(address, 2)
    frame = spark.sql(
        "select * from values"
        " (cast('k' as binary), 'one', 1, array(struct('a' as key, cast('é' as binary) as value))),"
        " (x'ff', 'two', 0, array(struct('b' as key, x'fe' as value))),"
        " (null, null, 0, null)"
        " as rows(key, value, partition, headers)"
    ).coalesce(1)
    write(frame, broker, topic=address)
    (one,) = messages_at(broker.url, f"{address}::1", start="first")
    two, tombstone = messages_at(broker.url, f"{address}::0", start="first")
    assert (bytes(one.body), one.message_annotations[KEY]) == (b"one", "k")
    assert one.application_properties == {"a": "é"}
    assert (bytes(two.body), two.message_annotations[KEY]) == (b"two", b"\xff")
    assert two.application_properties == {"b": b"\xfe"}
    assert tombstone.body is None and KEY not in tombstone.message_annotations
    assert not tombstone.application_properties


def test_what_was_read_is_written_byte_for_byte(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    """As a query that copies: `offset`, `timestamp` and `timestampType` may stay in the frame."""
    first, second = f"{address}-1", f"{address}-2"
    with Streams(broker) as streams:
        streams.create(first, 2)
        streams.create(second, 2)
        for number in (0, 1):
            streams.publish(
                f"{first}::{number}",
                [
                    Message(
                        b"%d" % i,
                        message_annotations={KEY: b"\xff" if i % 2 else "key"},
                        application_properties={"i": b"\xfe" if i % 3 else f"{i}"},
                    )
                    for i in range(6)
                ],
            )
    frame = follow(
        spark,
        broker,
        subscribe=first,
        startingOffsets="earliest",
        columns="kafka",
        includeHeaders="true",
    )
    query = (
        frame.writeStream.format("amqp")
        .options(url=broker.url, columns="kafka", topic=second)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    columns = ["partition", "offset", "key", "value", "headers"]
    options = {"columns": "kafka", "includeHeaders": "true"}
    one = read(spark, broker, subscribe=first, **options).select(columns).collect()
    two = read(spark, broker, subscribe=second, **options).select(columns).collect()
    assert len(one) == 12
    assert sorted(map(str, one)) == sorted(map(str, two))


def test_the_column_topic(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    with Streams(broker) as streams:
        for name in ("a", "b"):
            streams.create(f"{address}-{name}")
    frame = spark.sql(
        f"select concat('{address}-', topic) as topic, value from values ('a', '1'), ('b', '2'),"
        " ('a', '3') as rows(topic, value)"
    ).coalesce(1)
    write(frame, broker)
    for name, bodies in (("a", [b"1", b"3"]), ("b", [b"2"])):
        found = messages_at(broker.url, f"{address}-{name}", start="first")
        assert [bytes(message.body) for message in found] == bodies


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("'k' as key", {"topic": "t"}, "no column 'value' .binary or string"),
        ("'v' as value", {}, "give the option 'topic', or add a column 'topic'"),
        ("'v' as value, 1 as n", {"topic": "t"}, "no column 'n'; drop it. The columns are key,"),
        ("1 as value", {"topic": "t"}, "'value' is int; it has to be binary or string"),
        ("'v' as value, map('a', 'b') as headers", {"topic": "t"}, "'headers' is map<string"),
        ("'v' as value, 'x' as topic, 5L as partition", {}, "'partition' is bigint; it has to be"),
    ],
)
def test_what_cannot_be_written_is_said_before_a_task_runs(
    spark: SparkSession,
    broker: BrokerProcess,
    columns: str,
    options: dict[str, str],
    says: str,
) -> None:
    with pytest.raises(PySparkException, match=says):
        write(spark.sql(f"select {columns}"), broker, **options)


def test_headers_that_no_message_can_have(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    with Streams(broker) as streams:
        streams.create(address)
    header = "struct('a' as key, x'01' as value)"
    frame = spark.sql(f"select 'v' as value, array({header}, {header}) as headers")
    with pytest.raises(PySparkException, match="headers: row 0: the key 'a' is there twice"):
        write(frame, broker, topic=address)
    assert messages_at(broker.url, address, start="first") == []
