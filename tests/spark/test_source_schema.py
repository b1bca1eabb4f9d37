"""Columns as Spark has them: equal to what Arrow has, in every subset; wrong ones named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from ferrymq import Message
from ferrymq.arrow.schema import DEFAULT, METADATA, TYPES, schema_of
from pyspark_ferrymq import AmqpOptionError
from pyspark_ferrymq.kafka_columns import TYPES as KAFKA_TYPES
from pyspark_ferrymq.read_columns import ReadColumns
from pyspark_ferrymq.schema import columns_of, default_schema, spark_types
from pyspark_ferrymq.spark_api import arrow_schema


@given(st.lists(st.sampled_from(list(TYPES)), min_size=1, unique=True))
def test_every_subset_is_what_spark_makes_of_it(names: list[str]) -> None:
    types = spark_types()
    schema = StructType([StructField(name, types[name]) for name in names])
    assert columns_of(schema).names == tuple(names)
    assert arrow_schema(schema).equals(schema_of(names))


@given(st.lists(st.sampled_from(list(KAFKA_TYPES)), min_size=1, unique=True))
def test_every_subset_of_kafkas_columns(names: list[str]) -> None:
    schema = StructType([StructField(name, KAFKA_TYPES[name]) for name in names])
    decoder = columns_of(schema, kafka=True).decoder("orders", 3)
    batch = decoder.decode_messages([Message(b"x").encode()] * 2)
    assert batch.num_rows == 2
    assert batch.schema.equals(arrow_schema(schema))


def test_columns_of_text() -> None:
    body = StructType([StructField("body", StringType()), StructField("offset", LongType())])
    assert columns_of(body) == ReadColumns(("body", "offset"), False, frozenset({"body"}))
    kafka = StructType([StructField("key", StringType()), StructField("value", StringType())])
    batch = (
        columns_of(kafka, kafka=True)
        .decoder("orders", 3)
        .decode_messages([Message("ß", message_annotations={"x-opt-partition-key": "k"}).encode()])
    )
    assert batch.to_pylist() == [{"key": "k", "value": "ß"}]
    assert batch.schema.equals(arrow_schema(kafka))


def test_what_load_gives() -> None:
    assert columns_of(default_schema()).names == DEFAULT
    assert columns_of(default_schema(include_raw=True)).names == (*DEFAULT, "raw")
    assert columns_of(default_schema(include_metadata=True)).names == METADATA
    assert columns_of(default_schema(True, True)).names == (*METADATA, "raw")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([], "no column"),
        ([StructField("bodi", StringType())], "no column 'bodi'; did you mean 'body'"),
        ([StructField("Offset", LongType())], "no column 'Offset'; did you mean 'offset'"),
        ([StructField("offset", IntegerType())], "'offset' is bigint, not int"),
        ([StructField("userId", StringType())], "'userId' is binary, not string"),
        ([StructField("to", StringType()), StructField("to", StringType())], "there twice"),
        ([StructField("to", StringType(), nullable=False)], "leave out NOT NULL"),
        (
            [StructField("footer", MapType(StringType(), StringType(), False))],
            "'footer' may be null .valueContainsNull, containsNull and nullable have to be true",
        ),
    ],
)
def test_what_is_wrong_is_named(fields: list[StructField], says: str) -> None:
    with pytest.raises(AmqpOptionError, match=says):
        columns_of(StructType(fields))
