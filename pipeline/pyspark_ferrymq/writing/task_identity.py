"""The identity of a task's work in its fence: the query or job, the part, and the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.taskcontext import TaskContext

from pyspark_ferrymq.errors import AmqpSourceError, AmqpWriteError

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"

LIST: Final = "brokers"
"""The member that has the digest of the brokers among which the rows of a batch are divided."""

WHOLE: Final = "*"
"""The member for the whole batch, which is committed after all tasks."""

EACH: Final = "*"
"""The target of work whose rows have their own addresses."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The part `partition` of batch `sequence` of a query or job, the `group`.

    `width` is the number of parts, 0 if it is not given. `target` is the address of all rows, or
    `EACH`. `of_query` says whether the group is a query, which has a checkpoint. `broker` is the id
    of the broker that the rows go to if there are several: then each broker gets a part of them.
    """

    group: str
    sequence: int
    partition: int
    width: int = 0
    target: str = EACH
    of_query: bool = False
    broker: str = ""

    @property
    def member(self) -> str:
        """The member in the task's fence."""
        return str(self.partition)

    @property
    def role(self) -> str:
        """The role of the connections that write this."""
        return f"query-{self.group}/write" if self.of_query else "write"

    def __str__(self) -> str:
        at = f" at the broker {self.broker!r}" if self.broker else ""
        return f"task {self.partition} of batch {self.sequence} of {self.group!r}{at}"


@dataclass(frozen=True)
class WrittenRows(WriterCommitMessage):
    """The result of a task: it has written `rows`, or was `repeated` and has `skipped` rows that
    were written before.

    `digest` is the value of the digest of its rows, None if it is not used.
    """

    work: TaskIdentity
    rows: int = 0
    repeated: bool = False
    skipped: int = 0
    digest: bytes | None = None


@dataclass(frozen=True)
class WrittenToBrokers(WriterCommitMessage):
    """The results of a task that writes to several brokers, in the order of their ids."""

    parts: tuple[WrittenRows, ...]


def of_query(tasks: int | None, address: str | None) -> TaskIdentity:
    """Return the identity of the current task of a streaming query.

    Raises `AmqpSourceError` if Spark does not tell the query and the batch.
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
    """Return the identity of the current task of a batch query."""
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
        raise AmqpSourceError("the sink amqp writes only in Spark tasks, and this is not one")
    return context
