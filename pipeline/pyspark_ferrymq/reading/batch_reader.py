"""Reading of a batch, from the start to the end that the options give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_ferrymq.brokers.several_brokers import SeveralBrokers, may_be_several
from pyspark_ferrymq.brokers.spread_streams import with_placement
from pyspark_ferrymq.data_loss import missing_before, missing_from, report
from pyspark_ferrymq.errors import AmqpSourceError, plain, plain_rows
from pyspark_ferrymq.offsets import broker_of, name_of
from pyspark_ferrymq.reading.query_brokers import connection_of, options_for, require_all
from pyspark_ferrymq.reading.read_task import read_range
from pyspark_ferrymq.reading.resolve_offsets import check_found, resolve
from pyspark_ferrymq.stream_metadata import StreamRanges, StreamService, asking, open_service
from pyspark_ferrymq.task_planning import OffsetRange, RangePartition, plan
from pyspark_ferrymq.worker_memory import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.read_columns import ReadColumns


class OffsetBatchReader(DataSourceReader):
    """A reader that plans in the driver, over one connection, and reads in tasks."""

    def __init__(self, options: SourceOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns
        self.start, self.end = options.for_batch()

    @plain
    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the tasks."""
        settings = self.options.connection
        service: StreamService
        service = SeveralBrokers(settings) if may_be_several(settings) else open_service(settings)
        try:
            if not isinstance(service, SeveralBrokers):
                found = asking(self.options, lambda: service.ranges(self.options.selection))
                placed = with_placement(settings, found.values())
                if placed is not settings:
                    service.close()
                    service = SeveralBrokers(placed)
            ranges = asking(self.options, lambda: self.ranges(service))
        finally:
            service.close()
        options = self.options
        planned = plan(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(range, connection_of(service, range)) for range in planned]

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        # If there is nothing to read, Spark makes up a partition.
        if isinstance(partition, RangePartition):
            yield from read_range(
                options_for(self.options, partition), self.columns, partition.range
            )
            freeze_modules()

    def ranges(self, service: StreamService) -> list[OffsetRange]:
        """Return what to read, as one range for each partition."""
        selection = self.options.selection
        found = service.ranges(selection)
        require_all(service)
        check_found(selection, found, service, self.options.connection.place)
        start = resolve(self.start, found, service)
        end = resolve(self.end, found, service)
        losses = missing_from(start, found) + missing_before(start, end, found)
        report(losses, self.options.fail_on_data_loss)
        return [
            OffsetRange(
                name_of(name), found[name].incarnation, number, first, last, broker_of(name)
            )
            for name, number, offset in start
            for first, last in [_there(found, name, number, offset, end.of(name, number))]
        ]


def _there(
    found: Mapping[str, StreamRanges], name: str, number: int, first: int, until: int | None
) -> tuple[int, int]:
    """Return the available part of a requested range."""
    there = found[name].partitions.get(number)
    if there is None or until is None:
        raise AmqpSourceError(f"there is no partition {number} in the stream {name_of(name)!r}")
    return max(first, there.first), min(until, there.next)
