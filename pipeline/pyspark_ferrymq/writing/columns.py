"""The check of a frame's columns, by name and type, when the write is planned."""

from __future__ import annotations

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
    if options.address is None and options.address_column not in names:
        raise AmqpOptionError(
            "rows have no address: give the option 'address', or add a column"
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


def renamed(schema: pa.Schema, options: SinkOptions) -> pa.Schema:
    """Return the schema with the address column renamed to `address`, replacing any other one."""
    import pyarrow as pa

    wanted = options.address_column
    if wanted == ADDRESS_COLUMN:
        return schema
    fields = [field for field in schema if field.name != ADDRESS_COLUMN]
    return pa.schema(
        [field.with_name(ADDRESS_COLUMN) if field.name == wanted else field for field in fields]
    )


def renamed_batch(batch: pa.RecordBatch, options: SinkOptions) -> pa.RecordBatch:
    """Return a batch with the columns of `renamed`."""
    import pyarrow as pa

    if options.address_column == ADDRESS_COLUMN:
        return batch
    kept = [index for index, name in enumerate(batch.schema.names) if name != ADDRESS_COLUMN]
    return pa.RecordBatch.from_arrays(
        [batch.column(index) for index in kept], schema=renamed(batch.schema, options)
    )
