"""The data source `ticks`: rows at a steady rate, into a sink that only looks at the clock.

It shows the latency of Spark itself: source and sink are Python as those of `amqp` are, and do
nothing else. Options: `rate`, in rows a second, and `out`, the file for the latencies of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType


class TickSource(DataSource):
    """The data source `ticks`, for streaming in both directions."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ticks"

    def schema(self) -> str:
        """Return the one column: when a row came into being, in seconds since the epoch."""
        return "made double"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader, whose offset is the number of the next row."""
        return _Reader(float(self.options["rate"]))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer, which appends a line for each row to a file: time and latency."""
        return _Writer(self.options["out"])


class _Reader(DataSourceStreamReader):
    def __init__(self, rate: float) -> None:
        self._rate = rate

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": int(time.time() * self._rate)}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"next": int(time.time() * self._rate)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["next"], end["next"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, end = partition.value
        made = [number / self._rate for number in range(first, end)]
        yield pa.record_batch({"made": pa.array(made, pa.float64())})


class _Writer(DataSourceStreamArrowWriter):
    def __init__(self, out: str) -> None:
        self._out = out

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        made = [value for batch in iterator for value in batch.column(0).to_pylist()]
        now = time.time()
        with open(self._out, "a", encoding="utf-8") as file:
            file.writelines(f"{now} {now - value}\n" for value in made)
        return WriterCommitMessage()
