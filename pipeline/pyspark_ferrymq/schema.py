"""The columns as Spark types, and the check of a user's schema.

The types correspond to `ferrymq.arrow.schema`. Spark converts the Spark schema of some columns to
exactly their Arrow schema, so that record batches pass unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_ferrymq import kafka_columns
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.read_columns import ReadColumns

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of binary that a query may also have as strings.
_TEXTS: Final = ("body",)
_KAFKA_TEXTS: Final = ("key", "value")


def spark_types() -> dict[str, DataType]:
    """Return the Spark types of all columns, in order."""
    from ferrymq.arrow.schema import TYPES

    return {name: _spark_type(kind) for name, kind in TYPES.items()}


def default_schema(include_metadata: bool = False, include_raw: bool = False) -> StructType:
    """Return the columns of ``load()`` without ``schema()``."""
    from ferrymq.arrow.schema import DEFAULT, METADATA, RAW

    types = spark_types()
    names = list(METADATA if include_metadata else DEFAULT)
    if include_raw:
        names.append(RAW)
    return StructType([StructField(name, types[name]) for name in names])


def columns_of(schema: StructType, kafka: bool = False) -> ReadColumns:
    """Return the columns that a user has chosen, in the user's order; with `kafka`, those of Kafka.

    Raises `AmqpOptionError` for a name that is not a column, a repeated name, and a wrong type.
    """
    from ferrymq.arrow.schema import hint

    types = kafka_columns.TYPES if kafka else spark_types()
    if not schema.fields:
        raise AmqpOptionError(f"schema(): it has no column (columns: {_listed(types)})")
    names: list[str] = []
    texts: list[str] = []
    for field in schema.fields:
        kind = types.get(field.name)
        if kind is None:
            other = ""
            if not kafka and field.name in kafka_columns.OURS:
                other = f"; {field.name!r} is a column with the option 'columns' = kafka"
            raise AmqpOptionError(
                f"schema(): there is no column {field.name!r}{other}{hint(field.name, types)}"
            )
        if field.name in names:
            raise AmqpOptionError(f"schema(): the column {field.name!r} is there twice")
        if field.name in (_KAFKA_TEXTS if kafka else _TEXTS) and field.dataType == StringType():
            texts.append(field.name)
        elif field.dataType.simpleString() == kind.simpleString() and field.dataType != kind:
            raise AmqpOptionError(
                f"schema(): the values in the column {field.name!r} may be null"
                " (valueContainsNull, containsNull and nullable have to be true)"
            )
        elif field.dataType != kind:
            raise AmqpOptionError(
                f"schema(): the column {field.name!r} is {kind.simpleString()}, not"
                f" {field.dataType.simpleString()} (columns: {_listed(types)})"
            )
        if not field.nullable:
            raise AmqpOptionError(
                f"schema(): the column {field.name!r} may be null; leave out NOT NULL"
            )
        names.append(field.name)
    return ReadColumns(tuple(names), kafka, frozenset(texts))


def _listed(types: dict[str, DataType]) -> str:
    return ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())


def _spark_type(kind: pa.DataType) -> DataType:
    import pyarrow.types as arrow

    if arrow.is_map(kind):
        return MapType(_spark_type(kind.key_type), _spark_type(kind.item_type))
    for matches, spark in (
        (arrow.is_binary, BinaryType()),
        (arrow.is_string, StringType()),
        (arrow.is_int8, ByteType()),
        (arrow.is_int32, IntegerType()),
        (arrow.is_int64, LongType()),
        (arrow.is_boolean, BooleanType()),
        (arrow.is_timestamp, TimestampType()),
    ):
        if matches(kind):
            return spark
    raise TypeError(f"no Spark type for {kind}")
