"""The columns have the names and the types that Spark has for them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ferrymq.arrow import BROKER, DEFAULT, METADATA, POSITION, RAW, TYPES, ColumnError, schema_of


def test_all_columns_have_the_types_that_spark_makes_of_its_own() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    spark = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int32": types.IntegerType(),
        "int64": types.LongType(),
        "int8": types.ByteType(),
        "bool": types.BooleanType(),
        "timestamp[us, tz=UTC]": types.TimestampType(),
        "map<string, string>": types.MapType(types.StringType(), types.StringType()),
    }
    columns = tuple(TYPES)
    wanted = types.StructType(
        [types.StructField(name, spark[str(TYPES[name])]) for name in columns]
    )
    found = schema_of(columns)
    assert found.equals(pandas_types.to_arrow_schema(wanted, timezone="UTC"), check_metadata=True)
    assert found.field("footer").type.key_field.nullable is False


def test_the_columns_are_in_the_order_asked_for() -> None:
    assert schema_of(["offset", "to", "body"]).names == ["offset", "to", "body"]
    assert schema_of().names == list(DEFAULT)
    assert set(POSITION) < set(DEFAULT) < set(METADATA)
    assert [*METADATA, BROKER, RAW] == list(TYPES)
    assert schema_of([]) == pa.schema([])


def test_a_name_that_is_none_is_met_with_one_that_is() -> None:
    with pytest.raises(ColumnError, match=r"no column 'messageid'; did you mean 'messageId'\?"):
        schema_of(["body", "messageid"])
    with pytest.raises(ColumnError, match=r"columns: body, bodyType, address, .*, raw"):
        schema_of(["zzzzzz"])


def test_a_name_may_be_there_once() -> None:
    with pytest.raises(ColumnError, match="'body' is there twice"):
        schema_of(["body", "offset", "body"])
