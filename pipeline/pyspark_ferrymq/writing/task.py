"""The part of one task: its rows over one connection, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.options import ConnectionSettings, connect
from pyspark_ferrymq.writing.failures import rolled_back
from pyspark_ferrymq.writing.fences import Fences, fence_of
from pyspark_ferrymq.writing.links import Links
from pyspark_ferrymq.writing.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from pyspark_ferrymq.writing.rows import Rows, Shipment
from pyspark_ferrymq.writing.work import Work, Written

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.blocking import Connection


@contextmanager
def connected(settings: ConnectionSettings, role: str) -> Iterator[Connection]:
    """A connection, closed at the end. One that is lost meanwhile is an `AmqpWriteError`."""
    from ferrymq import ConnectionClosed, SessionEnded

    connection = connect(settings, role, patient=True)
    try:
        yield connection
    except (ConnectionClosed, SessionEnded, TimeoutError) as error:
        raise AmqpWriteError(
            f"the connection to {settings.place} was lost, or there was no answer:"
            f" {str(error) or 'the time is over'}. What was not committed is not written; Spark"
            " tries the task again"
        ) from None
    finally:
        try:
            connection.close()
        except (ConnectionClosed, TimeoutError):
            pass


def write(options: SinkOptions, work: Work, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of a task. Raises `AmqpWriteError`; nothing of it is there then, but for what
    was accepted with `AT_LEAST_ONCE`."""
    from ferrymq import TransactionInDoubt

    try:
        with connected(options.connection, _role(work)) as connection:
            if options.delivery == AT_LEAST_ONCE:
                return _send_all(Links(connection, work, None), options, work, batches)
            if options.delivery == EXACTLY_ONCE and Fences(connection, options.connection).done(
                work
            ):
                return Written(work, 0, True)
            return _in_transaction(connection, options, work, batches)
    except TransactionInDoubt as doubt:
        if options.delivery != EXACTLY_ONCE:
            raise AmqpWriteError(f"{work}: {doubt}") from None
    # Whether it was committed the broker knows, when it is there again.
    with connected(options.connection, _role(work)) as connection:
        if Fences(connection, options.connection).done(work):
            return Written(work, 0, True)
    raise AmqpWriteError(
        f"{work}: the connection was lost before the commit. Nothing of the task is written; Spark"
        " tries it again"
    )


def _in_transaction(
    connection: Connection, options: SinkOptions, work: Work, batches: Iterator[pa.RecordBatch]
) -> Written:
    from ferrymq import FencePassed, TransactionRolledBack

    fence = fence_of(work) if options.delivery == EXACTLY_ONCE else None
    # The time of a transaction runs from its beginning: Spark may take long for the first rows.
    first = next(batches, None)
    transaction = connection.transaction(fence=fence)
    links = Links(connection, work, transaction, settled=fence is not None)
    try:
        written = _send_all(links, options, work, _with_first(first, batches))
        transaction.commit()
    except FencePassed:
        # Another attempt was faster.
        return Written(work, 0, True)
    except TransactionRolledBack as error:
        raise rolled_back(work, error.error, error) from None
    return written


def _send_all(
    links: Links, options: SinkOptions, work: Work, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Encode one shipment while the one before is sent."""
    rows = Rows(options, work)
    under_way: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="amqp-sink") as sending:
        for shipment in _shipments(rows, batches):
            if under_way is not None:
                under_way.result()
            under_way = sending.submit(links.send, shipment)
        if under_way is not None:
            under_way.result()
    return Written(work, rows.count, False)


def _shipments(rows: Rows, batches: Iterator[pa.RecordBatch]) -> Iterator[Shipment]:
    for batch in batches:
        yield from rows.shipments(batch)


def _with_first(
    first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
        yield from rest


def _role(work: Work) -> str:
    return f"write/{work.sequence}/{work.partition}"
