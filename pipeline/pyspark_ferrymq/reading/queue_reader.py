"""Browsing of queues: their messages become rows, and stay in the queue.

Browsing works with any AMQP 1.0 broker that sends copies (distribution-mode `copy`), without using
management. A task reads one queue, or the part of it that one selector matches. The task gives
credit, drains the link, and ends when fewer messages arrive than it gave credit for. If a broker
does not answer a drain, the task ends when no message has arrived for `queueIdleMs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_ferrymq.brokers.several_brokers import only_broker
from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError, plain, plain_rows
from pyspark_ferrymq.options.connection import connect
from pyspark_ferrymq.worker_memory import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.blocking import Connection, Delivery, Receiver
    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.read_columns import ReadColumns

# The first credit, while the size of messages is unknown.
_FIRST_CREDIT: Final = 100
_NOT_FOR_QUEUES: Final = (
    ("starting", "startingOffsets"),
    ("ending", "endingOffsets"),
    ("min_partitions", "minPartitions"),
    ("max_records_per_partition", "maxRecordsPerPartition"),
)


class QueuePartition(InputPartition):
    """The part that one task browses: a queue, with a selector."""

    def __init__(self, queue: str, selector: str | None) -> None:
        super().__init__(None)
        self.queue = queue
        self.selector = selector


class QueueReader(DataSourceReader):
    """A reader that browses in tasks. The driver connects only to find out whether several URLs
    lead to one broker."""

    def __init__(self, options: SourceOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns

    @plain
    def partitions(self) -> list[InputPartition]:
        """Return a partition for each queue and selector.

        Raises `AmqpOptionError` if the URLs lead to several brokers.
        """
        only_broker(self.options.connection)
        return [
            QueuePartition(queue, selector)
            for queue in self.options.selection.names
            for selector in self.options.queue_selectors or (None,)
        ]

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task."""
        if isinstance(partition, QueuePartition):
            yield from browse(self.options, self.columns, partition.queue, partition.selector)
            freeze_modules()


def queue_reader(options: SourceOptions, columns: ReadColumns) -> QueueReader:
    """Return the reader for `queueMode`. Raises `AmqpOptionError` for options of streams."""
    if options.queue_mode != "browse":
        raise AmqpOptionError(
            f"option 'queueMode': {options.queue_mode} is for readStream, and this is a batch; the"
            " mode of batches is browse"
        )
    options.for_batch()
    if options.selection.option != "subscribe":
        raise AmqpOptionError(
            f"option {options.selection.option!r}: with 'queueMode' = browse, queues are named by"
            " the option 'subscribe'"
        )
    for attribute, name in _NOT_FOR_QUEUES:
        if getattr(options, attribute) is not None:
            raise AmqpOptionError(
                f"option {name!r}: it is only for streams, not for browsing queues"
            )
    return QueueReader(options, columns)


def browse(
    options: SourceOptions, columns: ReadColumns, queue: str, selector: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a queue that match the selector, as record batches of the columns.

    Raises `AmqpSourceError`. A lost connection is not replaced, because the messages read before
    would come again: Spark repeats the task from its beginning.
    """
    from ferrymq import AmqpError, LinkDetached

    decoder = columns.decoder(queue)
    connection = connect(options.connection, f"browse/{queue[:60]}", patient=True)
    try:
        receiver = _attach(connection, options, queue, selector)
        for deliveries in _batches(receiver, options):
            payloads = [delivery.payload for delivery in deliveries]
            formats = [delivery.message_format for delivery in deliveries]
            yield decoder.decode_messages(payloads, formats)
            for delivery in deliveries:
                if not delivery.settled:
                    delivery.release()
    except LinkDetached as error:
        raise AmqpSourceError(
            f"the queue {queue!r} at {options.connection.place} cannot be browsed: {error}"
        ) from None
    except (AmqpError, TimeoutError) as error:
        raise AmqpSourceError(
            f"the queue {queue!r} at {options.connection.place} was not browsed to its end: {error}"
        ) from None
    finally:
        connection.close()


def _attach(
    connection: Connection, options: SourceOptions, queue: str, selector: str | None
) -> Receiver:
    """Attach without credit. Raises `AmqpSourceError` unless the broker agrees to send copies."""
    from ferrymq_types.transport import SenderSettleMode

    receiver = connection.receiver(
        queue,
        mode="copy",
        credit=0,
        selector=selector,
        # A copy has no outcome, so it is sent settled, by a broker that keeps the message.
        snd_settle_mode=SenderSettleMode.SETTLED,
    )
    given = None if receiver.source is None else receiver.source.distribution_mode
    if given != "copy" and not receiver.gives_back:
        raise AmqpSourceError(
            f"{options.connection.place} does not agree to send copies of the messages in {queue!r}"
            " (distribution-mode copy), and might remove them; no message was requested. Read a"
            " queue that cannot be browsed with a consumer"
        )
    return receiver


def _batches(receiver: Receiver, options: SourceOptions) -> Iterator[list[Delivery]]:
    """Yield the available messages, as many at a time as the options allow, up to `queueLimit`."""
    left = options.queue_limit
    credit = outstanding = 0
    count = size = 0
    while True:
        if outstanding == 0:
            if left == 0:
                return
            credit = _credit(options, count, size)
            outstanding = credit if left is None else min(credit, left)
            receiver.add_credit(outstanding)
        taken, over = _receive(receiver, outstanding, options.queue_idle / 1000)
        outstanding -= len(taken)
        if taken:
            count += len(taken)
            size += sum(len(delivery.payload) for delivery in taken)
            left = None if left is None else left - len(taken)
            yield taken
        if outstanding and (over or not taken):
            # The queue is at its end; or it was silent for the idle time without a drain answer.
            return


def _credit(options: SourceOptions, count: int, size: int) -> int:
    """Return the credit for the next messages, from the size of the previous ones."""
    if not count:
        return min(_FIRST_CREDIT, options.max_records_per_batch)
    fitting = options.max_bytes_per_batch * count // max(size, 1)
    # Limit the increase: the size of a few messages says little about the others.
    return max(1, min(fitting, options.max_records_per_batch, 10 * count))


def _receive(receiver: Receiver, most: int, patience: float) -> tuple[list[Delivery], bool]:
    """Take the messages that the broker has for the credit, and return whether these are all: the
    broker has said so or, if it is known not to answer a drain, was silent for `patience`."""
    from ferrymq import LocalProtocolError

    over, wait = True, 0.0
    try:
        receiver.drain(timeout=patience)
    except TimeoutError:
        over = False
    except LocalProtocolError:
        wait = patience
    taken: list[Delivery] = []
    while len(taken) < most:
        try:
            taken += receiver.receive_many(most - len(taken), timeout=wait)
        except TimeoutError:
            break
    return taken, over
