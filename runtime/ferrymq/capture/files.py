"""Writer of capture files. Needs pyarrow."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from ferrymq.arrow import METADATA, RAW
from ferrymq.capture.names import TMP, CaptureName
from ferrymq.capture.place import Place

ROW_GROUP_ROWS: Final = 20_000
"""Rows of a row group, if they are not large."""

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Bytes of columns that are collected before a row group is written, at most."""

# Values that hardly repeat: a dictionary would hold all of them, and the rows their indexes in
# addition.
_DIFFERENT: Final = frozenset(["body", RAW, "messageId", "offset", "enqueuedTime", "creationTime"])
# Minimum and maximum of these columns are of no use, and would make each footer as long as
# messages.
_NOT_COMPARED: Final = frozenset(["body", RAW])


def capture_columns(raw: bool = True) -> tuple[str, ...]:
    """Return the columns of capture files: all, or all but `raw`, the messages as they were
    published, which are needed to publish them again unchanged."""
    return (*METADATA, RAW) if raw else METADATA


class CaptureFile:
    """Capture file that is being written: records of a `partition` from the offset `first` on, all
    of one `hour`.

    Record batches are added in order; `size` is their size in memory in bytes, `rows` the number of
    records. Then call `finish`, which gives the file its name, or `abandon`. All calls that write
    may raise `OSError`; then the file must be abandoned.
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
        self.rows: int = 0
        self.size: int = 0
        # Bytes that wait for a row group.
        self.pending: int = 0
        self._batches: list[pa.RecordBatch] = []
        self._waiting = 0
        self._row_group_rows = row_group_rows
        folder = CaptureName(hour, partition, first, first).folder
        self.tmp: str = f"{folder}/{TMP}{label}p{partition}-{first}.parquet"
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
                # Level 1, the default of pyarrow: level 3 takes half as long again for texts.
                compression="zstd",
                use_dictionary=_leaves(schema, _DIFFERENT),
                write_statistics=_leaves(schema, _NOT_COMPARED),
            )
        except BaseException:
            self._sink.close()
            raise

    @property
    def next(self) -> int:
        """The offset of the next record to be added."""
        return self.first + self.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next records."""
        self._batches.append(batch)
        size = batch.nbytes
        self.rows += batch.num_rows
        self.size += size
        self.pending += size
        self._waiting += batch.num_rows
        if self._waiting >= self._row_group_rows or self.pending >= ROW_GROUP_BYTES:
            self.write_out()

    def write_out(self) -> None:
        """Write the added records as a row group."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        self._batches = []
        self._waiting = 0
        self.pending = 0
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> CaptureName:
        """Write the remaining records and return the name of the file, which is still at `tmp`."""
        self.write_out()
        self._writer.close()
        self._sink.close()
        return self.named()

    def named(self) -> CaptureName:
        """Return the name of the file with its records; it must have at least one."""
        return CaptureName(self.hour, self.partition, self.first, self.first + self.rows - 1)

    def finish(self) -> CaptureName:
        """Give the file its name, durably."""
        name = self.close()
        self.place.settle(self.tmp, name.path)
        return name

    def abandon(self) -> None:
        """Delete the file. If that fails, the next start deletes it."""
        self._batches = []
        # Otherwise the writer would write a footer when it is collected.
        self._writer.is_open = False
        try:
            self._sink.close()
        except OSError:
            # The unwritten rest does not fit on the disk either.
            pass
        try:
            self.place.remove(self.tmp)
        except OSError:
            pass


def _leaves(schema: pa.Schema, without: frozenset[str]) -> list[str]:
    """Return the columns as Parquet names them, a map by its keys and values, without some."""
    leaves: list[str] = []
    for field in schema:
        if field.name in without:
            continue
        if pa.types.is_map(field.type):
            leaves += [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        else:
            leaves.append(field.name)
    return leaves
