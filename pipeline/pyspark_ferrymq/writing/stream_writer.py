"""The writer of a streaming query: ``df.writeStream.format("amqp").start()``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.spark_api import DataSourceStreamArrowWriter
from pyspark_ferrymq.worker_memory import freeze_modules
from pyspark_ferrymq.writing.columns import check_columns
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.task_identity import WrittenRows, WrittenToBrokers, of_query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_ferrymq.writing.targets import SinkTargets


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a query, created in the driver for each batch and copied to tasks. The query's
    id comes from its checkpoint, and batches are identified by their numbers."""

    def __init__(self, options: SinkOptions, targets: SinkTargets) -> None:
        self._options = options
        self._targets = targets

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows | WrittenToBrokers:
        """Write the rows of a task in one transaction for each broker; runs in the task."""
        from ferrymq.heap import keep_large_blocks
        from pyspark_ferrymq.writing.many_brokers import write_to

        keep_large_blocks()
        work = of_query(self._options.tasks, self._options.address)
        written = write_to(self._targets, work, iterator)
        freeze_modules()
        return written

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Record that all tasks have written; runs in the driver."""
        from pyspark_ferrymq.writing.many_brokers import finish_at

        finish_at(self._targets, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing after a task has failed; runs in the driver.

        Other tasks may still write. Rows that they commit stay, and are not written again when the
        batch is repeated.
        """


def stream_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a streaming query. Raises `AmqpOptionError`."""
    from pyspark_ferrymq.writing.targets import targets_of

    if overwrite:
        raise AmqpOptionError(
            "messages can only be added to a node, so a result cannot be replaced. Write"
            ' with outputMode("append"), or "update" in foreachBatch'
        )
    parsed = SinkOptions.parse(options, streaming=True)
    check_columns(schema, parsed)
    return StreamWriter(parsed, targets_of(parsed, schema))
