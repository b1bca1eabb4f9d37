"""The check of a frame's columns, by name and type, when the write is planned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.writing.options import ADDRESS_COLUMN, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise `AmqpOptionError` for a frame whose rows are not messages or have no address."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from ferrymq.arrow import ColumnError, MessageEncoder
    from pyspark_ferrymq.spark_api import arrow_schema

    names = schema.fieldNames()
    if options.kafka:
        _check_kafka(schema)
    if options.address is None and options.address_column not in names:
        option = "topic" if options.kafka else "address"
        raise AmqpOptionError(
            f"rows have no address: give the option {option!r}, or add a column"
            f" {options.address_column!r} (string) to the frame"
        )
    for field in schema.fields:
        if field.name == options.address_column and field.dataType.simpleString() != "string":
            raise AmqpOptionError(
                f"the column {field.name!r} has the addresses of rows and is"
                f" {field.dataType.simpleString()}; it has to be string"
            )
    for field in schema.fields:
        # Each column is checked alone, because errors of Spark and Arrow do not name the column.
        try:
            arrow_schema(StructType([field]))
        except (PySparkException, ValueError, TypeError) as error:
            kind = field.dataType.simpleString()
            remedy = ""
            if "void" in kind:
                remedy = ". Give it a type, such as cast(map() as map<string,string>)"
            raise AmqpOptionError(
                f"the column {field.name!r} is {kind}, which cannot be written: {error}{remedy}"
            ) from None
    arrow = arrow_schema(schema)
    try:
        MessageEncoder(renamed(arrow, options))
    except ColumnError as error:
        raise AmqpOptionError(
            f"{error}. Rename, cast or drop columns with select(); struct columns go into the body"
            " with to_json()"
        ) from None


def _check_kafka(schema: StructType) -> None:
    """Raise `AmqpOptionError` for columns that Kafka's sink would not write."""
    from pyspark.sql.types import StringType

    from pyspark_ferrymq.kafka_columns import TYPES

    if "value" not in schema.fieldNames():
        raise AmqpOptionError("the frame has no column 'value' (binary or string)")
    for field in schema.fields:
        wanted = TYPES.get(field.name)
        if wanted is None:
            raise AmqpOptionError(
                f"with 'columns' = kafka there is no column {field.name!r}; drop it. The columns"
                f" are {', '.join(TYPES)}"
            )
        found = field.dataType.simpleString()
        if field.name in ("key", "value") and field.dataType == StringType():
            continue
        if found != wanted.simpleString():
            text = " or string" if field.name in ("key", "value") else ""
            raise AmqpOptionError(
                f"the column {field.name!r} is {found}; it has to be"
                f" {wanted.simpleString()}{text}"
            )


def _new_names(names: Iterable[str], options: SinkOptions) -> list[str | None]:
    """Return the columns of messages for the columns of a frame; None for one that is dropped."""
    if options.kafka:
        from pyspark_ferrymq.kafka_columns import OURS, SET_BY_BROKER

        return [None if name in SET_BY_BROKER else OURS[name] for name in names]
    wanted = options.address_column
    if wanted == ADDRESS_COLUMN:
        return list(names)
    return [
        ADDRESS_COLUMN if name == wanted else None if name == ADDRESS_COLUMN else name
        for name in names
    ]


def frame_name(column: str, options: SinkOptions) -> str:
    """Return the name that the frame has for a column of messages."""
    if options.kafka:
        from pyspark_ferrymq.kafka_columns import THEIRS

        return THEIRS.get(column, column)
    return column


def renamed(schema: pa.Schema, options: SinkOptions) -> pa.Schema:
    """Return the schema with the names of messages' columns: the address column is `address`,
    replacing any other one."""
    import pyarrow as pa

    names = _new_names(schema.names, options)
    return pa.schema(
        [field.with_name(name) for field, name in zip(schema, names, strict=True) if name]
    )


def renamed_batch(batch: pa.RecordBatch, options: SinkOptions) -> pa.RecordBatch:
    """Return a batch with the columns of `renamed`."""
    import pyarrow as pa

    names = _new_names(batch.schema.names, options)
    if names == batch.schema.names:
        return batch
    kept = [index for index, name in enumerate(names) if name]
    return pa.RecordBatch.from_arrays(
        [batch.column(index) for index in kept], schema=renamed(batch.schema, options)
    )
