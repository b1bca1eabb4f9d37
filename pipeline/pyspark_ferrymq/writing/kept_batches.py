"""The rows of a task, kept as long as they may have to be written again.

Spark passes the rows only once. If the connection is lost before the commit, all rows are sent
again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

IN_MEMORY: Final = 64 * 1024 * 1024
"""The bytes of columns that a task keeps in memory; further batches go to a file."""
# The variable with the directories where Spark's workers put temporary files, comma-separated.
_SPARK_DIRS: Final = "SPARK_LOCAL_DIRS"


class KeptBatches:
    """The record batches of a task. `close` removes their file, which has no name."""

    def __init__(self, batches: Iterator[pa.RecordBatch], in_memory: int = IN_MEMORY) -> None:
        self._rest = batches
        self._left = in_memory
        # Each batch is in memory, or is a place in the file: offset and length in bytes.
        self._kept: list[pa.RecordBatch | tuple[int, int]] = []
        self._file: IO[bytes] | None = None

    def from_the_beginning(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches, first those that were kept."""
        for kept in self._kept:
            yield self._load(kept)
        for batch in self._rest:
            self.add(batch)
            yield batch

    def close(self) -> None:
        """Drop all batches."""
        self._kept = []
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep one more batch."""
        if self._file is None and batch.nbytes <= self._left:
            self._left -= batch.nbytes
            self._kept.append(batch)
            return
        import pyarrow as pa

        if self._file is None:
            # `close` closes the file at the end of the task.
            self._file = tempfile.TemporaryFile(prefix="amqp-sink-", dir=_folder())  # noqa: SIM115
        place = self._file.seek(0, os.SEEK_END)
        # This writes the columns from where they are, without a copy of the batch in between.
        with pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), batch.schema) as writer:
            writer.write_batch(batch)
        self._kept.append((place, self._file.tell() - place))

    def _load(self, kept: pa.RecordBatch | tuple[int, int]) -> pa.RecordBatch:
        if not isinstance(kept, tuple):
            return kept
        import pyarrow as pa

        assert self._file is not None
        place, size = kept
        self._file.seek(place)
        with pa.ipc.open_stream(pa.py_buffer(self._file.read(size))) as stream:
            return stream.read_next_batch()


def _folder() -> str | None:
    folder = os.environ.get(_SPARK_DIRS, "").split(",")[0]
    return folder if folder and os.path.isdir(folder) else None
