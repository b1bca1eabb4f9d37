"""The choice of one of several places for each row: by what the row names, by its key, or by its
message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.columns import renamed_batch
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS: Final = ("partitionKey", "groupId")


class RowChoice(ABC):
    """The choice of a place for each row of a task. Places have numbers.

    A row goes to the place that it names. Else a row with a key (the column `partitionKey`, or else
    `groupId`, as in a stream's own choice of a partition) goes to the place of its key, so rows of
    one key keep their order. Else it goes to the place of its encoded message, so a repeated batch
    is divided in the same way.
    """

    def __init__(self, options: SinkOptions, work: TaskIdentity) -> None:
        self._options = options
        self._work = work

    @abstractmethod
    def named(self, columns: dict[str, pa.Array]) -> pa.Array | None:
        """Return the places that rows name, null for a row without; None if no row names one.

        Raises `AmqpWriteError` for a place that is not there.
        """

    @abstractmethod
    def place_of(self, text: bytes) -> int:
        """Return the place for a key or an encoded message."""

    def chosen(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the place for each row. Raises `AmqpWriteError` as `named` does, and for a row
        that is no message."""
        import pyarrow as pa
        import pyarrow.compute as pc

        batch = renamed_batch(batch, self._options)
        columns = self._columns(batch)
        chosen = self.named(columns)
        if chosen is None:
            chosen = pa.nulls(batch.num_rows, pa.int32())
        for name in _KEYS:
            if not chosen.null_count:
                break
            if name in columns:
                places = mapped(columns[name].cast(pa.binary()), self.place_of)
                chosen = pc.coalesce(chosen, places)
        if chosen.null_count:
            without = pc.is_null(chosen)
            payloads = self._encoded(batch.filter(without))
            places = pa.array([self.place_of(payload) for payload in payloads], pa.int32())
            chosen = pc.replace_with_mask(chosen, without, places)
        return chosen

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns by name, with the partitions and keys of whole messages and of
        annotations."""
        import pyarrow.compute as pc

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if "raw" in columns:
            payloads = [payload or b"" for payload in columns["raw"].to_pylist()]
        elif "messageAnnotations" in columns:
            payloads = self._encoded(batch)
        else:
            return columns
        from ferrymq.arrow import RecordDecoder

        found = RecordDecoder(("partition", *_KEYS), verbatim=True).decode_messages(payloads)
        inside = dict(zip(found.schema.names, found.columns, strict=True))
        if "partition" in columns:
            # The column takes the place of the annotation.
            inside["partition"] = pc.coalesce(columns["partition"], inside["partition"])
        return columns | inside

    def _encoded(self, batch: pa.RecordBatch) -> list[bytes]:
        from ferrymq.arrow import MessageEncoder
        from ferrymq.errors import EncodeError

        try:
            return MessageEncoder(batch.schema).encode(batch)
        except EncodeError as error:
            raise AmqpWriteError(
                f"{self._work}: {error} (rows without a key are counted from 0); nothing of the"
                " task is written"
            ) from None


def mapped(column: pa.Array, index_of: Callable[[bytes], int]) -> pa.Array:
    """Return the index for each value of a column of bytes; null for null."""
    import pyarrow as pa

    encoded = column.dictionary_encode()
    indexes = pa.array([index_of(value) for value in encoded.dictionary.to_pylist()], pa.int32())
    return indexes.take(encoded.indices)
