"""The columns of Spark's Kafka connector, and the columns of messages that they stand for.

| column | type | a message's |
|---|---|---|
| `key` | binary | annotation `x-opt-partition-key`: a string where it is UTF-8, else a binary |
| `value` | binary | body: data, bytes of a string or binary, JSON of other values; null for null |
| `topic`, `partition`, `offset` | string, int, bigint | stream, partition and offset |
| `timestamp` | timestamp | time at which it was appended |
| `timestampType` | int | always 1: the time of the append, not of the creation |
| `headers` | array<struct<key string, value binary>> | application properties; null without any |
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
"""The types of Kafka's columns, in the order of Kafka's connector."""

OURS: Final = {
    "key": "partitionKey",
    "value": "body",
    "topic": "address",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "enqueuedTime",
    "headers": "applicationProperties",
}
"""The column of messages that each column stands for."""

SET_BY_BROKER: Final = frozenset({"offset", "timestamp", "timestampType"})
"""Columns that writing ignores, so that rows that were read can be written."""

LOG_APPEND_TIME: Final = 1
"""The value of `timestampType`, as in Kafka: the broker sets the time."""

THEIRS: Final = {ours: theirs for theirs, ours in OURS.items()}
"""Kafka's column for a column of messages."""


def kafka_schema(include_headers: bool = False) -> StructType:
    """Return the columns that Spark's Kafka connector has."""
    names = [name for name in TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name]) for name in names])
