"""Reading batch after batch. All a query knows is in its offset, which Spark keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_ferrymq.data_loss import DELETED, LOGGER, missing_before, missing_from, report
from pyspark_ferrymq.errors import AmqpSourceError, plain, plain_rows
from pyspark_ferrymq.offsets import Offset, OffsetError, PartitionOffset
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.reading.admission_control import Backlog, backlog, end_of
from pyspark_ferrymq.reading.read_task import read_range
from pyspark_ferrymq.reading.resolve_offsets import check_found, resolve
from pyspark_ferrymq.stream_metadata import StreamRanges, StreamService, asking, open_service
from pyspark_ferrymq.task_planning import OffsetRange, RangePartition, plan

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_ferrymq.options import SourceOptions

# As good as no limit. Spark asks for all there is, instead, when there will be one batch only.
_UNLIMITED: Final = (1 << 63) - 1


class OffsetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the driver's process for as long as the query runs; in tasks, a copy that reads.

    The first batch of a new query is empty: Spark writes down the offsets of ends only, so where
    the query begins has to be the end of one.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = tuple(columns)
        self.begin = options.for_streaming()
        self._service: StreamService | None = None
        # What there was when it was looked at last.
        self._ranges: dict[str, StreamRanges] | None = None
        # What there was when a query began that is to end with that.
        self._target: dict[str, StreamRanges] | None = None
        # The end that was given out last, which is known to be there.
        self._given: Offset | None = None
        # Streams that are gone, or some of their partitions. That has been told: the query goes on.
        self._gone: set[str] = set()
        # When there was a batch, by the clock that only goes forward.
        self._triggered: float | None = None

    # -- in the driver ---------------------------------------------------------------------

    @plain
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Where a new query begins, not written down yet."""
        return asking(self.options, self._initial).pinned().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options give."""
        options = self.options
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadMaxRows(options.max_offsets_per_trigger or _UNLIMITED)

    @plain
    def latestOffset(  # noqa: N802
        self, start: dict[str, object], limit: ReadLimit
    ) -> dict[str, object]:
        """Where the next batch ends. It is `start` if there is nothing to read, or not enough."""
        where = _offset(start)
        if where.pin and not isinstance(limit, ReadAllAvailable):
            # Where the query begins becomes the end of an empty batch.
            end = where.unpinned()
        else:
            end = asking(self.options, lambda: self._latest(where.unpinned(), limit))
        holder = self.options.hold
        if where.pin and holder is not None:
            # Not when the beginning is decided: it is again whenever the first batch is repeated,
            # and the query goes on from where it was decided first.
            asking(self.options, lambda: self._hold(holder, where))
        self._given = end
        return end.to_json()

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends with what there is now."""
        self._target = asking(self.options, self._look)

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """The ends of the streams, as they were when the last batch was planned."""
        ranges = self._ranges
        return None if ranges is None else _ends(ranges).to_json()

    @plain
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """The tasks of a batch: from offsets and options alone."""
        begin, until = _offset(start), _offset(end)
        planned_here = until == self._given
        if not planned_here:
            # Planned before this process was there: see whether it can be done again.
            found = asking(self.options, self._look)
            losses = missing_before(begin, until, found)
            report(losses, self.options.fail_on_data_loss)
            until = _within(until, found)
        ranges = [
            OffsetRange(name, position.incarnation, number, first, offset)
            for name, position in sorted(until.streams.items())
            for number, offset in sorted(position.partitions.items())
            for first in [_begin(begin, name, position, number, planned_here)]
        ]
        options = self.options
        planned = plan(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(range) for range in planned]

    def commit(self, end: dict[str, object]) -> None:
        """Move the hold: records before `end` will not be asked for again."""
        holder = self.options.hold
        if holder is None:
            return
        for name, position in sorted(_offset(end).streams.items()):
            if self._is_of_another(name, position):
                # What it is now has records at these offsets that have not been read.
                continue
            only = Offset({name: position})
            try:
                asking(self.options, partial(self._hold, holder, only))
            except AmqpSourceError as error:
                # It holds more than it has to, until the next time.
                LOGGER.warning("the hold %r could not be moved: %s", holder, error)
                if isinstance(error, AmqpUnreachableError):
                    return

    def stop(self) -> None:
        """The query is over."""
        service, self._service = self._service, None
        if service is not None:
            service.close()

    # -- in tasks --------------------------------------------------------------------------

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        if isinstance(partition, RangePartition):
            yield from read_range(self.options, self.columns, partition.range)

    def __getstate__(self) -> dict[str, object]:
        """A copy for a task has no connection."""
        return {**self.__dict__, "_service": None}

    # -- asking ----------------------------------------------------------------------------

    def _ask(self) -> StreamService:
        if self._service is None:
            self._service = open_service(self.options.connection)
        return self._service

    def _look(self) -> dict[str, StreamRanges]:
        """Return the streams that are there. Raises `AmqpSourceError` if a stream that is named is
        missing."""
        self._ranges = self._ask().ranges(self.options.selection)
        return self._ranges

    def _initial(self) -> Offset:
        service = self._ask()
        # One that ends with what there was does not begin behind that.
        found = self._look() if self._target is None else self._target
        check_found(self.options.selection, found, service, self.options.connection.place)
        start = resolve(self.begin, found, service)
        report(missing_from(start, found), self.options.fail_on_data_loss)
        return start

    def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        service = self._ask()
        found = self._look() if self._target is None else self._target
        losses = missing_from(start, found)
        # A stream that the query has read from, and that is gone or has lost partitions, is a loss.
        gone = {loss.stream for loss in losses if loss.reason == DELETED}
        if not losses and not gone | self._gone:
            check_found(self.options.selection, found, service, self.options.connection.place)
        report(losses, self.options.fail_on_data_loss)
        self._gone |= gone
        waiting = backlog(start, found)
        if self._is_too_little(waiting, limit):
            return start
        if any(each.until > each.at for each in waiting):
            self._triggered = time.monotonic()
        return end_of(waiting, found, limit, service)

    def _is_too_little(self, waiting: Sequence[Backlog], limit: ReadLimit) -> bool:
        """Whether it is worth waiting for more, as `minOffsetsPerTrigger` says."""
        least = self.options.min_offsets_per_trigger
        if isinstance(limit, ReadMinRows):
            least = limit.min_rows
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if sum(each.until - each.at for each in waiting) >= least or self._triggered is None:
            return False
        return (time.monotonic() - self._triggered) * 1000 < self.options.max_trigger_delay

    def _is_of_another(self, name: str, position: PartitionOffset) -> bool:
        """Whether the stream was made anew since, or is gone, as far as is known."""
        if self._ranges is None:
            return False
        there = self._ranges.get(name)
        return there is None or there.incarnation != position.incarnation

    def _hold(self, holder: str, offset: Offset) -> None:
        service = self._ask()
        for name, position in sorted(offset.streams.items()):
            service.hold(name, holder, self._holdable(name, position))

    def _holdable(self, name: str, position: PartitionOffset) -> dict[int, int]:
        """By partition where the query goes on, among what there is: nothing else can be held."""
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


