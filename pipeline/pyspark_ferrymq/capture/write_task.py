"""A task of the capture sink: rows of streams into files, one for each run of offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.sql.datasource import WriterCommitMessage

from ferrymq.capture import CaptureName, open_place, stream_folder
from pyspark_ferrymq.capture.options import CaptureSinkOptions
from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.worker_memory import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from ferrymq.capture.files import CaptureFile

# Microseconds.
_HOUR = 3_600_000_000


@dataclass
class WrittenFiles(WriterCommitMessage):
    """The files of a task by stream, each with its path and its final name. The names of all files
    of the query, or of the task if there is no query, begin with `job`."""

    job: str
    files: dict[str, list[tuple[str, CaptureName]]] = field(default_factory=dict)


class _Place(NamedTuple):
    stream: str
    partition: int
    hour: int
    offset: int


def write_runs(
    options: CaptureSinkOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch]
) -> WrittenFiles:
    """Write the rows of a task. Raises `AmqpWriteError` for rows that are not runs of a stream."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    written = WrittenFiles(query or uuid4().hex)
    task = _Task(options, columns, written)
    try:
        for batch in batches:
            if batch.num_rows:
                task.add(batch)
        task.finish()
    except BaseException:
        task.abandon()
        raise
    freeze_modules()
    return written


class _Task:
    def __init__(
        self, options: CaptureSinkOptions, columns: tuple[str, ...], written: WrittenFiles
    ) -> None:
        from ferrymq.arrow import schema_of

        self._options = options
        self._schema = schema_of(columns)
        self._written = written
        # The label makes the file names of each attempt unique.
        self._label = f"{written.job}-{uuid4().hex}-"
        self._file: CaptureFile | None = None
        # The place of the last run, and the end of each partition.
        self._last: _Place | None = None
        self._ends: dict[tuple[str, int], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        columns = [_cast(batch.column(field.name), field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        cuts = [0, *_changes(batch), batch.num_rows]
        for start, end in itertools.pairwise(cuts):
            self._add_run(batch.slice(start, end - start))

    def _add_run(self, run: pa.RecordBatch) -> None:
        """Add rows with consecutive offsets, of one partition and one hour."""
        first = _place(run, 0)
        key = first.stream, first.partition
        end = self._ends.get(key)
        if end is not None and first.offset != end:
            self._expect_gap(first, end)
        self._ends[key] = first.offset + run.num_rows
        at = 0
        while at < run.num_rows:
            file = self._file
            if file is None or not self._goes_on(file, first, at):
                self.finish()
                file = self._open(first, at)
            count = min(run.num_rows - at, self._options.max_records_per_file - file.rows)
            file.add(run.slice(at, count))
            at += count
        self._last = first

    def _goes_on(self, file: CaptureFile, first: _Place, at: int) -> bool:
        last = self._last
        return (
            file.rows < self._options.max_records_per_file
            and file.next == first.offset + at
            and file.hour == first.hour
            and last is not None
            and (last.stream, last.partition) == (first.stream, first.partition)
        )

    def _expect_gap(self, first: _Place, end: int) -> None:
        where = f"stream {first.stream!r}, partition {first.partition}"
        if first.offset < end:
            raise AmqpWriteError(
                f"{where}: the row with offset {first.offset} comes after that with {end - 1};"
                " amqp_capture takes rows in the order in which the source reads them: do not"
                " repartition or sort before it"
            )
        if not self._options.allow_gaps:
            raise AmqpWriteError(
                f"{where}: the offsets from {end} to before {first.offset} are missing;"
                " amqp_capture takes whole streams, without filters. If they are gone from the"
                " stream, set the option 'allowGaps' to true"
            )

    def _open(self, first: _Place, at: int) -> CaptureFile:
        from ferrymq.capture.files import CaptureFile

        self._last = first
        self._file = CaptureFile(
            open_place(self._options.path, stream_folder(first.stream)),
            self._schema,
            first.hour,
            first.partition,
            first.offset + at,
            stream=first.stream,
            label=self._label,
        )
        return self._file

    def finish(self) -> None:
        """Complete the open file, which gets its final name later."""
        file, last = self._file, self._last
        if file is None or last is None:
            return
        name = file.close()
        self._file = None
        self._written.files.setdefault(last.stream, []).append((file.tmp, name))

    def abandon(self) -> None:
        """Remove all files of the task."""
        if self._file is not None:
            self._file.abandon()
        for stream, files in self._written.files.items():
            place = open_place(self._options.path, stream_folder(stream))
            for tmp, _ in files:
                try:
                    place.remove(tmp)
                except OSError:
                    # The driver removes the file with the next batch.
                    pass


def _place(run: pa.RecordBatch, row: int) -> _Place:
    import pyarrow as pa

    stream, partition, offset, time = (
        run.column(name)[row] for name in ("address", "partition", "offset", "enqueuedTime")
    )
    for name, value in (
        ("address", stream),
        ("partition", partition),
        ("offset", offset),
        ("enqueuedTime", time),
    ):
        if not value.is_valid:
            raise AmqpWriteError(
                f"a row has no {name}: amqp_capture takes rows of streams, as the source reads them"
            )
    hour = time.cast(pa.int64()).as_py() // _HOUR
    return _Place(stream.as_py(), partition.as_py(), hour, offset.as_py())


def _changes(batch: pa.RecordBatch) -> list[int]:
    """Return the rows at which another run begins, except the first row."""
    import pyarrow as pa
    from pyarrow import compute

    count = batch.num_rows
    if count < 2:
        return []
    # The scalars have explicit types: to infer one, pyarrow imports dateutil, and if that is not
    # installed, it searches the whole path for it each time.
    one, hour = (pa.scalar(number, pa.int64()) for number in (1, _HOUR))
    hours = compute.divide(batch.column("enqueuedTime").cast(pa.int64()), hour)
    offsets = batch.column("offset")
    changes: Any = compute.not_equal(
        compute.subtract(offsets.slice(1), offsets.slice(0, count - 1)), one
    )
    for column in (batch.column("address"), batch.column("partition"), hours):
        differ = compute.not_equal(column.slice(1), column.slice(0, count - 1))
        changes = compute.or_(changes, differ)
    # A row with a missing value becomes a run of its own, which `_place` rejects.
    changes = compute.fill_null(changes, pa.scalar(True, pa.bool_()))
    return [1 + index for index in compute.indices_nonzero(changes).to_pylist()]


def _cast(column: Any, kind: Any) -> Any:
    return column if column.type == kind else column.cast(kind)
