"""What was read from one stream is written into another one as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ferrymq import Message
from ferrymq_codec.scalars import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from ferrymq_types.messaging import AmqpSequence, AmqpValue
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, numbers, read


def write(frame: DataFrame, broker: BrokerProcess, address: str) -> None:
    writer = frame.write.format("amqp").options(url=broker.url, address=address)
    writer.mode("append").save()


# A value of every type of AMQP (§1.6), nested ones, and numbers at the ends of their ranges.
VALUES = [
    None, True, False, UByte(255), UShort(65535), UInt(2**32 - 1), ULong(2**64 - 1), Byte(-128),
    Short(-32768), Int(-(2**31)), -(2**63), Float32(1.5), 0.1, -0.0, 5e-324, 1e308,
    float("nan"), float("inf"), float("-inf"), Decimal32("1.10"), Decimal64("-0"),
    Decimal("0.1234567890123456789012345678901234"), Decimal("1E+400"), Decimal("1E+2"),
    Decimal("123456789012345678901234567890"), Decimal("NaN"), Decimal("-Infinity"), Char("ä"),
    Timestamp(1767225600123), Timestamp(2**62), UUID(int=7), b"\x00\xff", "text", "", Symbol("sym"),
    [1, [2.50, Decimal("2.50"), {"a": None}]], {"a": {"b": [Decimal("1.10"), 1.1]}},
    {1: "one", UUID(int=1): "yes"}, Described(Symbol("x:y"), [1]),
]  # fmt: skip


def test_bodies_of_every_type_are_written_as_they_were_read(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    first, second = f"{address}-1", f"{address}-2"
    with Streams(broker) as streams:
        streams.create(first)
        streams.create(second)
        bodies: list[object] = [AmqpValue(value) for value in VALUES]
        bodies += [AmqpSequence([value, value]) for value in VALUES]
        streams.publish(first, [Message(body) for body in bodies])
    one = read(spark, broker, subscribe=first, includeMetadata=True)
    write(one, broker, second)
    two = read(spark, broker, subscribe=second, includeMetadata=True)
    columns = ("offset", "bodyType", "body")
    before, after = (frame.select(*columns).collect() for frame in (one, two))
    assert len(before) == len(bodies)
    for left, right in zip(before, after, strict=True):
        assert (left.bodyType, _digits(left.body)) == (right.bodyType, _digits(right.body))


def _digits(body: bytes) -> object:
    """JSON whose numbers are equal only if their digits are."""
    return json.loads(body, parse_float=lambda text: Decimal(text).as_tuple())


def test_more_partitions_than_the_stream_has(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    three, one, other = f"{address}-3", f"{address}-1", f"{address}-2"
    with Streams(broker) as streams:
        streams.create(three, 3)
        streams.create(one)
        streams.create(other)
        streams.fill(three, 9)
    frame = read(spark, broker, subscribe=three, includeMetadata=True)
    with pytest.raises(PySparkException, match="The column 'partition' chooses it; drop"):
        write(frame, broker, one)
    write(frame.drop("partition"), broker, other)
    assert numbers(read(spark, broker, subscribe=other)) == list(range(9))


def test_what_map_in_arrow_needs_is_there(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    """Spark wants packages for it that it does not bring: the extra `spark` does."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    with Streams(broker) as streams:
        streams.create(address)
        streams.fill(address, 9)
    frame = read(spark, broker, subscribe=address, schema="body binary")
    assert numbers(frame.mapInArrow(same, "body binary")) == list(range(9))
