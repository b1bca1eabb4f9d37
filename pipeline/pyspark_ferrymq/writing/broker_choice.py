"""The choice of a broker for each row, if there are several.

A row with a key (the column `partitionKey`, else `groupId`, as in a stream's own choice of a
partition) goes to the broker of its key, so rows of one key keep their order. A row without a key
goes to the broker of its encoded message, so a repeated batch is divided in the same way.

The broker of a key: the CRC-32 (that of zlib and gzip) of the key, modulo 4096, is the slot of the
key. A slot belongs to the broker for which BLAKE2b, with a digest of 8 bytes, of the text
``BROKER/SLOT`` is highest (rendezvous hashing). So a new broker takes slots from all others, and no
slot moves between these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from zlib import crc32

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.columns import renamed_batch
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

SLOTS: Final = 4096
BROKER_COLUMN: Final = "broker"
_KEYS: Final = ("partitionKey", "groupId")


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


class BrokerChoice:
    """The division of a task's rows among the brokers with these `ids`, which are sorted."""

    def __init__(self, options: SinkOptions, work: TaskIdentity, ids: Sequence[str]) -> None:
        self._options = options
        self._work = work
        self._ids = tuple(ids)
        self._by_slot = brokers_of_slots(self._ids)

    @property
    def count(self) -> int:
        """The number of brokers."""
        return len(self._ids)

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each broker, in their order, with the index of the broker.

        Raises `AmqpWriteError` for a row that names a broker which is not there.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = self._chosen(renamed_batch(batch, self._options))
        for index in range(len(self._ids)):
            rows = batch.filter(pc.equal(chosen, pa.scalar(index, pa.int32())))
            if rows.num_rows:
                yield index, rows

    def _chosen(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the index of the broker for each row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = pa.nulls(batch.num_rows, pa.int32())
        if BROKER_COLUMN in batch.schema.names:
            chosen = _mapped(batch.column(BROKER_COLUMN), self._named)
        for keys in self._keys(batch):
            if not chosen.null_count:
                break
            chosen = pc.coalesce(chosen, _mapped(keys, self._of_key))
        if chosen.null_count:
            without = pc.is_null(chosen)
            slots = self._of_messages(batch.filter(without))
            chosen = pc.replace_with_mask(chosen, without, pa.array(slots, pa.int32()))
        return chosen

    def _keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if "raw" in batch.schema.names:
            from ferrymq.arrow import RecordDecoder

            payloads = [payload or b"" for payload in batch.column("raw").to_pylist()]
            batch = RecordDecoder(_KEYS).decode_messages(payloads)
        return [batch.column(name) for name in _KEYS if name in batch.schema.names]

    def _of_key(self, key: str) -> int:
        return self._by_slot[slot_of(key.encode())]

    def _of_messages(self, batch: pa.RecordBatch) -> list[int]:
        from ferrymq.arrow import MessageEncoder
        from ferrymq.errors import EncodeError

        try:
            payloads = MessageEncoder(batch.schema).encode(batch)
        except EncodeError as error:
            raise AmqpWriteError(
                f"{self._work}: {error} (rows without a key are counted from 0); nothing of the"
                " task is written"
            ) from None
        return [self._by_slot[slot_of(payload)] for payload in payloads]

    def _named(self, broker: str) -> int:
        if broker not in self._ids:
            raise AmqpWriteError(
                f"{self._work}: a row has the broker {broker!r} in the column 'broker', and the"
                f" brokers of the option 'url' are {', '.join(self._ids)}. Drop the column, and the"
                " key chooses the broker. Nothing of the task is written"
            )
        return self._ids.index(broker)


def _mapped(column: pa.Array, index_of: Callable[[str], int]) -> pa.Array:
    """Return the index for each value of a column of strings; null for null."""
    import pyarrow as pa

    encoded = column.cast(pa.string()).dictionary_encode()
    indexes = pa.array([index_of(value) for value in encoded.dictionary.to_pylist()], pa.int32())
    return indexes.take(encoded.indices)
