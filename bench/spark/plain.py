"""The data source `plain`: the columns of `amqp` as generated Arrow record batches.

The source shows the time that Spark itself needs for rows with these columns. A worker builds one
batch for each set of columns and returns it repeatedly. Options: `rows` and `partitions`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ferrymq.arrow import schema_of

# Rows of a batch: the same as in the data source under test.
BATCH: Final = 5_000
SIZE: Final = 1024
_TIME: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_batches: dict[str, pa.RecordBatch] = {}


class PlainSource(DataSource):
    """The data source `plain`, for batch and streaming."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "plain"

    def schema(self) -> StructType:
        """Return the default columns of `amqp`."""
        return from_arrow_schema(schema_of())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return _Reader(self._rows(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query, which returns all rows at once."""
        return _StreamReader(self._rows(), schema)

    def _rows(self) -> list[int]:
        partitions = int(self.options.get("partitions", "2"))
        rows = int(self.options["rows"])
        # Partitions have equally many rows; the first ones may have one more.
        return [rows // partitions + (i < rows % partitions) for i in range(partitions)]


class _Reader(DataSourceReader):
    def __init__(self, rows: list[int], schema: StructType) -> None:
        self._rows = rows
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(rows) for rows in self._rows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(self._schema, partition.value)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, rows: list[int], schema: StructType) -> None:
        self._rows = rows
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"rows": sum(self._rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(rows) for rows in self._rows] if end["rows"] > start["rows"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(self._schema, partition.value)


def batches(schema: StructType, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of these columns, with `rows` rows in all."""
    key = schema.simpleString()
    if key not in _batches:
        _batches[key] = _build(to_arrow_schema(schema, timezone="UTC"))
    whole = _batches[key]
    for _ in range(rows // BATCH):
        yield whole
    if rows % BATCH:
        yield whole.slice(0, rows % BATCH)


def _build(schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array([_value(field.name, field.type, i) for i in range(BATCH)], field.type)
        for field in schema
    ]
    return pa.record_batch(arrays, schema=schema)


def _value(name: str, kind: pa.DataType, i: int) -> Any:
    if name == "body":
        return i.to_bytes(8, "big") + bytes(SIZE - 8)
    if pa.types.is_binary(kind):
        return b"0123456789abcdef"
    if pa.types.is_string(kind):
        return f"{name}-{i}"
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_timestamp(kind):
        return _TIME + datetime.timedelta(milliseconds=i)
    if pa.types.is_map(kind):
        return [("region", "north"), ("attempt", "1"), ("kind", "order")]
    return i % 100
