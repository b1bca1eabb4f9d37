"""The brokers of a query: which of them an offset needs, and which one a task reads from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_ferrymq.brokers.placing import place, unplaced, with_lost_brokers
from pyspark_ferrymq.brokers.several_brokers import SeveralBrokers
from pyspark_ferrymq.offsets import stream_key
from pyspark_ferrymq.options.connection import AmqpUnreachableError

if TYPE_CHECKING:
    from pyspark_ferrymq.data_loss import Loss
    from pyspark_ferrymq.offsets import Offset
    from pyspark_ferrymq.options import BrokerOptions, SourceOptions
    from pyspark_ferrymq.stream_metadata import StreamRanges, StreamService
    from pyspark_ferrymq.task_planning import OffsetRange, RangePartition


def require_all(service: StreamService) -> None:
    """Check, for a new query or a batch, that no URL without an answer may be a broker of its own.

    Raises `AmqpUnreachableError`.
    """
    if isinstance(service, SeveralBrokers):
        service.discovery.require_all()


def require_brokers(service: StreamService, placed: Offset) -> None:
    """Check that no URL without an answer may be that of a broker in a placed offset.

    Raises `AmqpUnreachableError`.
    """
    if isinstance(service, SeveralBrokers):
        if unplaced(placed, service.broker_ids()) and (reason := service.discovery.first_silent()):
            raise AmqpUnreachableError(reason)
        service.discovery.accept_silent()


def placed_by(
    service: StreamService | None, offset: Offset, found: Mapping[str, StreamRanges]
) -> Offset:
    """Return the offset with the keys that streams have now."""
    return offset if service is None else place(offset, found, service.broker_ids())


def named_losses(service: StreamService, losses: list[Loss], placed: Offset) -> list[Loss]:
    """Return the losses, with the reason for those of brokers that are not there."""
    if not losses:
        return losses
    return with_lost_brokers(losses, unplaced(placed, service.broker_ids()))


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
