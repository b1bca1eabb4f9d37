"""Writing one capture file. Needs pyarrow."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from ferrymq.arrow import METADATA, RAW
from ferrymq.capture.names import TMP, CaptureName
from ferrymq.capture.place import Place

ROW_GROUP_ROWS: Final = 20_000
"""How many rows a row group has, if they are not large."""

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of columns are gathered at most before a row group is written."""

# Values that hardly come twice: a dictionary has them all, and the rows their numbers besides.
_DIFFERENT: Final = frozenset(["body", RAW, "messageId", "offset", "enqueuedTime", "creationTime"])
# The least and the greatest of these say nothing, and would be as long as messages in each footer.
_NOT_COMPARED: Final = frozenset(["body", RAW])


def capture_columns(raw: bool = True) -> tuple[str, ...]:
    """The columns of capture files: all there are, or all but the messages as they were
    published, without which they cannot be published again as they were."""
    return (*METADATA, RAW) if raw else METADATA


class CaptureFile:
    """A file that is being written, of the records of a `partition` from the offset `first` on,
    all of one `hour`.

    Record batches are added in order; `size` is how many bytes they had in memory, `rows` how many
    records. Then either `finish`, which gives the file its name, or `abandon`. `OSError` is raised
    by all that writes; a file that has failed is to be abandoned.
    """

    def __init__(
        self,
        place: Place,
        schema: pa.Schema,
        hour: int,
        partition: int,
        first: int,
        *,
        stream: str = "",
        incarnation: str = "",
        label: str = "",
        row_group_rows: int = ROW_GROUP_ROWS,
    ) -> None:
        self.place = place
        self.hour = hour
        self.partition = partition
        self.first = first
        self.rows = 0
        self.size = 0
        # Bytes that wait for a row group.
        self.pending = 0
        self._batches: list[pa.RecordBatch] = []
        self._waiting = 0
        self._row_group_rows = row_group_rows
        folder = CaptureName(hour, partition, first, first).folder
        self.tmp = f"{folder}/{TMP}{label}p{partition}-{first}.parquet"
        self._sink: Any = place.create(self.tmp)
        facts = {
            "ferrymq.stream": stream,
            "ferrymq.incarnation": incarnation,
            "ferrymq.partition": str(partition),
        }
        try:
            self._writer = parquet.ParquetWriter(
                self._sink,
                schema.with_metadata(facts),
                # Level 1, which is pyarrow's: level 3 takes half as long again for texts.
                compression="zstd",
                use_dictionary=_leaves(schema, _DIFFERENT),
                write_statistics=_leaves(schema, _NOT_COMPARED),
            )
        except BaseException:
            self._sink.close()
            raise

    @property
    def next(self) -> int:
        """The offset of the record that is to come."""
        return self.first + self.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """The next records."""
        self._batches.append(batch)
        size = batch.nbytes
        self.rows += batch.num_rows
        self.size += size
        self.pending += size
        self._waiting += batch.num_rows
        if self._waiting >= self._row_group_rows or self.pending >= ROW_GROUP_BYTES:
            self.write_out()

    def write_out(self) -> None:
        """Write what has been added as a row group."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        self._batches = []
        self._waiting = 0
        self.pending = 0
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> CaptureName:
        """Write the rest; what the file is to be called. It is at `tmp` still."""
        self.write_out()
        self._writer.close()
        self._sink.close()
        return self.named()

    def named(self) -> CaptureName:
        """Return the name of the file with the records that it has, at least one."""
        return CaptureName(self.hour, self.partition, self.first, self.first + self.rows - 1)

    def finish(self) -> CaptureName:
        """Put the file in its place, durably, under its name."""
        name = self.close()
        self.place.settle(self.tmp, name.path)
        return name

    def abandon(self) -> None:
        """Remove the file. A file that cannot be removed is left to the next start."""
        self._batches = []
        # It would have a footer written when it goes.
        self._writer.is_open = False
        try:
            self._sink.close()
        except OSError:
            # What it had not written does not fit either.
            pass
        try:
            self.place.remove(self.tmp)
        except OSError:
            pass


def _leaves(schema: pa.Schema, without: frozenset[str]) -> list[str]:
    """The columns as Parquet names them, a map by its keys and its values, but for some."""
    leaves: list[str] = []
    for field in schema:
        if field.name in without:
            continue
        if pa.types.is_map(field.type):
            leaves += [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        else:
            leaves.append(field.name)
    return leaves
