"""Encoding of rows as messages with addresses, a part of a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.columns import frame_name, renamed_batch
from pyspark_ferrymq.writing.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.arrow import MessageEncoder
    from ferrymq.fence import Algorithm

# What is encoded at a time, in bytes of columns and in rows: these, their messages and what is made
# in between are still in the processor's cache when the digest is taken.
_PART_BYTES: Final = 1024 * 1024
_PART_ROWS: Final = 2_500
# The size of a shipment, in bytes of columns and in rows: two of them are in memory at a time.
_SHIPMENT_BYTES: Final = 4 * 1024 * 1024
_SHIPMENT_ROWS: Final = 10_000


@dataclass(slots=True)
class Shipment:
    """Messages for one address, and the numbers of their rows in the task.

    When these messages are accepted, all rows of the task before row `end` are accepted.
    """

    address: str
    payloads: list[bytes]
    rows: range | list[int]
    end: int


class RowBatches:
    """A maker of a task's shipments. `count` is the number of rows so far, including those before
    `first`. `digest` is the digest of the rows from `first` on, by `algorithm`; None if it is not
    needed.

    If rows have their own addresses, the digest covers address and message. Rows wait until there
    are enough for a shipment: `rest` has the last ones.
    """

    def __init__(
        self,
        options: SinkOptions,
        work: TaskIdentity,
        first: int = 0,
        algorithm: Algorithm = "xxh3-128",
    ) -> None:
        from ferrymq import Digest

        self.count = first
        self.digest: Digest | None = None
        if options.delivery == EXACTLY_ONCE and options.deterministic:
            self.digest = Digest(algorithm=algorithm)
        self._options = options
        self._work = work
        self._encoder: MessageEncoder | None = None
        self._names = options.delivery == AT_LEAST_ONCE
        # The encoded rows that wait, their addresses if they have their own, and the bytes of
        # their columns.
        self._payloads: list[bytes] = []
        self._addresses: list[str | None] = []
        self._bytes = 0

    def shipments(self, batch: pa.RecordBatch) -> Iterator[Shipment]:
        """Yield the shipments that are full with these rows. Raises `AmqpWriteError` for a row that
        is invalid or has no address."""
        batch = renamed_batch(batch, self._options)
        parts = max(1, round(batch.nbytes / _PART_BYTES), -(-batch.num_rows // _PART_ROWS))
        step = max(1, -(-batch.num_rows // parts))
        for first in range(0, batch.num_rows, step):
            self._encode(batch.slice(first, step))
            if self._bytes >= _SHIPMENT_BYTES or len(self._payloads) >= _SHIPMENT_ROWS:
                yield from self.rest()

    def rest(self) -> Iterator[Shipment]:
        """Yield the shipments of the rows that wait. Raises as `shipments` does."""
        payloads, addresses = self._payloads, self._addresses
        self._payloads, self._addresses, self._bytes = [], [], 0
        first = self.count - len(payloads)
        if self._options.address is None:
            yield from self._by_address(payloads, addresses, first)
        elif payloads:
            yield Shipment(self._options.address, payloads, range(first, self.count), self.count)

    def _encode(self, batch: pa.RecordBatch) -> None:
        from ferrymq.arrow import MessageEncoder
        from ferrymq.errors import EncodeError

        first = self.count
        if self._names and "raw" not in batch.schema.names:
            batch = _with_ids(batch, self._work, first)
        if self._encoder is None or not self._encoder.schema.equals(batch.schema):
            self._encoder = MessageEncoder(batch.schema)
        try:
            payloads = self._encoder.encode(batch)
        except EncodeError as error:
            column = frame_name(error.field, self._options)
            raise AmqpWriteError(
                f"{self._work}: {column}: {error.reason} (rows are counted from 0, from row"
                f" {first} of the task on); nothing of the task is written"
            ) from None
        if self._options.address is None:
            self._addresses += self._encoder.addresses(batch) or []
        elif self.digest is not None:
            self.digest.add(payloads)
        self._payloads += payloads
        self._bytes += batch.nbytes
        self.count += batch.num_rows

    def _by_address(
        self, payloads: list[bytes], addresses: list[str | None], first: int
    ) -> Iterator[Shipment]:
        found: dict[str, Shipment] = {}
        for index, address in enumerate(addresses):
            if not address:
                raise AmqpWriteError(
                    f"{self._work}: row {first + index} has no address in the column"
                    f" {self._options.address_column!r}; give every row one, or the option"
                    " 'address'. Nothing of the task is written"
                )
            shipment = found.get(address)
            if shipment is None:
                shipment = found[address] = Shipment(address, [], [], first)
            shipment.payloads.append(payloads[index])
            assert isinstance(shipment.rows, list)
            shipment.rows.append(first + index)
        shipments = list(found.values())
        if shipments:
            shipments[-1].end = self.count
        for shipment in shipments:
            if self.digest is not None:
                prefix = f"{shipment.address}\0".encode()
                self.digest.add([prefix + payload for payload in shipment.payloads])
            yield shipment


def _with_ids(batch: pa.RecordBatch, work: TaskIdentity, first: int) -> pa.RecordBatch:
    """Add a messageId to each row without one, so that readers can drop duplicates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    broker = f"{work.broker}:" if work.broker else ""
    prefix = f"{work.group}:{work.sequence}:{work.partition}:{broker}"
    ids = pa.array(
        [f"{prefix}{number}" for number in range(first, first + batch.num_rows)], pa.string()
    )
    index = batch.schema.get_field_index("messageId")
    if index < 0:
        return batch.append_column("messageId", ids)
    return batch.set_column(index, "messageId", pc.coalesce(batch.column(index), ids))
