"""The sink for ``format("amqp_capture")``: tasks write files, and the driver gives them names.

Tasks write files under names that readers ignore. When all tasks have finished, the driver compares
the new files with the existing ones and gives them names that state their content. If a batch is
repeated, the driver finds the files of the first attempt. Files of failed attempts are removed with
the next batch. So neither retries nor replays write anything twice.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from pyspark_ferrymq.capture.commit import discard, settle
from pyspark_ferrymq.capture.options import CaptureSinkOptions
from pyspark_ferrymq.capture.write_task import WrittenFiles, write_runs
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.spark_api import DataSourceStreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class CaptureSink(DataSource):
    """``format("amqp_capture")``. Raises `AmqpOptionError` for wrong options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = CaptureSinkOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "amqp_capture"

    def schema(self) -> StructType:
        """Raise `AmqpOptionError`: the format cannot be loaded."""
        raise AmqpOptionError(
            "amqp_capture writes; to read capture files, call"
            " pyspark_ferrymq.capture.read_capture, or read them as Parquet"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch query."""
        return _BatchWriter(self._parsed, _checked(schema, overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return the writer of a streaming query."""
        return _StreamWriter(self._parsed, _checked(schema, overwrite))


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: CaptureSinkOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task to files without final names; runs in the task."""
        return write_runs(self._options, self._columns, iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Give the files of all tasks their names; runs in the driver."""
        settle(self._options, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files after a task has failed; runs in the driver."""
        discard(self._options, _written(messages))


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: CaptureSinkOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task to files without final names; runs in the task."""
        return write_runs(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the files of all tasks their names; runs in the driver."""
        settle(self._options, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files after a task has failed; runs in the driver."""
        discard(self._options, _written(messages))


def _written(messages: list[WriterCommitMessage | None]) -> list[WrittenFiles]:
    return [message for message in messages if isinstance(message, WrittenFiles)]


def _checked(schema: StructType, overwrite: bool) -> tuple[str, ...]:
    """Return the columns in the order of capture files. Raises `AmqpOptionError`."""
    from ferrymq.arrow import POSITION, TYPES
    from pyspark_ferrymq.schema import spark_types

    if overwrite:
        raise AmqpOptionError(
            "capture files can only be added to others: write with mode('append'), or"
            " outputMode('append')"
        )
    types = spark_types()
    for field in schema.fields:
        kind = types.get(field.name)
        if kind is None:
            raise AmqpOptionError(
                f"capture files have no column {field.name!r} (columns: {', '.join(TYPES)})"
            )
        if field.dataType.simpleString() != kind.simpleString():
            raise AmqpOptionError(
                f"the column {field.name!r} is {kind.simpleString()} in capture files, not"
                f" {field.dataType.simpleString()}"
            )
    names = schema.fieldNames()
    missing = [name for name in POSITION if name not in names]
    if missing:
        raise AmqpOptionError(
            f"the column {missing[0]!r} is missing: capture files are named by"
            f" {', '.join(POSITION)}"
        )
    return tuple(name for name in TYPES if name in names)
