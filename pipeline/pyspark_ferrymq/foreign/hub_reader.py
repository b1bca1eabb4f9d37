"""Event Hubs in tasks: reading of a range of a hub's partition, event by event.

The reader starts with a selector on sequence numbers, checks that each number is one more than the
previous one, and ends with the last event of the range. A lost connection is replaced, and reading
continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark_ferrymq.data_loss import AHEAD, DELETED, TRIMMED, Loss, report
from pyspark_ferrymq.errors import AmqpSourceError
from pyspark_ferrymq.options.connection import AmqpUnreachableError, connect
from pyspark_ferrymq.task_planning import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.azure.positions import StartingPosition
    from ferrymq.blocking import Connection, Delivery
    from pyspark_ferrymq.options import BrokerOptions, SourceOptions
    from pyspark_ferrymq.read_columns import ReadColumns

# The credit of the link: the highest number of events in transit or waiting.
_CREDIT: Final = 500
_LOSSES: Final = {
    "amqp:not-found": DELETED,
    "amqp:resource-deleted": DELETED,
    "amqp:precondition-failed": AHEAD,
}


def address_of(settings: BrokerOptions, hub: str, partition: int) -> str:
    """Return the address at which a consumer group reads a partition."""
    from ferrymq.azure.addresses import consumer_address

    return consumer_address(hub, partition, settings.consumer_group)


def sequence_number(delivery: Delivery) -> int:
    """Return the sequence number of an event. Raises `AmqpSourceError` if it has none."""
    found = delivery.message.message_annotations.get("x-opt-sequence-number")
    if not isinstance(found, int):
        raise AmqpSourceError(
            "an event has no sequence number (message annotation x-opt-sequence-number): this is"
            " not Event Hubs; see the option 'service'"
        )
    return int(found)


def read_range(
    options: SourceOptions, columns: ReadColumns, range: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a range as record batches of the columns.

    Raises `AmqpDataLossError`, unless `failOnDataLoss` is false, and `AmqpSourceError`.
    """
    return _HubRange(options, columns, range).read()


class _HubRange:
    """A reader of one range. `_at` is the next expected event."""

    def __init__(self, options: SourceOptions, columns: ReadColumns, range: OffsetRange) -> None:
        self._options = options
        self._columns = list(columns.names)
        self._range = range
        self._at = range.first
        # The offset is always decoded, because it is checked.
        self._decoder = columns.with_offset().decoder(range.stream, range.partition)
        # How often the connection was lost since the last event.
        self._lost = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all events of the range."""
        from ferrymq import AmqpError, LinkDetached

        options, range = self._options, self._range
        while self._at < range.until:
            role = f"{range.stream[:60]}/{range.partition}@{range.first}"
            connection: Connection | None = None
            try:
                connection = connect(options.connection, role, patient=True)
                yield from self._receive(connection)
            except LinkDetached as error:
                reason = _LOSSES.get(error.condition or "")
                if reason is None:
                    raise AmqpSourceError(
                        f"{range}: the link ended at {self._at}: {error}"
                    ) from None
                loss = Loss(range.stream, range.partition, reason, self._at, range.until)
                report([loss], options.fail_on_data_loss)
                return
            except (AmqpError, TimeoutError, AmqpUnreachableError) as error:
                self._lost += 1
                if self._lost > options.num_retries:
                    if isinstance(error, AmqpUnreachableError):
                        raise
                    told = str(error) or f"nothing came for {options.connection.timeout:g} s"
                    raise AmqpUnreachableError(
                        f"{range}: {options.connection.place} was lost {self._lost} times at offset"
                        f" {self._at} (option 'fetchOffset.numRetries'): {told}"
                    ) from None
            finally:
                if connection is not None:
                    connection.close()

    def _receive(self, connection: Connection) -> Iterator[pa.RecordBatch]:
        from ferrymq_types.transport import SenderSettleMode

        options, range = self._options, self._range
        receiver = connection.receiver(
            address_of(options.connection, range.stream, range.partition),
            credit=_CREDIT,
            snd_settle_mode=SenderSettleMode.SETTLED,
            **_from(self._at),
        )
        waiting: list[Delivery] = []
        size = 0
        while self._at < range.until:
            more = receiver.receive_many(
                options.max_records_per_batch, timeout=options.connection.timeout
            )
            for delivery in more:
                if not delivery.settled:
                    delivery.accept()
            waiting += more
            size += sum(len(delivery.payload) for delivery in more)
            last = sequence_number(more[-1]) >= range.until - 1
            full = len(waiting) >= options.max_records_per_batch
            if last or full or size >= options.max_bytes_per_batch:
                yield from self._decoded(waiting)
                waiting, size = [], 0

    def _decoded(self, deliveries: Sequence[Delivery]) -> Iterator[pa.RecordBatch]:
        """Yield the next events as a batch, and report gaps between them."""
        batch = self._decoder.decode_messages(
            [delivery.payload for delivery in deliveries],
            [delivery.message_format for delivery in deliveries],
        )
        range = self._range
        offsets: list[Any] = batch.column(batch.schema.get_field_index("offset")).to_pylist()
        count = 0
        for offset in offsets:
            if offset is None:
                sequence_number(deliveries[count])
                raise AmqpSourceError(f"{range}: an event at {self._at} or after it is malformed")
            if offset >= range.until:
                # The events before this one are gone, including the end of the range.
                if self._at < range.until:
                    self._lose(range.until)
                self._at = range.until
                break
            if offset < self._at:
                raise AmqpSourceError(f"{range}: the event {offset} arrived instead of {self._at}")
            if offset > self._at:
                self._lose(offset)
            self._at = offset + 1
            count += 1
        self._lost = 0
        if count:
            yield batch.slice(0, count).select(self._columns)

    def _lose(self, first: int) -> None:
        """Report that the events from the next one to before `first` are gone."""
        range = self._range
        available = (first, max(first, range.until))
        loss = Loss(range.stream, range.partition, TRIMMED, self._at, range.until, available)
        report([loss], self._options.fail_on_data_loss)


def _from(offset: int) -> StartingPosition:
    """Return the receiver's options that begin with an event."""
    from ferrymq.azure.positions import starting_position

    return starting_position("first" if offset == 0 else offset - 1)
