"""Reading of a stream in batches. The state of a query is its offset, which Spark keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_ferrymq.brokers.placing import LOST, UNPLACED, first_positions
from pyspark_ferrymq.brokers.several_brokers import SeveralBrokers, may_be_several
from pyspark_ferrymq.brokers.spread_streams import with_placement
from pyspark_ferrymq.data_loss import DELETED, LOGGER, missing_before, missing_from, report
from pyspark_ferrymq.errors import AmqpSourceError, plain, plain_rows
from pyspark_ferrymq.offsets import Offset, OffsetError, PartitionOffset, broker_of, name_of
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.reading.admission_control import Backlog, backlog, end_of
from pyspark_ferrymq.reading.batch_bounds import begin_of, ends_of, within
from pyspark_ferrymq.reading.query_brokers import (
    connection_of,
    named_losses,
    options_for,
    placed_by,
    require_all,
    require_brokers,
)
from pyspark_ferrymq.reading.read_task import read_range
from pyspark_ferrymq.reading.resolve_offsets import check_found, resolve
from pyspark_ferrymq.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark_ferrymq.stream_metadata import StreamRanges, StreamService, asking, open_service
from pyspark_ferrymq.task_planning import OffsetRange, RangePartition, plan
from pyspark_ferrymq.worker_memory import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.read_columns import ReadColumns

# Practically no limit. If there is only one batch, Spark passes `ReadAllAvailable` instead.
_UNLIMITED: Final = (1 << 63) - 1


class OffsetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a query: it plans in the driver's process, and a copy of it reads in each task.

    Spark stores only the end offsets of batches. So the end of a query's first batch also has the
    query's start: if that batch is repeated, it begins at the same offsets.
    """

    def __init__(self, options: SourceOptions, columns: ReadColumns) -> None:
        self.options = options
        self.columns = columns
        self.begin = options.for_streaming()
        self._service: StreamService | None = None
        # The ranges at the last request.
        self._ranges: dict[str, StreamRanges] | None = None
        # The ranges at which a query with `availableNow` ends.
        self._target: dict[str, StreamRanges] | None = None
        # The end that was returned last, which is known to exist.
        self._given: Offset | None = None
        # Streams that are gone or have lost partitions. The loss was reported, and the query
        # continues.
        self._gone: set[str] = set()
        # Streams of brokers that are gone, which was reported.
        self._unplaced: set[str] = set()
        # The monotonic time of the last batch.
        self._triggered: float | None = None

    # -- in the driver ---------------------------------------------------------------------

    @plain
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return the start of a new query, which is not in the checkpoint yet."""
        return asking(self.options, self._initial).pinned().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set."""
        options = self.options
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadMaxRows(options.max_offsets_per_trigger or _UNLIMITED)

    @plain
    def latestOffset(  # noqa: N802
        self, start: dict[str, object], limit: ReadLimit
    ) -> dict[str, object]:
        """Return the end of the next batch; `start` if there is nothing, or not enough, to read."""
        where = parsed_offset(start)
        end = asking(self.options, lambda: self._latest(where.unpinned(), limit))
        if where.pin:
            end = Offset(end.streams, begin=where.streams)
        elif end.streams == where.streams:
            # Spark compares offsets as text: the same position has to be the same text.
            end = where
        holder = self.options.hold
        if where.pin and holder is not None:
            # The hold is not set in `initialOffset`: that is called again when the first batch is
            # repeated, and the query then continues from the first start.
            asking(self.options, lambda: self._hold(holder, where))
        self._given = end
        return end.to_json()

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the current ends of the streams as the end of the query."""
        self._target = asking(self.options, self._look)

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """Return the ends of the streams at the time when the last batch was planned."""
        ranges = self._ranges
        return None if ranges is None else ends_of(ranges).to_json()

    @plain
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the tasks of a batch, which depend only on offsets and options."""
        begin, until = parsed_offset(start), parsed_offset(end)
        if begin.pin and until.begin is not None:
            # Only the end of this first batch knows the start of the query.
            begin = Offset(until.begin)
        planned_here = until == self._given
        if not planned_here:
            # The batch was planned by another process: check that it can be repeated.
            found = asking(self.options, self._look)
            service = self._ask()
            begin, until = (placed_by(service, each, found) for each in (begin, until))
            require_brokers(service, until)
            losses = named_losses(service, missing_before(begin, until, found), until)
            report(losses, self.options.fail_on_data_loss)
            until = within(until, found)
        elif self._ranges is not None:
            begin = placed_by(self._service, begin, self._ranges)
        ranges = [
            OffsetRange(name_of(key), position.incarnation, number, first, offset, broker_of(key))
            for key, position in sorted(until.streams.items())
            for number, offset in sorted(position.partitions.items())
            for first in [begin_of(begin, key, position, number, planned_here)]
        ]
        options = self.options
        planned = plan(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(range, connection_of(self._service, range)) for range in planned]

    def commit(self, end: dict[str, object]) -> None:
        """Move the hold to `end`: records before it are not read again."""
        holder = self.options.hold
        if holder is None:
            return
        done = placed_by(self._service, parsed_offset(end), self._ranges or {})
        for name, position in sorted(done.streams.items()):
            if self._is_of_another(name, position):
                # The new stream has unread records at these offsets.
                continue
            only = Offset({name: position})
            try:
                asking(self.options, partial(self._hold, holder, only))
            except AmqpSourceError as error:
                # Until the next commit, the hold keeps more records than necessary.
                LOGGER.warning("the hold %r could not be moved: %s", holder, error)
                if isinstance(error, AmqpUnreachableError):
                    return

    def stop(self) -> None:
        """Close the connection at the end of the query."""
        service, self._service = self._service, None
        if service is not None:
            service.close()

    # -- in tasks --------------------------------------------------------------------------

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        if isinstance(partition, RangePartition):
            yield from read_range(
                options_for(self.options, partition), self.columns, partition.range
            )
            freeze_modules()

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a task's copy, without the connection."""
        return {**self.__dict__, "_service": None}

    # -- asking ----------------------------------------------------------------------------

    def _ask(self) -> StreamService:
        if self._service is None:
            settings = self.options.connection
            several = may_be_several(settings)
            self._service = SeveralBrokers(settings) if several else open_service(settings)
        return self._service

    def _look(self) -> dict[str, StreamRanges]:
        """Request the ranges of the selected streams, from all brokers that have partitions of
        them."""
        service, settings = self._ask(), self.options.connection
        found = service.ranges(self.options.selection)
        if not isinstance(service, SeveralBrokers):
            placed = with_placement(settings, found.values())
            if placed is not settings:
                service.close()
                self._service = SeveralBrokers(placed)
                found = self._service.ranges(self.options.selection)
        self._ranges = found
        return found

    def _initial(self) -> Offset:
        # A query that ends at a target must not begin after it.
        found = self._look() if self._target is None else self._target
        service = self._ask()
        require_all(service)
        check_found(self.options.selection, found, service, self.options.connection.place)
        start = resolve(self.begin, found, service)
        report(missing_from(start, found), self.options.fail_on_data_loss)
        return start

    def _latest(self, given: Offset, limit: ReadLimit) -> Offset:
        everything = self._look() if self._target is None else self._target
        service = self._ask()
        start = placed_by(service, given, everything)
        require_brokers(service, start)
        new = first_positions(start, everything)
        found = {key: ranges for key, ranges in everything.items() if key not in new}
        losses = named_losses(service, missing_from(start, found), start)
        # A stream that was read and is gone, or has lost partitions, is a loss.
        gone = {loss.stream for loss in losses if loss.reason in (DELETED, LOST, UNPLACED)}
        if not losses and not gone | self._gone:
            check_found(self.options.selection, everything, service, self.options.connection.place)
        # A batch that has to wait for more records begins at the same offset again.
        report(
            [loss for loss in losses if loss.stream not in self._unplaced],
            self.options.fail_on_data_loss,
        )
        self._unplaced |= {loss.stream for loss in losses if loss.reason in (LOST, UNPLACED)}
        self._gone |= gone
        waiting = backlog(start, found)
        if self._is_too_little(waiting, limit):
            return given
        if any(each.until > each.at for each in waiting):
            self._triggered = time.monotonic()
        end = end_of(waiting, found, limit, service)
        return Offset({**end.streams, **new}) if new else end

    def _is_too_little(self, waiting: Sequence[Backlog], limit: ReadLimit) -> bool:
        """Return whether to wait for more records, because of `minOffsetsPerTrigger`."""
        least = self.options.min_offsets_per_trigger
        if isinstance(limit, ReadMinRows):
            least = limit.min_rows
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if sum(each.until - each.at for each in waiting) >= least or self._triggered is None:
            return False
        return (time.monotonic() - self._triggered) * 1000 < self.options.max_trigger_delay

    def _is_of_another(self, name: str, position: PartitionOffset) -> bool:
        """Return whether the stream is gone or was made again, as far as is known."""
        if self._ranges is None:
            return False
        there = self._ranges.get(name)
        return there is None or there.incarnation != position.incarnation

    def _hold(self, holder: str, offset: Offset) -> None:
        service = self._ask()
        for name, position in sorted(offset.streams.items()):
            service.hold(name, holder, self._holdable(name, position))

    def _holdable(self, name: str, position: PartitionOffset) -> dict[int, int]:
        """Return by partition the query's position, moved into the range that can be held."""
        offsets = dict(position.partitions)
        there = None if self._ranges is None else self._ranges.get(name)
        if there is None:
            return offsets
        for number, offset in offsets.items():
            partition = there.partitions.get(number)
            if partition is None:
                continue
            if self._is_of_another(name, position):
                offset = 0
            offsets[number] = min(max(offset, partition.first), partition.next)
        return offsets


def parsed_offset(found: dict[str, object]) -> Offset:
    """Parse an offset that Spark has kept. Raises `AmqpSourceError`."""
    try:
        return Offset.from_json(found)
    except OffsetError as error:
        raise AmqpSourceError(
            f"the checkpoint is from another source or release: {error}"
        ) from None
