"""Columns as Spark has them: equal to what Arrow has, in every subset; wrong ones named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from ferrymq.arrow.schema import DEFAULT, METADATA, TYPES, schema_of
from pyspark_ferrymq import AmqpOptionError
from pyspark_ferrymq.schema import columns_of, default_schema, spark_types


@given(st.lists(st.sampled_from(list(TYPES)), min_size=1, unique=True))
def test_every_subset_is_what_spark_makes_of_it(names: list[str]) -> None:
    types = spark_types()
    schema = StructType([StructField(name, types[name]) for name in names])
    assert columns_of(schema) == tuple(names)
    assert to_arrow_schema(schema, timezone="UTC").equals(schema_of(names))


def test_what_load_gives() -> None:
    assert columns_of(default_schema()) == DEFAULT
    assert columns_of(default_schema(include_raw=True)) == (*DEFAULT, "raw")
    assert columns_of(default_schema(include_metadata=True)) == METADATA
    assert columns_of(default_schema(True, True)) == (*METADATA, "raw")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([], "no column"),
        ([StructField("bodi", StringType())], "no column 'bodi'; did you mean 'body'"),
        ([StructField("Offset", LongType())], "no column 'Offset'; did you mean 'offset'"),
        ([StructField("offset", IntegerType())], "'offset' is bigint, not int"),
        ([StructField("body", StringType())], "'body' is binary, not string"),
        ([StructField("to", StringType()), StructField("to", StringType())], "there twice"),
        ([StructField("to", StringType(), nullable=False)], "leave out NOT NULL"),
        (
            [StructField("footer", MapType(StringType(), StringType(), False))],
            "'footer' may be null .valueContainsNull has to be true",
        ),
    ],
)
def test_what_is_wrong_is_named(fields: list[StructField], says: str) -> None:
    with pytest.raises(AmqpOptionError, match=says):
        columns_of(StructType(fields))
