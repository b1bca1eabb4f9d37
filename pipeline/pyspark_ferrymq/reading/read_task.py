"""A task that reads one range of a partition over a connection.

The task starts at the first offset of the range, checks that no offset is missing, and ends at the
end of the range. If the connection is lost, it opens another one and continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.data_loss import AHEAD, ANEW, DELETED, TRIMMED, Loss, report
from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError
from pyspark_ferrymq.offsets import stream_key
from pyspark_ferrymq.options.broker_identity import identity_of
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.options.option_values import shown
from pyspark_ferrymq.worker_connections import worker_connection

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.blocking import ChunkReader, Connection
    from ferrymq.errors import LinkDetached
    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.read_columns import ColumnDecoder, ReadColumns
    from pyspark_ferrymq.task_planning import OffsetRange

# The chunks that may be in transit or waiting, besides the one being processed. Their bytes divided
# by the round-trip time are the highest rate of a task.
_CREDIT: Final = 4


def read_range(
    options: SourceOptions, columns: ReadColumns, range: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """Read the records of a range that pass the selector, as record batches of the columns.

    Raises `AmqpDataLossError`, unless `failOnDataLoss` is false, and `AmqpSourceError`.
    """
    if options.connection.service == "eventhubs":
        from pyspark_ferrymq.foreign.eventhubs import read_range as read_foreign

        return read_foreign(options, columns, range)
    return _read(options, columns, range)


def _read(
    options: SourceOptions, columns: ReadColumns, range: OffsetRange
) -> Iterator[pa.RecordBatch]:
    from ferrymq import AmqpError, LinkDetached
    from ferrymq.errors import CodecError, ProtocolError
    from ferrymq.heap import keep_large_blocks

    # Chunks, and columns made of them.
    keep_large_blocks()
    decoder: ColumnDecoder | None = None
    at = range.first
    # How often the connection was lost since the last chunk.
    lost = 0
    while at < range.until:
        try:
            with worker_connection(
                options.connection, role_of_reader(), patient=True, new=lost > 0
            ) as kept:
                connection = kept.connection
                if decoder is None:
                    broker = identity_of(connection.remote_properties).id or None
                    decoder = columns.decoder(range.stream, range.partition, broker)
                with _attach(connection, options, range, at) as reader:
                    if not _has_records(reader, options, range, at):
                        return
                    at = max(at, reader.first_offset)
                    while True:
                        chunk = reader.receive(timeout=options.connection.timeout)
                        if chunk is None:
                            return
                        if chunk.first > at:
                            _gap(options, range, at, chunk.first, chunk.end)
                        at = chunk.next
                        lost = 0
                        if len(chunk):
                            yield decoder.decode(chunk)
        except LinkDetached as error:
            _detached(error, options, range, at)
            return
        except (CodecError, ProtocolError) as error:
            raise AmqpSourceError(f"{range}: {error}") from None
        except (AmqpError, TimeoutError, AmqpUnreachableError) as error:
            lost += 1
            if lost > options.num_retries:
                if isinstance(error, AmqpUnreachableError):
                    raise
                reason = str(error) or f"nothing came for {options.connection.timeout:g} s"
                raise AmqpUnreachableError(
                    f"{range}: {options.connection.place} was lost {lost} times at offset {at}"
                    f" (option 'fetchOffset.numRetries'): {reason}"
                ) from None


def role_of_reader() -> str:
    """Return the role of the connections of this query's tasks that read."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    return "read" if query is None else f"query-{query}/read"


def _attach(
    connection: Connection, options: SourceOptions, range: OffsetRange, at: int
) -> ChunkReader:
    """Attach a reader at the offset."""
    return connection.chunk_reader(
        f"{range.stream}::{range.partition}",
        start=at,
        until=range.until,
        chunk_bytes=options.max_bytes_per_batch,
        chunk_records=options.max_records_per_batch,
        credit=_CREDIT,
        selector=options.selector,
        on_trim="detach" if options.fail_on_data_loss else "continue",
    )


def _has_records(reader: ChunkReader, options: SourceOptions, range: OffsetRange, at: int) -> bool:
    """Report the records that are gone; return False if these are all, with their stream."""
    if range.incarnation and str(reader.incarnation) != range.incarnation:
        _lose(
            options,
            Loss(stream_key(range.stream, range.broker), range.partition, ANEW, at, range.until),
        )
        return False
    if reader.first_offset > at:
        _gap(options, range, at, reader.first_offset, None)
    return True


def _gap(options: SourceOptions, range: OffsetRange, at: int, first: int, end: int | None) -> None:
    """Report that the records from `at` to before `first` are gone."""
    available = (first, max(first, end if end is not None else range.until))
    _lose(
        options,
        Loss(
            stream_key(range.stream, range.broker),
            range.partition,
            TRIMMED,
            at,
            range.until,
            available,
        ),
    )


def _detached(error: LinkDetached, options: SourceOptions, range: OffsetRange, at: int) -> None:
    """Raise the error for a detach by the broker; return if the loss may be ignored."""
    condition = error.condition
    info = error.error.info if error.error is not None else None
    first, end = (info or {}).get("first"), (info or {}).get("next")
    available = (first, end) if isinstance(first, int) and isinstance(end, int) else None
    reasons = {
        "ferrymq:stream-trimmed": TRIMMED,
        "amqp:precondition-failed": AHEAD,
        "amqp:not-found": DELETED,
        "amqp:resource-deleted": DELETED,
    }
    if condition == "amqp:invalid-field" and options.selector is not None:
        raise AmqpOptionError(
            f"option 'selector': {shown(options.selector)} is refused by"
            f" {options.connection.place}: {error}"
        ) from None
    if condition not in reasons:
        raise AmqpSourceError(
            f"{range}: the broker ended the link at offset {at}: {error}"
        ) from None
    _lose(
        options,
        Loss(
            stream_key(range.stream, range.broker),
            range.partition,
            reasons[condition],
            at,
            range.until,
            available,
        ),
    )


def _lose(options: SourceOptions, loss: Loss) -> None:
    report([loss], options.fail_on_data_loss)
