"""Writing to several brokers: each gets a part of a task's rows, in one transaction.

A task writes to one broker after the other. If it is repeated, a broker that has committed its part
compares the rows and writes none, and the others write theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_ferrymq.brokers.discovery import BrokerDiscovery
from pyspark_ferrymq.brokers.several_brokers import may_be_several
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.writing.batch_fences import finish
from pyspark_ferrymq.writing.broker_choice import BROKER_COLUMN, BrokerChoice
from pyspark_ferrymq.writing.broker_list import record_brokers
from pyspark_ferrymq.writing.kept_batches import IN_MEMORY, KeptBatches
from pyspark_ferrymq.writing.options import EXACTLY_ONCE, SinkOptions
from pyspark_ferrymq.writing.retry import Outage
from pyspark_ferrymq.writing.task_identity import TaskIdentity, WrittenRows, WrittenToBrokers
from pyspark_ferrymq.writing.write_task import write, write_kept

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType


def targets_of(options: SinkOptions, schema: StructType) -> tuple[SinkOptions, ...]:
    """Return the options for each broker that the URLs lead to, sorted by id; runs in the driver.

    All tasks of a batch use the result, so they divide their rows among the same brokers. With one
    URL, no connection is opened.

    Raises `AmqpOptionError` if the frame says the partition but not the broker of rows, and
    `AmqpWriteError` if a URL does not answer for the time in `write.retryTimeoutMs`.
    """
    settings = options.connection
    if not may_be_several(settings):
        return (options,)
    outage = Outage("the brokers of the option 'url'", options.retry_timeout)
    while True:
        discovery = BrokerDiscovery(settings)
        try:
            known = discovery.find()
            discovery.require_all()
        except AmqpUnreachableError as error:
            outage.lost(error, settings.place)
        else:
            break
    names = schema.fieldNames()
    if len(known) > 1 and "partition" in names and BROKER_COLUMN not in names:
        raise AmqpOptionError(
            "the column 'partition' says the partition of a row, and there are several brokers"
            f" (option 'url'), each with partitions of its own: drop the column, or add a column"
            f" {BROKER_COLUMN!r} with the id of the row's broker"
        )
    return tuple(replace(options, connection=one.connection) for one in known)


def write_to(
    targets: Sequence[SinkOptions], work: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> WrittenRows | WrittenToBrokers:
    """Write the rows of a task, with several brokers each row to its own; runs in the task.

    Raises `AmqpWriteError`.
    """
    if len(targets) == 1:
        return write(targets[0], work, batches)
    works = [replace(work, broker=options.connection.broker) for options in targets]
    rows = _DividedRows(batches, BrokerChoice(targets[0], work, [one.broker for one in works]))
    try:
        if targets[0].delivery == EXACTLY_ONCE:
            record_brokers(targets, works)
        return WrittenToBrokers(
            tuple(
                write_kept(options, part, kept)
                for options, part, kept in zip(targets, works, rows.kept, strict=True)
            )
        )
    finally:
        rows.close()


def finish_at(
    targets: Sequence[SinkOptions], messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Record at each broker that all tasks have committed; runs in the driver.

    Raises `AmqpWriteError` as `finish` does.
    """
    if targets[0].delivery != EXACTLY_ONCE:
        return
    if len(targets) == 1:
        finish(targets[0], [one for one in messages if isinstance(one, WrittenRows)])
        return
    written = [one.parts for one in messages if isinstance(one, WrittenToBrokers)]
    for index, options in enumerate(targets):
        finish(options, [parts[index] for parts in written])


class _DividedRows:
    """The rows of a task, kept for each broker. Rows of the other brokers that come with those of
    one broker wait until these are written."""

    def __init__(self, batches: Iterator[pa.RecordBatch], choice: BrokerChoice) -> None:
        self._batches = batches
        self._choice = choice
        count = choice.count
        self.kept: list[KeptBatches] = [
            KeptBatches(self._rest(index), IN_MEMORY // count) for index in range(count)
        ]

    def close(self) -> None:
        """Drop all rows."""
        for kept in self.kept:
            kept.close()

    def _rest(self, index: int) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            mine: pa.RecordBatch | None = None
            for other, rows in self._choice.divide(batch):
                if other == index:
                    mine = rows
                else:
                    self.kept[other].add(rows)
            if mine is not None:
                yield mine
