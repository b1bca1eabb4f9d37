"""Reading of a stream on Spark 4.0 and 4.1, which do not tell a reader where the next batch begins.

The reader remembers the end of the last batch. Spark starts a process for each run of a query. The
process lives as long as the run. At a restart, Spark first asks for the partitions of the empty
range at the last logged offset, so the process knows its position before it plans a batch. If Spark
asks for the end of a batch before that, the query is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_ferrymq.errors import plain
from pyspark_ferrymq.offsets import Offset
from pyspark_ferrymq.reading.stream_reader import OffsetStreamReader
from pyspark_ferrymq.spark_api import ReadAllAvailable, ReadLimit, limit_error
from pyspark_ferrymq.stream_metadata import asking

if TYPE_CHECKING:
    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.read_columns import ReadColumns


class RememberingStreamReader(OffsetStreamReader):
    """A reader that knows the start of the next batch.

    With `availableNow`, a query has one batch, and Spark does not tell the trigger. So the first
    batch of a query has all available records. Raises `AmqpOptionError` for limits of a batch,
    unless the options say that the query has another trigger.
    """

    def __init__(self, options: SourceOptions, columns: ReadColumns) -> None:
        if options.trigger is None:
            if options.max_offsets_per_trigger is not None:
                raise limit_error("maxOffsetsPerTrigger")
            if options.max_bytes_per_trigger is not None:
                raise limit_error("maxBytesPerTrigger")
        super().__init__(options, columns)
        # The end of the last batch, as Spark has it; None in a new query.
        self._last: dict[str, object] | None = None
        # The start of the query, once this process has decided it.
        self._start: Offset | None = None

    @plain
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return the start of a new query, always the same in this process."""
        if self._start is None:
            self._start = asking(self.options, self._initial)
        return self._start.pinned().to_json()

    @plain
    def latestOffset(  # noqa: N802
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """Return the end of the next batch; the end of the last one if there is nothing, or not
        enough, to read. Spark gives neither `start` nor `limit`."""
        limit = self.getDefaultReadLimit()
        before = self._last
        if before is None:
            before = self.initialOffset()
            if self.options.trigger is None:
                limit = ReadAllAvailable()
        self._last = super().latestOffset(before, limit)
        return self._last

    @plain
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the tasks of a batch. An empty range tells the position at a restart."""
        self._last = end
        return [] if start == end else super().partitions(start, end)
