"""The broker that a task reads from, if there are several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_ferrymq.brokers.several_brokers import SeveralBrokers
from pyspark_ferrymq.offsets import stream_key

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions, SourceOptions
    from pyspark_ferrymq.stream_metadata import StreamService
    from pyspark_ferrymq.task_planning import OffsetRange, RangePartition


def connection_of(service: StreamService | None, range: OffsetRange) -> BrokerOptions | None:
    """Return the options to connect to the broker of a range; None if the option `url` alone says
    it."""
    if isinstance(service, SeveralBrokers):
        return service.connection_of(stream_key(range.stream, range.broker))
    return None


def options_for(options: SourceOptions, partition: RangePartition) -> SourceOptions:
    """Return the options of a reader with the broker that the task reads from."""
    if partition.connection is None:
        return options
    return replace(options, connection=partition.connection)