def _offset(found: dict[str, object]) -> Offset:
    try:
        return Offset.from_json(found)
    except OffsetError as error:
        raise AmqpSourceError(f"the checkpoint is of another source or release: {error}") from None


def _begin(
    start: Offset, name: str, position: PartitionOffset, number: int, planned_here: bool
) -> int:
    """Where a batch begins in a partition: a new one, and one of a new stream, at its first.

    A first batch that is repeated has a beginning that was decided just now, of streams that may
    have been made anew since: it has nothing of those.
    """
    before = start.streams.get(name)
    if before is None or before.incarnation != position.incarnation:
        return 0 if planned_here or not start.pin else position.partitions[number]
    return before.partitions.get(number, 0)


def _ends(ranges: Mapping[str, StreamRanges]) -> Offset:
    return Offset(
        {
            name: PartitionOffset(
                stream.incarnation,
                {number: there.next for number, there in stream.partitions.items()},
            )
            for name, stream in ranges.items()
        }
    )


def _within(end: Offset, found: Mapping[str, StreamRanges]) -> Offset:
    """The end of a batch, as far as there are records: nobody waits for what may never come."""
    streams: dict[str, PartitionOffset] = {}
    for name, position in end.streams.items():
        stream = found.get(name)
        if stream is None or stream.incarnation != position.incarnation:
            continue
        streams[name] = PartitionOffset(
            position.incarnation,
            {
                number: min(offset, stream.partitions[number].next)
                for number, offset in position.partitions.items()
                if number in stream.partitions
            },
        )
    return Offset(streams)
