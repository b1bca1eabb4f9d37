"""Queues browsed into frames: all there is, told as it is, and nothing is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import take_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[[queue]]
name = "orders"
dead-letter = "orders.dead"

[[queue]]
name = "orders.dead"
"""


def browse(spark: SparkSession, broker: BrokerProcess, queues: str, **options: str) -> DataFrame:
    reader = spark.read.format("amqp").option("url", broker.url).option("subscribe", queues)
    return reader.option("queueMode", "browse").options(**options).load()


def put(broker: BrokerProcess, address: str, messages: list[Message]) -> None:
    with blocking.connect(broker.url) as connection:
        connection.sender(address).send_many(messages)


def test_all_there_is_and_nothing_is_taken(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    bodies = [f"{number:04}".encode() for number in range(1_234)]
    put(broker, address, [Message(body, subject="s") for body in bodies])
    for _ in range(2):
        rows = browse(spark, broker, address, maxRecordsPerBatch="100").collect()
        assert [bytes(row["body"]) for row in rows] == bodies
        assert {(row["address"], row["partition"], row["offset"]) for row in rows} == {
            (address, None, None)
        }
    # As good as new: nobody has had any of them.
    taken = take_all(broker, address)
    assert [message.body for message in taken] == bodies
    assert {message.delivery_count for message in taken} == {0}


def test_large_messages_come_a_few_at_a_time(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    put(broker, address, [Message(bytes([number]) * 200_000) for number in range(150)])
    rows = browse(spark, broker, address, maxBytesPerBatch="1m").select("body").collect()
    assert [row["body"][0] for row in rows] == list(range(150))
    assert len(take_all(broker, address)) == 150


def test_dead_letters_tell_why_they_died(spark: SparkSession, broker: BrokerProcess) -> None:
    put(broker, "orders", [Message(b"bad", message_id="m-1", application_properties={"n": 1})])
    with blocking.connect(broker.url) as connection:
        delivery = connection.receiver("orders").receive(timeout=10)
        delivery.reject("shop:no-such-article", "article 7")
    frame = browse(spark, broker, "orders.dead", includeMetadata="true", includeRaw="true")
    (row,) = frame.collect()
    annotations: dict[str, Any] = row["messageAnnotations"]
    assert annotations["x-opt-deadletter-reason"] == "rejected"
    assert annotations["x-opt-deadletter-source"] == "orders"
    assert annotations["x-opt-deadletter-condition"] == "shop:no-such-article"
    assert annotations["x-opt-deadletter-description"] == "article 7"
    assert (row["messageId"], row["deliveryCount"], row["firstAcquirer"]) == ("m-1", 1, False)
    assert row["applicationProperties"] == {"n": "1"}
    assert Message.decode(bytes(row["raw"])).body == b"bad"
    # The count of failed deliveries is what it was.
    (taken,) = take_all(broker, "orders.dead")
    assert taken.delivery_count == 1


def test_several_queues_are_as_many_tasks(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    names = [f"{address}-{number}" for number in range(3)]
    for name in names:
        put(broker, name, [Message(b"x")] * 5)
    frame = browse(spark, broker, ",".join(names))
    assert frame.rdd.getNumPartitions() == 3
    counts = {row["address"]: row["count"] for row in frame.groupBy("address").count().collect()}
    assert counts == dict.fromkeys(names, 5)


def test_selectors(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    put(broker, address, [Message(b"", application_properties={"n": n}) for n in range(30)])
    frame = browse(spark, broker, address, queueSelector="n < 10")
    assert frame.count() == 10
    frame = browse(spark, broker, address, queueSelector='["n < 10", "n >= 10"]')
    assert frame.rdd.getNumPartitions() == 2
    assert sorted(int(row["applicationProperties"]["n"]) for row in frame.collect()) == [*range(30)]


def test_a_limit(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    put(broker, address, [Message(f"{n}".encode()) for n in range(300)])
    for limit in (1, 100, 250):
        rows = browse(spark, broker, address, queueLimit=str(limit)).collect()
        assert [bytes(row["body"]) for row in rows] == [f"{n}".encode() for n in range(limit)]
    assert browse(spark, broker, address, queueLimit="1000").count() == 300


def test_an_empty_queue(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    assert browse(spark, broker, address).collect() == []


def test_a_subset_of_columns(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    put(broker, address, [Message(b"x", subject="s", group_id="g")])
    reader = spark.read.format("amqp").schema("groupId string, partition int, body binary")
    frame = reader.options(url=broker.url, subscribe=address, queueMode="browse").load()
    (row,) = frame.collect()
    assert tuple(row) == ("g", None, bytearray(b"x"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": "earliest"}, "'startingOffsets': it is only for streams"),
        ({"minPartitions": "4"}, "'minPartitions': it is only for streams"),
        ({"maxOffsetsPerTrigger": "4"}, "'maxOffsetsPerTrigger' is for readStream"),
        ({"queueSelector": "[1]"}, "a selector, or a JSON list of selectors"),
        ({"queueLimit": "0"}, "'queueLimit'"),
        ({"queueMode": "consume"}, "consume is for readStream, and this is a batch"),
        ({"service": "eventhubs"}, "Event Hubs has no queues"),
    ],
)
def test_options_that_make_no_sense(
    spark: SparkSession, broker: BrokerProcess, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        browse(spark, broker, "orders", **options).collect()


def test_options_of_queues_alone(spark: SparkSession, broker: BrokerProcess) -> None:
    reader = spark.read.format("amqp").options(url=broker.url, subscribe="q", queueLimit="3")
    with pytest.raises(Exception, match="'queueLimit' needs the option 'queueMode'"):
        reader.load()


def test_a_stream_is_no_queue_for_queries(spark: SparkSession, broker: BrokerProcess) -> None:
    reader = spark.readStream.format("amqp").options(url=broker.url, subscribe="orders")
    query = reader.option("queueMode", "browse").load().writeStream.format("noop")
    with pytest.raises(Exception, match="send them to a stream"):
        query.trigger(availableNow=True).start().awaitTermination(60)


def test_a_selector_that_is_none(spark: SparkSession, broker: BrokerProcess, address: str) -> None:
    with pytest.raises(Exception, match=f"the queue '{address}' at .* cannot be browsed"):
        browse(spark, broker, address, queueSelector="n <").collect()
