"""A write task: the rows of one task over one connection, in one transaction.

If the connection is lost, the task opens another one and sends all its kept rows again. If a commit
had no answer, the broker's fence tells whether it was done.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.worker_connections import WorkerConnection
from pyspark_ferrymq.writing.batch_fences import FenceClient, fence_of
from pyspark_ferrymq.writing.error_messages import no_transactions, other_content, rolled_back
from pyspark_ferrymq.writing.kept_batches import KeptBatches
from pyspark_ferrymq.writing.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from pyspark_ferrymq.writing.retry import Outage, retrying, was_lost
from pyspark_ferrymq.writing.rows import RowBatches, Shipment
from pyspark_ferrymq.writing.task_identity import TaskIdentity, WrittenRows
from pyspark_ferrymq.writing.task_links import TaskLinks

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq import Digest, Fence
    from ferrymq.blocking import Connection, Transaction
    from ferrymq.fence import Algorithm


def write(
    options: SinkOptions, work: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> WrittenRows:
    """Write the rows of a task. Raises `AmqpWriteError`: then no row is written, except those that
    were accepted with `AT_LEAST_ONCE`."""
    kept = KeptBatches(batches)
    try:
        return write_kept(options, work, kept)
    finally:
        kept.close()


def write_kept(options: SinkOptions, work: TaskIdentity, kept: KeptBatches) -> WrittenRows:
    """Write the rows that are kept, and those that are still to come. Raises as `write` does."""
    outage = Outage(str(work), options.retry_timeout)
    task = _Task(options, work, kept, outage)
    return retrying(options.connection, work.role, outage, task.attempt)


class _Task:
    """The state of a task that is kept between attempts."""

    def __init__(
        self, options: SinkOptions, work: TaskIdentity, kept: KeptBatches, outage: Outage
    ) -> None:
        self._options = options
        self._work = work
        self._kept = kept
        self._outage = outage
        # The highest number of rows accepted in one attempt.
        self._accepted = 0
        # The rows of a transaction whose commit had no answer.
        self._doubtful: WrittenRows | None = None

    def attempt(self, connection: WorkerConnection) -> WrittenRows:
        """Write all remaining rows. Raises the connection's error, and `AmqpWriteError`."""
        options = self._options
        if options.delivery == AT_LEAST_ONCE:
            rows = self._send_all(TaskLinks(connection, self._work, None), self._accepted)
            return WrittenRows(self._work, rows.count)
        if options.delivery != EXACTLY_ONCE:
            return self._in_transaction(connection)
        fences = FenceClient(connection, options, self._work)
        if fences.done is None:
            return self._in_transaction(connection)
        return self._there(fences, None)

    def _there(self, fences: FenceClient, digest: Digest | None) -> WrittenRows:
        """Compare the rows with the committed ones, and write none.

        `digest` is the digest of the rows, if it is known.
        """
        mine = self._doubtful
        if mine is not None and not fences.whole and fences.done is not None:
            if fences.done.is_of(mine):
                # An earlier attempt of this task committed the rows, but got no answer.
                return mine
        if not fences.comparable:
            digest = None
        elif fences.done is not None:
            algorithm = fences.done.algorithm
            if digest is None or digest.algorithm != algorithm:
                digest = self._digest(algorithm)
        if fences.whole:
            # The rows may be split among tasks in another way now: the driver compares all of them.
            skipped = 0 if digest is None else digest.rows
        else:
            skipped = fences.repeat(self._work.member, digest)
        return WrittenRows(self._work, 0, True, skipped, None if digest is None else digest.value)

    def _digest(self, algorithm: Algorithm) -> Digest | None:
        rows = RowBatches(self._options, self._work, algorithm=algorithm)
        for _ in _shipments(rows, self._kept.from_the_beginning()):
            pass
        return rows.digest

    def _in_transaction(self, connection: WorkerConnection) -> WrittenRows:
        from ferrymq import FenceMismatch, FencePassed, TransactionInDoubt, TransactionRolledBack

        options, work = self._options, self._work
        fence = fence_of(work) if options.delivery == EXACTLY_ONCE else None
        batches = self._kept.from_the_beginning()
        # A transaction's timeout begins with it, and Spark may need long for the first rows.
        first = next(batches, None)
        transaction = self._declare(connection.connection, fence)
        links = TaskLinks(connection, work, transaction, settled=fence is not None)
        try:
            rows = self._send_all(links, 0, _with_first(first, batches))
            written = WrittenRows(
                work, rows.count, digest=None if rows.digest is None else rows.digest.value
            )
            transaction.commit(digest=rows.digest)
        except FenceMismatch as error:
            raise other_content(work, error) from None
        except FencePassed:
            # Another attempt was faster.
            return self._there(FenceClient(connection, options, work), rows.digest)
        except TransactionInDoubt as doubt:
            if fence is None:
                raise AmqpWriteError(f"{work}: {doubt}") from None
            # The broker can answer when it is reachable again.
            self._doubtful = written
            raise
        except TransactionRolledBack as error:
            if was_lost(error):
                raise
            raise rolled_back(work, error.error, error) from None
        return written

    def _declare(self, connection: Connection, fence: Fence | None) -> Transaction:
        """Declare a transaction. Raises `AmqpWriteError` if the broker has none."""
        from ferrymq import LinkDetached, SessionEnded, TransactionError

        try:
            return connection.transaction(fence=fence)
        except (LinkDetached, SessionEnded, TransactionError) as error:
            # A broker that knows no coordinator refuses the link, grants another target, or takes
            # the declare as a message.
            taken = isinstance(error, TransactionError) and error.error is None
            if taken or error.condition in ("amqp:not-implemented", "amqp:precondition-failed"):
                place = self._options.connection.place
                raise no_transactions(self._work, place, error) from None
            raise

    def _send_all(
        self, links: TaskLinks, first: int, batches: Iterator[pa.RecordBatch] | None = None
    ) -> RowBatches:
        """Send the rows from `first` on; encode one shipment while the previous one is sent."""
        rows = RowBatches(self._options, self._work, first)
        if batches is None:
            batches = _from(first, self._kept.from_the_beginning())
        under_way: Future[None] | None = None
        before = first
        with ThreadPoolExecutor(1, thread_name_prefix="amqp-sink") as sending:
            for shipment in _shipments(rows, batches):
                if under_way is not None:
                    under_way.result()
                    self._accept(before)
                under_way, before = sending.submit(links.send, shipment), shipment.end
            if under_way is not None:
                under_way.result()
                self._accept(before)
        return rows

    def _accept(self, count: int) -> None:
        if count > self._accepted:
            self._accepted = count
            self._outage.progress()


def _shipments(rows: RowBatches, batches: Iterator[pa.RecordBatch]) -> Iterator[Shipment]:
    for batch in batches:
        yield from rows.shipments(batch)
    yield from rows.rest()


def _from(first: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the rows before `first`."""
    for batch in batches:
        if first >= batch.num_rows:
            first -= batch.num_rows
            continue
        yield batch.slice(first)
        first = 0


def _with_first(
    first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
        yield from rest
