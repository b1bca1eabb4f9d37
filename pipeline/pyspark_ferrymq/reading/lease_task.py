"""A task that reads a part of a lease over a connection.

The messages of a lease have positions, which stay the same: if the connection is lost, the task
opens another one and continues. If the lease is over, its messages are in the queue again: they are
not lost, and the task ends without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.data_loss import LOGGER
from pyspark_ferrymq.errors import AmqpDataLossError, AmqpSourceError
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.reading.lease_renewal import lapsed
from pyspark_ferrymq.reading.read_task import role_of_reader
from pyspark_ferrymq.worker_connections import worker_connection

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.blocking import Connection, Receiver
    from ferrymq.errors import LinkDetached
    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.read_columns import ReadColumns
    from pyspark_ferrymq.task_planning import OffsetRange

# The chunks that may be in transit or waiting, besides the one being processed.
_CREDIT: Final = 2


def read_lease(
    options: SourceOptions, columns: ReadColumns, part: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """Yield the messages at positions of a lease, as record batches of the columns.

    The part has the queue, the holder as its incarnation, and the number of the lease as its
    partition. Raises `AmqpSourceError`, and `AmqpDataLossError` if the queue is gone, unless
    `failOnDataLoss` is false.
    """
    from ferrymq import AmqpError, LinkDetached
    from ferrymq.chunks import Chunk
    from ferrymq.errors import CodecError, ProtocolError

    decoder = columns.decoder(part.stream)
    at = part.first
    # How often the connection was lost since the last chunk.
    lost = 0
    while at < part.until:
        try:
            with (
                worker_connection(
                    options.connection, role_of_reader(), patient=True, new=lost > 0
                ) as kept,
                _attach(kept.connection, options, part, at) as receiver,
            ):
                while at < part.until:
                    delivery = receiver.receive(timeout=options.connection.timeout)
                    chunk = Chunk(delivery.payload)
                    if chunk.first != at:
                        raise AmqpSourceError(
                            f"{part}: a chunk begins at {chunk.first}, not at {at}"
                        )
                    at = chunk.next
                    lost = 0
                    if len(chunk):
                        payloads = [chunk.payload(i) for i in range(len(chunk))]
                        formats = [chunk.format(i) for i in range(len(chunk))]
                        yield decoder.decode_messages(payloads, formats)
        except LinkDetached as error:
            _detached(error, options, part)
            return
        except (CodecError, ProtocolError) as error:
            raise AmqpSourceError(f"{part}: {error}") from None
        except (AmqpError, TimeoutError, AmqpUnreachableError) as error:
            lost += 1
            if lost > options.num_retries:
                if isinstance(error, AmqpUnreachableError):
                    raise
                reason = str(error) or f"nothing came for {options.connection.timeout:g} s"
                raise AmqpUnreachableError(
                    f"{part}: {options.connection.place} was lost {lost} times at position {at}"
                    f" (option 'fetchOffset.numRetries'): {reason}"
                ) from None


def _attach(connection: Connection, options: SourceOptions, part: OffsetRange, at: int) -> Receiver:
    from ferrymq.chunks import BYTES, CHUNKS, RECORDS
    from ferrymq_codec.scalars import Symbol, UInt, ULong
    from ferrymq_types.transport import SenderSettleMode

    return connection.receiver(
        part.stream,
        credit=_CREDIT,
        # A copy has no outcome.
        snd_settle_mode=SenderSettleMode.SETTLED,
        properties={
            "ferrymq:lease": {
                "holder": part.incarnation,
                "number": ULong(part.partition),
                "first": ULong(at),
                "until": ULong(part.until),
            },
            CHUNKS: {
                Symbol(BYTES): ULong(options.max_bytes_per_batch),
                Symbol(RECORDS): UInt(options.max_records_per_batch),
            },
        },
    )


def _detached(error: LinkDetached, options: SourceOptions, part: OffsetRange) -> None:
    """Raise the error for a detach by the broker; return if the task ends without it."""
    if error.condition == "ferrymq:lease-lost":
        LOGGER.warning("%s", lapsed(part.stream, part.partition))
        return
    if error.condition not in ("amqp:not-found", "amqp:resource-deleted"):
        raise AmqpSourceError(f"{part}: the broker ended the link: {error}") from None
    loss = (
        f"queue {part.stream!r}: the messages {part.first} to before {part.until} of the lease"
        f" {part.partition} are gone, because the queue was deleted"
    )
    if options.fail_on_data_loss:
        raise AmqpDataLossError(
            f"{loss}. To go on without them, set the option 'failOnDataLoss' to false"
        )
    LOGGER.warning("%s (failOnDataLoss is false)", loss)
