"""The choice of a broker for each row, if there are several.

The CRC-32 (that of zlib and gzip) of a key or of an encoded message, modulo 4096, is its slot. A
slot belongs to the broker for which BLAKE2b, with a digest of 8 bytes, of the text ``BROKER/SLOT``
is highest (rendezvous hashing). So a new broker takes slots from all others, and no slot moves
between these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from zlib import crc32

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.row_choice import RowChoice, mapped
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

SLOTS: Final = 4096
BROKER_COLUMN: Final = "broker"


@lru_cache(maxsize=16)
def brokers_of_slots(ids: tuple[str, ...]) -> tuple[int, ...]:
    """Return for each slot the index of its broker among the ids, which are sorted."""
    return tuple(
        max(range(len(ids)), key=lambda index: (_rank(ids[index], slot), ids[index]))
        for slot in range(SLOTS)
    )


def slot_of(key: bytes) -> int:
    """Return the slot of a key, or of an encoded message."""
    return crc32(key) % SLOTS


def _rank(broker: str, slot: int) -> bytes:
    return blake2b(f"{broker}/{slot}".encode(), digest_size=8).digest()


class BrokerChoice(RowChoice):
    """The division of a task's rows among the brokers with these `ids`, which are sorted."""

    def __init__(self, options: SinkOptions, work: TaskIdentity, ids: Sequence[str]) -> None:
        super().__init__(options, work)
        self._ids = tuple(ids)
        self._by_slot = brokers_of_slots(self._ids)

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each broker, in their order, with the index of the broker.

        Raises `AmqpWriteError` for a row that names a broker which is not there.
        """
        yield from divided(batch, self.chosen(batch), len(self._ids))

    def named(self, columns: dict[str, pa.Array]) -> pa.Array | None:
        """Return the brokers in the column `broker`."""
        import pyarrow as pa

        if BROKER_COLUMN not in columns:
            return None
        return mapped(columns[BROKER_COLUMN].cast(pa.binary()), self._index_of)

    def place_of(self, text: bytes) -> int:
        """Return the broker of the slot of a key or an encoded message."""
        return self._by_slot[slot_of(text)]

    def _index_of(self, name: bytes) -> int:
        broker = name.decode()
        if broker not in self._ids:
            raise AmqpWriteError(
                f"{self._work}: a row has the broker {broker!r} in the column 'broker', and the"
                f" brokers of the option 'url' are {', '.join(self._ids)}. Drop the column, and the"
                " key chooses the broker. Nothing of the task is written"
            )
        return self._ids.index(broker)


def divided(
    batch: pa.RecordBatch, brokers: pa.Array, count: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each of `count` brokers, in their order. `brokers` has the index of the
    broker for each row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index in range(count):
        rows = batch.filter(pc.equal(brokers, pa.scalar(index, pa.int32())))
        if rows.num_rows:
            yield index, rows
