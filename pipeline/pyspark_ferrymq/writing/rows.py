"""Encoding of rows as messages with addresses, a slice of a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.columns import renamed_batch
from pyspark_ferrymq.writing.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.arrow import MessageEncoder

# The size of a slice, in bytes of the columns and in rows: two slices are in memory at a time.
_SLICE_BYTES: Final = 4 * 1024 * 1024
_SLICE_ROWS: Final = 10_000


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
    `first`. `digest` is the digest of the rows from `first` on; None if it is not needed.

    If rows have their own addresses, the digest covers address and message.
    """

    def __init__(self, options: SinkOptions, work: TaskIdentity, first: int = 0) -> None:
        from ferrymq import Digest

        self.count = first
        self.digest: Digest | None = None
        if options.delivery == EXACTLY_ONCE and options.deterministic:
            self.digest = Digest()
        self._options = options
        self._work = work
        self._encoder: MessageEncoder | None = None
        self._names = options.delivery == AT_LEAST_ONCE

    def shipments(self, batch: pa.RecordBatch) -> Iterator[Shipment]:
        """Yield shipments. Raises `AmqpWriteError` for a row that is invalid or has no address."""
        step = _SLICE_ROWS
        if batch.num_rows:
            step = max(1, min(step, _SLICE_BYTES * batch.num_rows // max(batch.nbytes, 1)))
        for first in range(0, batch.num_rows, step):
            yield from self._of_slice(batch.slice(first, step))

    def _of_slice(self, batch: pa.RecordBatch) -> Iterator[Shipment]:
        from ferrymq.arrow import MessageEncoder
        from ferrymq.errors import EncodeError

        batch = renamed_batch(batch, self._options)
        first = self.count
        self.count += batch.num_rows
        if self._names and "raw" not in batch.schema.names:
            batch = _with_ids(batch, self._work, first)
        if self._encoder is None or not self._encoder.schema.equals(batch.schema):
            self._encoder = MessageEncoder(batch.schema)
        try:
            payloads = self._encoder.encode(batch)
        except EncodeError as error:
            raise AmqpWriteError(
                f"{self._work}: {error} (rows are counted from 0, from row {first} of the task on);"
                " nothing of the task is written"
            ) from None
        address = self._options.address
        if address is not None:
            if self.digest is not None:
                self.digest.add(payloads)
            yield Shipment(address, payloads, range(first, self.count), self.count)
            return
        yield from self._by_address(payloads, self._encoder.addresses(batch) or [], first)

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
