"""The options of Spark's Kafka connector: each one does the same here, or is refused with ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_ferrymq import AmqpOptionError
from pyspark_ferrymq.offsets import Offset, PartitionOffset
from pyspark_ferrymq.options import SourceOptions
from pyspark_ferrymq.options.names import COLUMNS, CONNECTION, SINK, SOURCE, check_names
from pyspark_ferrymq.options.start_and_end import AtEnd, AtTimes
from pyspark_ferrymq.reading.resolve_offsets import resolve
from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges
from pyspark_ferrymq.writing.options import SinkOptions

# All options in the tables of Spark's guide to Kafka, and those of Kafka's clients that the guide
# names.
SAME = (
    "assign", "subscribe", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "failOnDataLoss", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "includeHeaders", "startingOffsetsByTimestampStrategy", "topic",
)  # fmt: skip
REFUSED = {
    "kafka.bootstrap.servers": "'url'",
    "kafkaConsumer.pollTimeoutMs": "'connectTimeoutMs'",
    "groupIdPrefix": "'groupId'",
    "kafka.group.id": "'groupId'",
    "kafka.session.timeout.ms": "'connectTimeoutMs'",
    "kafka.auto.offset.reset": "'startingOffsets'",
    "kafka.key.deserializer": "cast",
    "kafka.value.deserializer": "cast",
    "kafka.key.serializer": "cast",
    "kafka.value.serializer": "cast",
    "kafka.enable.auto.commit": "checkpoint",
    "kafka.interceptor.classes": "in the query",
    "kafka.partitioner.class": "'partition'",
    "kafka.security.protocol": "amqps://",
    "kafka.sasl.mechanism": "'sasl.mechanism'",
    "kafka.sasl.jaas.config": "'username'",
    "kafka.sasl.kerberos.service.name": "no Kerberos",
    "kafka.sasl.login.class": "'username'",
    "kafka.ssl.truststore.location": "'tls.ca'",
    "kafka.ssl.truststore.password": "'tls.ca'",
    "kafka.ssl.keystore.location": "'tls.cert'",
    "kafka.ssl.key.password": "'tls.key'",
    "kafka.ssl.endpoint.identification.algorithm": "'tls.verify'",
    "kafka.ssl.protocol": "amqps://",
    "kafka.max.poll.records": "'maxRecordsPerBatch'",
    "kafka.fetch.max.bytes": "'maxBytesPerBatch'",
    "kafka.acks": "'delivery'",
    "kafka.transactional.id": "'delivery'",
    "kafka.retries": "'write.retryTimeoutMs'",
    "kafka.linger.ms": "leave it out",
    "kafka.compression.type": "compress",
    "kafka.isolation.level": "committed",
    "kafka.metadata.max.age.ms": "Kafka's client, which is not used",
}
PAGE = Path(__file__).parents[2] / "docs" / "pipeline" / "from-kafka.md"


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({"url": "amqp://localhost", "subscribe": "orders", **options})


def sink(**options: str) -> SinkOptions:
    return SinkOptions.parse({"url": "amqp://localhost", **options}, streaming=False)


def test_the_same_names() -> None:
    ours = {*CONNECTION, *COLUMNS, *SOURCE, *SINK}
    assert [name for name in SAME if name not in ours] == []


@pytest.mark.parametrize(("name", "says"), REFUSED.items(), ids=list(REFUSED))
def test_other_names_say_ours(name: str, says: str) -> None:
    for spelled in (name, name.lower(), name.upper()):
        with pytest.raises(AmqpOptionError) as caught:
            check_names([spelled])
        told = str(caught.value)
        assert told.startswith(f"the option {spelled!r} is Kafka's: ")
        assert says in told
        assert not re.search(r"[.] [A-Z]", told), "more than a sentence"


def test_all_of_them_are_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in (*SAME, *REFUSED) if f"`{name}`" not in text] == []


def test_options_that_need_kafkas_columns() -> None:
    with pytest.raises(AmqpOptionError, match=r"'includeHeaders' needs .*applicationProperties"):
        parse(includeHeaders="true")
    with pytest.raises(AmqpOptionError, match=r"'topic' needs .* = kafka; .*'address'"):
        sink(topic="orders")
    with pytest.raises(AmqpOptionError, match="'topic' is only for writing"):
        parse(topic="orders", columns="kafka")
    with pytest.raises(AmqpOptionError, match="one of amqp, kafka"):
        parse(columns="rabbitmq")
    for other in ("includeMetadata", "includeRaw"):
        with pytest.raises(AmqpOptionError, match=f"kafka and '{other}' exclude each other"):
            parse(columns="kafka", **{other: "true"})
    with pytest.raises(AmqpOptionError, match="kafka and 'queueMode' exclude each other"):
        parse(columns="kafka", queueMode="browse")
    with pytest.raises(AmqpOptionError, match="'addressColumn' exclude each other"):
        sink(columns="kafka", addressColumn="topic")
    with pytest.raises(AmqpOptionError, match="'address' and 'topic' exclude each other"):
        sink(columns="kafka", address="a", topic="b")
    assert sink(columns="kafka", topic="orders", includeHeaders="true").address == "orders"
    assert sink(columns="kafka").address_column == "topic"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsetsByTimestamp": "1"}, "a JSON object such as"),
        ({"startingOffsetsByTimestamp": '{"a":1}'}, "JSON such as .*1767225600000"),
        ({"startingOffsetsByTimestamp": '{"a":{"x":1}}'}, "JSON such as"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "has to be a time .a::0"),
        ({"startingOffsetsByTimestamp": "{}", "startingTimestamp": "1"}, "exclude each other"),
        ({"startingOffsetsByTimestamp": "{}", "startingOffsets": "earliest"}, "exclude each"),
        ({"endingOffsetsByTimestamp": "{}", "endingTimestamp": "1"}, "exclude each other"),
    ],
)
def test_times_that_are_wrong(options: dict[str, str], says: str) -> None:
    with pytest.raises(AmqpOptionError, match=says):
        parse(**options)


class Times:
    """The times of records: the offset of a record is its time divided by 10, from 100 on."""

    def at_time(self, name: str, times: dict[int, int]) -> dict[int, int]:
        return {number: time // 10 for number, time in times.items()}


RANGES = {
    "orders": StreamRanges(
        "orders",
        "x",
        {number: PartitionRange(number, 100, 200, 1000, 1990) for number in (0, 1)},
    )
}


def resolved(bound: object) -> Offset:
    return resolve(bound, RANGES, Times())  # type: ignore[arg-type]


def test_a_time_for_each_partition() -> None:
    json = '{"orders":{"0":1200,"1":1500}}'
    options = parse(startingOffsetsByTimestamp=json, endingOffsetsByTimestamp=json)
    assert options.starting == AtTimes(
        "startingOffsetsByTimestamp", {"orders": {0: 1200, 1: 1500}}, "error"
    )
    found = Offset({"orders": PartitionOffset("x", {0: 120, 1: 150})})
    assert resolved(options.starting) == resolved(options.ending) == found
    with pytest.raises(AmqpOptionError, match="'endingOffsetsByTimestamp' are for batches"):
        options.for_streaming()


def test_times_after_the_last_record() -> None:
    json = '{"orders":{"0":1200,"1":2500}}'
    with pytest.raises(AmqpOptionError, match="ByTimestamp': 2500: orders::1 has no record"):
        resolved(parse(startingOffsetsByTimestamp=json).starting)
    end = Offset({"orders": PartitionOffset("x", {0: 120, 1: 200})})
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert resolved(parse(startingOffsetsByTimestamp=json, **strategy).starting) == end
    assert resolved(parse(endingOffsetsByTimestamp=json).ending) == end


def test_times_have_to_name_every_partition() -> None:
    for json, says in (
        ('{"orders":{"0":1200}}', "leaves out orders::1; it has to give the time"),
        ('{"orders":{"0":1,"1":1,"2":1}}', "orders::2 is not read"),
    ):
        with pytest.raises(AmqpOptionError, match=says):
            resolved(parse(startingOffsetsByTimestamp=json).starting)


def test_the_defaults_are_those_of_kafka() -> None:
    options = parse(columns="kafka")
    assert options.kafka and not options.include_headers
    assert options.for_streaming() == AtEnd("latest")
    assert not parse().kafka
