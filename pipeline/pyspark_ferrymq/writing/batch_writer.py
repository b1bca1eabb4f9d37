"""The writer of a batch query: ``df.write.format("amqp").mode("append").save()``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.worker_memory import freeze_modules
from pyspark_ferrymq.writing.columns import check_columns
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.task_identity import WrittenRows, WrittenToBrokers, of_job

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_ferrymq.writing.targets import SinkTargets


class BatchWriter(DataSourceArrowWriter):
    """The writer of a job, created in the driver and copied to tasks. A job has a unique name,
    unless the options `txnAppId` and `txnVersion` give it a name that stays the same in the next
    run."""

    def __init__(self, options: SinkOptions, targets: SinkTargets) -> None:
        self._options = options
        self._targets = targets
        self._group = options.app_id or f"job-{uuid4()}"
        self._sequence = options.version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows | WrittenToBrokers:
        """Write the rows of a task in one transaction for each broker; runs in the task."""
        from ferrymq.heap import keep_large_blocks
        from pyspark_ferrymq.writing.many_brokers import write_to

        keep_large_blocks()
        work = of_job(self._group, self._sequence, self._options.tasks, self._options.address)
        written = write_to(self._targets, work, iterator)
        freeze_modules()
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record that all tasks have written; runs in the driver."""
        from pyspark_ferrymq.writing.many_brokers import finish_at

        finish_at(self._targets, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing after a task has failed; runs in the driver.

        Other tasks may still write. Rows that they commit stay, and are not written again if the
        job is run again under the same name.
        """


def batch_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch query. Raises `AmqpOptionError`."""
    from pyspark_ferrymq.writing.targets import targets_of

    if overwrite:
        raise AmqpOptionError(
            "messages can only be added to a node, not overwrite others. Write with"
            ' mode("append")'
        )
    parsed = SinkOptions.parse(options, streaming=False)
    check_columns(schema, parsed)
    return BatchWriter(parsed, targets_of(parsed, schema))
