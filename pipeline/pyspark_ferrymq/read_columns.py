"""Decoding of records to the columns of a query: those of messages, or those of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpSourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.arrow import TextError
    from ferrymq.chunks import Chunk


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns of a query, in order. With `kafka`, names are those of `kafka_columns`. `texts`
    are columns of binary that the query has as strings."""

    names: tuple[str, ...]
    kafka: bool = False
    texts: frozenset[str] = frozenset()

    def with_offset(self) -> ReadColumns:
        """Return these columns and `offset`."""
        return self if "offset" in self.names else replace(self, names=(*self.names, "offset"))

    def decoder(
        self, address: str, partition: int | None = None, broker: str | None = None
    ) -> ColumnDecoder:
        """Return a decoder for the records of a partition, or for the messages of a queue, at the
        broker with this id."""
        return ColumnDecoder(self, address, partition, broker)


class ColumnDecoder:
    """A decoder to record batches of some columns.

    Raises `AmqpSourceError` for a value that is not UTF-8, in a column that the query has as
    string.
    """

    def __init__(
        self, columns: ReadColumns, address: str, partition: int | None, broker: str | None
    ) -> None:
        from ferrymq.arrow import RecordDecoder

        self._columns = columns
        self._place = address if partition is None else f"{address}::{partition}"
        names: Sequence[str] = columns.names
        texts = columns.texts
        if columns.kafka:
            from pyspark_ferrymq.kafka_columns import OURS

            # A batch needs a column to have rows.
            names = [OURS[name] for name in names if name in OURS] or ["offset"]
            texts = frozenset(OURS[name] for name in texts)
        self._decoder = RecordDecoder(
            names, address, partition, broker, verbatim=columns.kafka, texts=texts
        )

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return a row for each record of a chunk."""
        from ferrymq.arrow import TextError

        try:
            return self._named(self._decoder.decode(chunk))
        except TextError as error:
            raise self._not_text(error) from None

    def decode_messages(
        self, payloads: Sequence[bytes], formats: Sequence[int] | None = None
    ) -> pa.RecordBatch:
        """Return a row for each encoded message."""
        from ferrymq.arrow import TextError

        try:
            return self._named(self._decoder.decode_messages(payloads, formats))
        except TextError as error:
            raise self._not_text(error) from None

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with Kafka's columns, if the query has these."""
        if not self._columns.kafka:
            return batch
        import pyarrow as pa

        from pyspark_ferrymq.kafka_columns import LOG_APPEND_TIME, OURS

        arrays = [
            (
                batch.column(OURS[name])
                if name in OURS
                else pa.repeat(pa.scalar(LOG_APPEND_TIME, pa.int32()), batch.num_rows)
            )
            for name in self._columns.names
        ]
        return pa.RecordBatch.from_arrays(arrays, list(self._columns.names))

    def _not_text(self, error: TextError) -> AmqpSourceError:
        from pyspark_ferrymq.kafka_columns import THEIRS

        name = THEIRS[error.column] if self._columns.kafka else error.column
        record = "a message" if error.offset is None else f"the record {error.offset}"
        return AmqpSourceError(
            f"{self._place}: {record} has a {name} that is not UTF-8, and schema() has the column"
            f" {name!r} as string. Read it as binary; make_valid_utf8(cast({name} as string))"
            " replaces the wrong bytes"
        )
