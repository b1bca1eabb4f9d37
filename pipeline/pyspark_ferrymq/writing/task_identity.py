"""What a task has to do, as its fence knows it: who, which part, and which batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.taskcontext import TaskContext

from pyspark_ferrymq.errors import AmqpSourceError, AmqpWriteError

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"

WHOLE: Final = "*"
"""The member that stands for the whole batch: committed when all tasks have."""

EACH: Final = "*"
"""The target of work whose rows say themselves where they go."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The part `partition` of batch `sequence` of a query or job, the `group`.

    `width` is how many parts there are, 0 if nobody has said so. `target` is the address that all
    rows go to, or `EACH`. `of_query` says whether the group is a query, which has a checkpoint.
    """

    group: str
    sequence: int
    partition: int
    width: int = 0
    target: str = EACH
    of_query: bool = False

    @property
    def member(self) -> str:
        """By what its fence is known."""
        return str(self.partition)

    def __str__(self) -> str:
        return f"task {self.partition} of batch {self.sequence} of {self.group!r}"


@dataclass(frozen=True)
class WrittenRows(WriterCommitMessage):
    """A task is done: it has written so many `rows`; or was `repeated`, and `skipped` so many that
    were there before.

    `digest` is the value of the digest of its rows, None if it was not asked for.
    """

    work: TaskIdentity
    rows: int = 0
    repeated: bool = False
    skipped: int = 0
    digest: bytes | None = None


def of_query(tasks: int | None, address: str | None) -> TaskIdentity:
    """The work of the task this runs in, of a streaming query.

    Raises `AmqpSourceError` if Spark does not say which query and batch it is.
    """
    context = _context()
    query = context.getLocalProperty(_QUERY)
    batch = context.getLocalProperty(_BATCH)
    if not query or batch is None or not batch.isdigit():
        raise AmqpSourceError(
            f"Spark does not tell this task its query and batch ({_QUERY} = {query!r}, {_BATCH} ="
            f" {batch!r}), without which nothing can be written exactly once. Is the trigger a"
            " continuous one? Use processingTime or availableNow"
        )
    return _within(
        TaskIdentity(query, int(batch), context.partitionId(), tasks or 0, address or EACH, True)
    )


def of_job(group: str, sequence: int, tasks: int | None, address: str | None) -> TaskIdentity:
    """The work of the task this runs in, of a batch."""
    return _within(
        TaskIdentity(group, sequence, _context().partitionId(), tasks or 0, address or EACH)
    )


def _within(work: TaskIdentity) -> TaskIdentity:
    if work.width and work.partition >= work.width:
        raise AmqpWriteError(
            f"{work}: the option 'tasks' says that there are {work.width}. If the batch has been"
            f" begun before, restore its partitioning, with repartition({work.width}); otherwise"
            " give the option the number of partitions there are"
        )
    return work


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise AmqpSourceError("the sink amqp writes in tasks of Spark, and this is none")
    return context
