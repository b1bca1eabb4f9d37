"""The data source for ``format("amqp")``.

Spark creates the data source where the query is planned, and unpickles it in every process that
runs a part of the query. The data source holds the options, and opens no connection.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from pyspark_ferrymq.errors import AmqpSourceError, plain
from pyspark_ferrymq.options import SourceOptions, Values, check_names
from pyspark_ferrymq.options.names import CHOOSING

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pyspark_ferrymq.spark_api import ReadLimit


class DefaultSource(DataSource):
    """``format("amqp")``. Raises `AmqpOptionError` for wrong options, at ``load()``."""

    @plain
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options)
        self._parsed: SourceOptions | None = None
        if Values(options).given(CHOOSING):
            self._source_options()

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "amqp"

    @plain
    def schema(self) -> StructType:
        """Return the columns used if the user gives no schema."""
        from pyspark_ferrymq.kafka_columns import kafka_schema
        from pyspark_ferrymq.schema import default_schema

        options = self._source_options()
        if options.kafka:
            return kafka_schema(options.include_headers)
        return default_schema(options.include_metadata, options.include_raw)

    @plain
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from pyspark_ferrymq.reading import make_batch_reader

        return make_batch_reader(self._source_options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query."""
        from pyspark_ferrymq.reading import make_stream_reader

        try:
            return make_stream_reader(self._source_options(), schema)
        except AmqpSourceError as error:
            return RefusingStreamReader(error)

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from pyspark_ferrymq.writing.batch_writer import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    @plain
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query."""
        from pyspark_ferrymq.writing.stream_writer import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)

    def _source_options(self) -> SourceOptions:
        if self._parsed is None:
            self._parsed = SourceOptions.parse(self.options)
        return self._parsed


class RefusingStreamReader(DataSourceStreamReader):
    """The reader of a query whose options are wrong: it raises the error when Spark first asks.

    If no reader is returned, Spark tries to stop one, and shows its own `UnboundLocalError` last.
    """

    def __init__(self, error: AmqpSourceError) -> None:
        self._error = error

    @plain
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Raise the error."""
        raise self._error

    @plain
    def latestOffset(  # noqa: N802
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """Raise the error."""
        raise self._error

    @plain
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Raise the error."""
        raise self._error

    @plain
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error


def is_connect(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect, whose server runs elsewhere."""
    return getattr(spark, "_sc", None) is None


def _work_with_this_python(spark: SparkSession) -> None:
    # A session of Spark Connect has no context.
    context = getattr(spark, "_sc", None)
    if context is None or not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python"):
        return
    context.pythonExec = sys.executable


def register(spark: SparkSession) -> None:
    """Register ``format("amqp")`` in a session that has not found it automatically, and
    ``format("amqp_capture")``, which no session finds.

    In local mode, Python workers use the interpreter of this process, unless `PYSPARK_PYTHON` or
    `spark.pyspark.python` names another. By default Spark starts the first ``python3`` of the PATH,
    which lacks the packages of an environment that is not activated.
    """
    from pyspark_ferrymq.capture.sink import CaptureSink
    from pyspark_ferrymq.spark_api import register_source

    _work_with_this_python(spark)
    register_source(spark, DefaultSource)
    register_source(spark, CaptureSink)
