"""Reading: planning in the driver, and the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.schema import columns_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from pyspark_ferrymq.options import SourceOptions

__all__ = ["make_batch_reader", "make_stream_reader"]


def make_batch_reader(options: SourceOptions, schema: StructType) -> DataSourceReader:
    """Choose the reader of a batch: of streams, or of queues with `queueMode`.

    No reader accepts Spark's filters (`pushFilters`): Spark keeps one plan with a frame, made for
    the last filter, and reads with it for every use of the frame.
    """
    columns = columns_of(schema, options.kafka)
    if options.queue_mode is not None:
        from pyspark_ferrymq.reading.queue_reader import queue_reader

        return queue_reader(options, columns)
    from pyspark_ferrymq.reading.batch_reader import OffsetBatchReader

    return OffsetBatchReader(options, columns)


def make_stream_reader(options: SourceOptions, schema: StructType) -> DataSourceStreamReader:
    """Choose the reader of a query: of streams, or of queues with `queueMode`.

    Spark up to 4.1 needs a reader of streams that remembers its position.
    """
    from pyspark_ferrymq.spark_api import ADMISSION_CONTROL

    columns = columns_of(schema, options.kafka)
    if options.queue_mode == "consume":
        if not ADMISSION_CONTROL:
            raise AmqpOptionError(
                "option 'queueMode': consume needs Spark 4.2 or newer; older releases do not tell a"
                " source which batches are committed"
            )
        from pyspark_ferrymq.reading.lease_reader import LeaseStreamReader

        return LeaseStreamReader(options, columns)
    if not ADMISSION_CONTROL:
        from pyspark_ferrymq.reading.remembering_reader import RememberingStreamReader

        return RememberingStreamReader(options, columns)
    from pyspark_ferrymq.reading.stream_reader import OffsetStreamReader

    return OffsetStreamReader(options, columns)
