"""Batches: what is read, from where to where, in how many tasks, in which columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ferrymq import Message
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, eventually, numbers, read


@pytest.fixture(scope="module")
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    with Streams(broker) as kit:
        yield kit


def test_everything_there_is(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address, 3)
    streams.fill(address, 1000)
    frame = read(spark, broker, subscribe=address)
    assert numbers(frame) == list(range(1000))
    rows = frame.select("address", "partition", "offset").distinct().collect()
    assert len(rows) == 1000 and {row.address for row in rows} == {address}
    assert {(row.partition, row.offset) for row in rows} == {
        (number, offset)
        for number, (first, end) in enumerate(streams.ranges(address))
        for offset in range(first, end)
    }


def test_all_columns(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address)
    before = datetime.now(UTC)
    message = Message(
        b"here",
        durable=True,
        priority=7,
        ttl=60,
        message_id="m-1",
        user_id=b"somebody",
        to="there",
        subject="greeting",
        reply_to="back",
        correlation_id=5,
        content_type="text/plain",
        content_encoding="gzip",
        creation_time=1_700_000_000_123,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="h",
        application_properties={"colour": "red", "weight": 2},
        message_annotations={"x-opt-partition-key": "k", "x-mine": 1},
    )
    streams.publish(address, [message, Message({"a": [1, None]})])
    first, second = (
        read(spark, broker, subscribe=address, includeMetadata=True, includeRaw=True)
        .orderBy("offset")
        .collect()
    )
    assert bytes(first.body) == b"here" and first.bodyType == "data"
    assert (first.address, first.partition, first.offset) == (address, 0, 0)
    assert abs((first.enqueuedTime.timestamp()) - before.timestamp()) < 60
    assert (first.partitionKey, first.messageId, first.correlationId) == ("k", "m-1", "5")
    assert bytes(first.userId) == b"somebody"
    assert (first.to, first.subject, first.replyTo) == ("there", "greeting", "back")
    assert (first.contentType, first.contentEncoding) == ("text/plain", "gzip")
    assert (first.groupId, first.groupSequence, first.replyToGroupId) == ("g", 3, "h")
    assert (first.durable, first.priority, first.ttl) == (True, 7, 60_000)
    assert first.creationTime.timestamp() == pytest.approx(1_700_000_000.123)
    assert first.applicationProperties == {"colour": "red", "weight": "2"}
    assert first.messageAnnotations == {"x-mine": "1"}
    assert Message.decode(bytes(first.raw)).subject == "greeting"
    assert second.bodyType == "value" and json.loads(bytes(second.body)) == {"a": [1, None]}
    assert second.subject is None


@pytest.mark.parametrize(
    "schema",
    [
        "offset bigint",
        "body binary, offset bigint",
        "subject string, partition int",
        "applicationProperties map<string,string>, body binary",
        "enqueuedTime timestamp, `to` string, priority tinyint, durable boolean",
    ],
)
def test_some_columns(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, schema: str
) -> None:
    name = "some-columns"
    streams.create(name)
    if streams.ranges(name) == [(0, 0)]:
        streams.publish(
            name,
            [
                Message(b"%d" % i, subject=f"s{i}", application_properties={"n": i})
                for i in range(20)
            ],
        )
    frame = read(spark, broker, subscribe=name, schema=schema)
    rows = frame.collect()
    assert len(rows) == 20
    for row in rows:
        for column, value in row.asDict().items():
            assert value is not None or column == "to"
    if "subject" in frame.columns:
        assert sorted(row.subject for row in rows) == sorted(f"s{i}" for i in range(20))


def test_a_wrong_column_is_named(spark: SparkSession, broker: BrokerProcess) -> None:
    with pytest.raises(PySparkException, match="did you mean 'body'"):
        read(spark, broker, subscribe="whatever", schema="bodi binary").collect()
    with pytest.raises(PySparkException, match="'offset' is bigint, not int"):
        read(spark, broker, subscribe="whatever", schema="offset int").collect()


def test_from_offsets_to_offsets(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address, 2)
    for number in (0, 1):
        streams.fill(f"{address}::{number}", 100, 100 * number)
    frame = read(
        spark,
        broker,
        subscribe=address,
        startingOffsets=json.dumps({address: {"0": 90, "1": -2}}),
        endingOffsets=json.dumps({address: {"0": -1, "1": 5}}),
    )
    assert numbers(frame) == [*range(90, 100), *range(100, 105)]
    # What a checkpoint has will do; what is not in it begins with its first record.
    incarnation = streams.ask("RANGES", "stream", names=[address])["streams"][0]["incarnation"]
    frame = read(
        spark,
        broker,
        subscribe=address,
        startingOffsets=json.dumps(
            {"v": 1, "streams": {address: {"id": incarnation, "p": {"0": 98}}}}
        ),
    )
    assert numbers(frame) == [98, 99, *range(100, 200)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": '{"NAME":{"0":1}}'}, "it leaves out NAME::1"),
        ({"startingOffsets": '{"NAME":{"0":1,"1":1,"2":1}}'}, "NAME::2 is not read"),
        ({"startingOffsets": '{"other":{"0":1}}'}, "other::0 is not read"),
        ({"startingOffsets": '{"NAME":{"0":1,"1":500}}'}, "expected offsets from 500 on"),
        ({"endingOffsets": '{"NAME":{"0":1,"1":500}}'}, "0 to before 500.*0 to before 10"),
        ({"startingTimestamp": "99999999999999"}, "no record of that time or later"),
    ],
)
def test_offsets_that_make_no_sense(
    spark: SparkSession,
    broker: BrokerProcess,
    streams: Streams,
    options: dict[str, str],
    says: str,
) -> None:
    name = "two-partitions"
    streams.create(name, 2)
    if streams.ranges(name)[0] == (0, 0):
        streams.fill(name, 20)
    given = {key: value.replace("NAME", name) for key, value in options.items()}
    with pytest.raises(PySparkException, match=says.replace("NAME", name)):
        read(spark, broker, subscribe=name, **given).collect()


def test_by_time(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address, 1)
    streams.fill(address, 10)
    eventually(lambda: streams.ranges(address)[0][1] == 10)
    first = read(spark, broker, subscribe=address).agg({"enqueuedTime": "max"}).collect()[0][0]
    middle = int(first.timestamp() * 1000) + 1
    eventually(lambda: datetime.now(UTC).timestamp() * 1000 > middle)
    streams.fill(address, 10, 10)
    assert numbers(read(spark, broker, subscribe=address, startingTimestamp=middle)) == list(
        range(10, 20)
    )
    assert numbers(read(spark, broker, subscribe=address, endingTimestamp=middle)) == list(
        range(10)
    )
    late = read(
        spark,
        broker,
        subscribe=address,
        startingTimestamp=99999999999999,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert numbers(late) == []


def test_tasks(spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str) -> None:
    streams.create(address, 2)
    streams.fill(address, 100)
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": 5}, 5),
        ({"maxRecordsPerPartition": 20}, 6),
        ({"maxRecordsPerPartition": 1000}, 2),
    ):
        frame = read(spark, broker, subscribe=address, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert numbers(frame) == list(range(100))


def test_small_batches(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address)
    streams.fill(address, 100)
    for limit in ({"maxRecordsPerBatch": 7}, {"maxBytesPerBatch": 64}):
        assert numbers(read(spark, broker, subscribe=address, **limit)) == list(range(100))


def test_which_streams(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    for number, name in enumerate((f"{address}-a", f"{address}-b", f"{address}-b-not")):
        streams.create(name, 2)
        streams.fill(f"{name}::0", 5, 10 * number)
        streams.fill(f"{name}::1", 5, 100 + 10 * number)
    a, b = [0, 1, 2, 3, 4], [10, 11, 12, 13, 14]
    assert numbers(read(spark, broker, subscribe=f"{address}-a,{address}-b")) == [
        *a,
        *b,
        *(100 + n for n in a),
        *(100 + n for n in b),
    ]
    pattern = f"{address}-[ab]"
    assert numbers(read(spark, broker, subscribePattern=pattern)) == [
        *a,
        *b,
        *(100 + n for n in a),
        *(100 + n for n in b),
    ]
    assigned = json.dumps({f"{address}-a": [1], f"{address}-b": [0]})
    assert numbers(read(spark, broker, assign=assigned)) == [*b, *(100 + n for n in a)]
    assert numbers(read(spark, broker, subscribePattern="nothing-of-this-kind")) == []


def test_what_is_not_there_is_named(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    with pytest.raises(PySparkException, match=f"there is no stream '{address}' at amqp://127"):
        read(spark, broker, subscribe=address).collect()
    streams.ask("CREATE", "queue", address)
    with pytest.raises(PySparkException, match=r"there is a queue .*'queueMode' = browse"):
        read(spark, broker, subscribe=address).collect()
    streams.create(f"{address}-2")
    with pytest.raises(PySparkException, match="no partition 3 in the stream"):
        read(spark, broker, assign=json.dumps({f"{address}-2": [3]})).collect()


def test_wrong_options_show_at_load(spark: SparkSession, broker: BrokerProcess) -> None:
    with pytest.raises(PySparkException, match="did you mean 'subscribe'"):
        read(spark, broker, subscrib="orders")
    with pytest.raises(PySparkException, match="'maxOffsetsPerTrigger': 'x' is not allowed"):
        read(spark, broker, subscribe="orders", maxOffsetsPerTrigger="x")
    with pytest.raises(PySparkException, match="no option says what to read"):
        read(spark, broker)
    # With columns of one's own Spark asks later.
    with pytest.raises(PySparkException, match="'maxOffsetsPerTrigger': 'x' is not allowed"):
        read(
            spark, broker, subscribe="orders", maxOffsetsPerTrigger="x", schema="body binary"
        ).collect()


def test_no_broker_there(spark: SparkSession, broker: BrokerProcess) -> None:
    with pytest.raises(PySparkException, match=r"no connection to amqp://127.0.0.1:9 .*'url'"):
        read(
            spark, broker, url="amqp://127.0.0.1:9", subscribe="a", fetchOffset__numRetries=0
        ).collect()


def test_no_connection_stays(
    spark: SparkSession, broker: BrokerProcess, streams: Streams, address: str
) -> None:
    streams.create(address, 2)
    streams.fill(address, 50_000)
    frame = read(spark, broker, subscribe=address, maxRecordsPerBatch=100)
    # Spark stops reading long before the end of the range.
    assert len(frame.take(3)) == 3
    assert frame.count() == 50_000
    eventually(lambda: streams.others() == [])
