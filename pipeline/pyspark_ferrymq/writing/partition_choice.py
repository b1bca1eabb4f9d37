"""The choice of a partition for each row, if the partitions of the stream are on several brokers.

It is that of a stream on one broker, and of the clients' senders to such streams: the CRC-32 of the
key, modulo the number of partitions. Rows without a key do not take turns, but go by the CRC-32 of
the encoded message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.broker_choice import divided
from pyspark_ferrymq.writing.row_choice import RowChoice
from pyspark_ferrymq.writing.targets import SinkTargets
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionChoice(RowChoice):
    """The division of a task's rows among the partitions of a stream, and so among brokers."""

    def __init__(self, targets: SinkTargets, work: TaskIdentity) -> None:
        super().__init__(targets.brokers[0], work)
        self._stream = targets.stream
        self._owners = targets.owners
        self._brokers = len(targets.brokers)

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each broker, in their order, with the index of the broker. The column
        of addresses has the partition of each row.

        Raises `AmqpWriteError` for a row that names a partition which is not there.
        """
        import pyarrow as pa

        chosen = self.chosen(batch)
        names = pa.array([f"{self._stream}::{number}" for number in range(len(self._owners))])
        column, addresses = self._options.address_column, names.take(chosen)
        index = batch.schema.get_field_index(column)
        if index < 0:
            batch = batch.append_column(column, addresses)
        else:
            batch = batch.set_column(index, column, addresses)
        yield from divided(batch, pa.array(self._owners, pa.int32()).take(chosen), self._brokers)

    def named(self, columns: dict[str, pa.Array]) -> pa.Array | None:
        """Return the partitions in the column `partition`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if "partition" not in columns:
            return None
        numbers = columns["partition"].cast(pa.int64())
        last = len(self._owners) - 1
        inside = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, last))
        wrong = numbers.filter(pc.invert(inside))
        if len(wrong):
            raise AmqpWriteError(
                f"{self._work}: a row has the partition {wrong[0]} in the column 'partition', and"
                f" {self._stream!r} has the partitions 0 to {last}. Drop the column, and the key"
                " chooses the partition. Nothing of the task is written"
            )
        return numbers.cast(pa.int32())

    def place_of(self, text: bytes) -> int:
        """Return the partition of a key or an encoded message."""
        from ferrymq.partitioning import partition_of_key

        return partition_of_key(text, len(self._owners))
