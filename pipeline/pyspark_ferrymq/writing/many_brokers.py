"""Writing to several brokers: each gets a part of a task's rows, in one transaction.

A task writes to one broker after the other. If it is repeated, a broker that has committed its part
compares the rows and writes none, and the others write theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_ferrymq.writing.batch_fences import finish
from pyspark_ferrymq.writing.broker_choice import BrokerChoice
from pyspark_ferrymq.writing.broker_list import record_brokers
from pyspark_ferrymq.writing.kept_batches import IN_MEMORY, KeptBatches
from pyspark_ferrymq.writing.options import EXACTLY_ONCE
from pyspark_ferrymq.writing.partition_choice import PartitionChoice
from pyspark_ferrymq.writing.targets import SinkTargets
from pyspark_ferrymq.writing.task_identity import TaskIdentity, WrittenRows, WrittenToBrokers
from pyspark_ferrymq.writing.write_task import write, write_kept

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage


def write_to(
    targets: SinkTargets, work: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> WrittenRows | WrittenToBrokers:
    """Write the rows of a task, with several brokers each row to its own; runs in the task.

    Raises `AmqpWriteError`.
    """
    if len(targets.brokers) == 1 and not targets.owners:
        return write(targets.brokers[0], work, batches)
    if targets.brokers[0].delivery == EXACTLY_ONCE and len(targets.brokers) > 1:
        targets = record_brokers(targets, work)
    works = [replace(work, broker=options.connection.broker) for options in targets.brokers]
    choice: BrokerChoice | PartitionChoice
    if targets.owners:
        choice = PartitionChoice(targets, work)
    else:
        choice = BrokerChoice(targets.brokers[0], work, [one.broker for one in works])
    rows = _DividedRows(batches, choice, len(works))
    try:
        return WrittenToBrokers(
            tuple(
                write_kept(options, part, kept)
                for options, part, kept in zip(targets.brokers, works, rows.kept, strict=True)
            )
        )
    finally:
        rows.close()


def finish_at(targets: SinkTargets, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Record at each broker that all tasks have committed; runs in the driver.

    Raises `AmqpWriteError` as `finish` does.
    """
    if targets.brokers[0].delivery != EXACTLY_ONCE:
        return
    written = [part for one in messages for part in _parts(one)]
    for options in targets.brokers:
        # A broker with new partitions only has no part of a batch that was begun without them.
        finish(
            options,
            [part for part in written if part.work.broker in ("", options.connection.broker)],
        )


def _parts(message: WriterCommitMessage | None) -> tuple[WrittenRows, ...]:
    if isinstance(message, WrittenToBrokers):
        return message.parts
    return (message,) if isinstance(message, WrittenRows) else ()


class _DividedRows:
    """The rows of a task, kept for each broker. Rows of the other brokers that come with those of
    one broker wait until these are written."""

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        choice: BrokerChoice | PartitionChoice,
        brokers: int,
    ) -> None:
        self._batches = batches
        self._choice = choice
        self.kept: list[KeptBatches] = [
            KeptBatches(self._rest(index), IN_MEMORY // brokers) for index in range(brokers)
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
