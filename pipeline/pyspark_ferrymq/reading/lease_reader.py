"""Consuming of queues in batches: the messages of a batch are leased, and settled when Spark has
committed the batch. The state of a query is its offset, and its leases at the broker.

Spark asks for the end of the next batch only after it has committed the last one. So the leases up
to the start of the next batch can be settled then.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_ferrymq.broker_queues import BrokerQueues, QueueBacklog
from pyspark_ferrymq.brokers.several_brokers import only_broker
from pyspark_ferrymq.data_loss import LOGGER
from pyspark_ferrymq.errors import AmqpSourceError, plain, plain_rows
from pyspark_ferrymq.lease_offsets import LeaseOffset, LeasePosition
from pyspark_ferrymq.offsets import OffsetError
from pyspark_ferrymq.options.source import MOST_LEASED
from pyspark_ferrymq.reading.lease_renewal import LeaseRenewal, lapsed
from pyspark_ferrymq.reading.lease_task import read_lease
from pyspark_ferrymq.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark_ferrymq.stream_metadata import asking
from pyspark_ferrymq.task_planning import OffsetRange, RangePartition, apportion, plan
from pyspark_ferrymq.worker_memory import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_ferrymq.options import SourceOptions
    from pyspark_ferrymq.read_columns import ReadColumns

# The messages of a batch, if the options do not say.
_MESSAGES: Final = 10_000
# More than any limit: shares of a limit are equal then.
_PLENTY: Final = 1 << 62


class LeaseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a query: it leases in the driver's process, and a copy of it reads in each
    task.

    The first batch of a new query is empty: with its end, Spark stores the holder.
    """

    def __init__(self, options: SourceOptions, columns: ReadColumns) -> None:
        options.for_consuming()
        self.options = options
        self.columns = columns
        self.queues = options.selection.names
        self._service: BrokerQueues | None = None
        self._renewal: LeaseRenewal | None = None
        # The end that was returned last.
        self._given: LeaseOffset | None = None
        # How many messages a query with `availableNow` still takes of each queue; None before it
        # has looked, and in other queries.
        self._ends = False
        self._left: dict[str, int] | None = None
        # The leases up to these numbers are settled.
        self._settled: dict[str, int] = {}

    # -- in the driver ---------------------------------------------------------------------

    @plain
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return the start of a new query, with a new holder. Raises `AmqpSourceError` if a queue
        does not exist."""
        holder = f"{self.options.connection.group_id[:200]}-{uuid4()}"
        for queue in self.queues:
            asking(self.options, partial(self._look, queue, holder))
        return LeaseOffset(holder, dict.fromkeys(self.queues, LeasePosition()), True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set."""
        options = self.options
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadMaxRows(options.max_offsets_per_trigger or _MESSAGES)

    @plain
    def latestOffset(  # noqa: N802
        self, start: dict[str, object], limit: ReadLimit
    ) -> dict[str, object]:
        """Settle the leases up to `start`, whose batch Spark has committed, and lease messages for
        the next batch. Return `start` if there are none."""
        where = _offset(start)
        end = where.unpinned()
        if not where.pin:
            self._settle(end)
        if not where.pin or isinstance(limit, ReadAllAvailable):
            end = self._lease(end, limit)
        self._given = end
        return end.to_json()

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query when it has had the messages that are there at its first batch."""
        self._ends = True

    @plain
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the tasks of a batch, which depend only on offsets and options."""
        begin, until = _offset(start), _offset(end)
        parts: list[OffsetRange] = []
        for queue, position in sorted(until.queues.items()):
            known = begin.of(queue).lease if begin.holder == until.holder else 0
            if position.lease > known:
                parts.append(OffsetRange(queue, until.holder, position.lease, 0, position.messages))
        if until != self._given:
            # The batch was planned by another process, which does not renew its leases any more.
            for part in parts:
                asking(self.options, partial(self._take_over, part))
        options = self.options
        planned = plan(parts, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(part) for part in planned]

    def commit(self, end: dict[str, object]) -> None:
        """Do nothing: Spark calls this when the next batch has been planned, and the leases are
        settled before."""

    def stop(self) -> None:
        """End the renewals and close the connection.

        The leases stay: Spark repeats a batch that was not committed when the query starts again.
        """
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.stop()
        service, self._service = self._service, None
        if service is not None:
            service.close()

    # -- in tasks --------------------------------------------------------------------------

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task."""
        if isinstance(partition, RangePartition):
            yield from read_lease(self.options, self.columns, partition.range)
            freeze_modules()

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a task's copy, without connections and threads."""
        return {**self.__dict__, "_service": None, "_renewal": None}

    # -- asking ----------------------------------------------------------------------------

    def _ask(self) -> BrokerQueues:
        if self._service is None:
            self._service = BrokerQueues(only_broker(self.options.connection))
        return self._service

    def _look(self, queue: str, holder: str) -> QueueBacklog:
        return self._ask().look(queue, holder)

    def _keep(self, queue: str, holder: str, number: int) -> None:
        """Renew a lease from now on."""
        if self._renewal is None:
            self._renewal = LeaseRenewal(self.options.connection, self.options.queue_lease)
        self._renewal.keep(queue, holder, number)

    def _take_over(self, part: OffsetRange) -> None:
        """Renew a lease that another process has got, if it still holds."""
        there = self._ask().renew(part.stream, part.incarnation, self.options.queue_lease)
        if part.partition in there:
            self._keep(part.stream, part.incarnation, part.partition)
        else:
            LOGGER.warning("%s", lapsed(part.stream, part.partition))

    def _settle(self, where: LeaseOffset) -> None:
        """Settle the leases of a committed batch and of those before it."""
        for queue, position in sorted(where.queues.items()):
            number = position.lease
            if number <= self._settled.get(queue, 0):
                continue
            kept = set() if self._renewal is None else self._renewal.drop(queue, number)
            try:
                settle = partial(self._ask().settle, queue, where.holder, number)
                there = asking(self.options, settle)
            except AmqpSourceError as error:
                if queue in self.queues:
                    raise
                LOGGER.warning("the queue %r is not read any more: %s", queue, error)
                there = kept
            for one in sorted(kept - there):
                LOGGER.warning("%s", lapsed(queue, one))
            self._settled[queue] = number

    def _lease(self, where: LeaseOffset, limit: ReadLimit) -> LeaseOffset:
        """Lease messages of each queue, within its share of the limit; return the new position."""
        if self._ends and self._left is None:
            self._left = {
                queue: _waiting(asking(self.options, partial(self._look, queue, where.holder)))
                for queue in self.queues
            }
        shares = [MOST_LEASED] * len(self.queues)
        sizes: list[int | None] = [None] * len(self.queues)
        turn = sum(where.of(queue).lease for queue in self.queues)
        wanted = [_PLENTY] * len(self.queues)
        if isinstance(limit, ReadMaxBytes):
            sizes = [*apportion(wanted, limit.max_bytes, turn)]
        elif isinstance(limit, ReadMaxRows):
            shares = apportion(wanted, limit.max_rows, turn)
        positions: dict[str, LeasePosition] = {}
        for queue, share, size in zip(self.queues, shares, sizes, strict=True):
            positions[queue] = self._lease_one(where, queue, share, size)
        return LeaseOffset(where.holder, positions)

    def _lease_one(
        self, where: LeaseOffset, queue: str, messages: int, size: int | None
    ) -> LeasePosition:
        before = where.of(queue)
        if self._left is not None:
            messages = min(messages, self._left[queue])
        if messages == 0 or size == 0:
            return before
        number = before.lease + 1
        lease = partial(
            self._ask().lease,
            queue,
            where.holder,
            number,
            messages,
            size,
            self.options.queue_lease,
        )
        count = asking(self.options, lease)
        if count == 0:
            return before
        if self._left is not None:
            self._left[queue] = max(self._left[queue] - count, 0)
        self._keep(queue, where.holder, number)
        return LeasePosition(number, count)


def _waiting(backlog: QueueBacklog) -> int:
    """Return how many messages there are for a query, with those that it has leased before it
    ended."""
    return backlog.available + sum(backlog.leased.values())


def _offset(found: dict[str, object]) -> LeaseOffset:
    try:
        return LeaseOffset.from_json(found)
    except OffsetError as error:
        raise AmqpSourceError(
            f"the checkpoint is from another source or release: {error}"
        ) from None
