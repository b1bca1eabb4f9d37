"""The brokers that a write goes to, as the driver finds them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.brokers.discovery import BrokerDiscovery, ask_identity
from pyspark_ferrymq.brokers.placement import PlacementQuestion, owners_of
from pyspark_ferrymq.brokers.spread_streams import with_placement
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.writing.broker_choice import BROKER_COLUMN
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.retry import Outage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_ferrymq.brokers.grouping import KnownBroker

# Between a stream and the number of a partition, in an address.
_PART: Final = "::"


@dataclass(frozen=True)
class SinkTargets:
    """The options for each broker that rows go to, sorted by id.

    If the partitions of the `stream` are on several brokers, `owners` has the index of the broker
    of each partition, by number; then rows have their addresses in a column. Otherwise it is empty.
    """

    brokers: tuple[SinkOptions, ...]
    stream: str = ""
    owners: tuple[int, ...] = ()

    def of_first(self, partitions: int) -> SinkTargets:
        """Return the targets as they were when the stream had so many partitions."""
        owners = self.owners[:partitions]
        used = sorted(set(owners))
        return SinkTargets(
            tuple(self.brokers[index] for index in used),
            self.stream,
            tuple(used.index(index) for index in owners),
        )


def targets_of(options: SinkOptions, schema: StructType) -> SinkTargets:
    """Return the brokers that the URLs lead to, and those that have partitions of the stream; runs
    in the driver.

    All tasks of a batch use the result, so they divide their rows in the same way.

    Raises `AmqpOptionError` if the frame says the partition of rows but not the broker, or the
    broker although the partition says it, and `AmqpWriteError` if a broker does not answer for the
    time in `write.retryTimeoutMs`.
    """
    settings = options.connection
    if settings.service != "ferrymq":
        return SinkTargets((options,))
    if options.address is None and len(settings.each()) == 1:
        # Nothing is asked, so no connection is needed.
        return SinkTargets((options,))
    outage = Outage("the brokers of the option 'url'", options.retry_timeout)
    while True:
        try:
            return _find(options, schema)
        except AmqpUnreachableError as error:
            outage.lost(error, settings.place)


def _find(options: SinkOptions, schema: StructType) -> SinkTargets:
    settings = options.connection
    stream, _, part = (options.address or "").partition(_PART)
    question = PlacementQuestion(stream)
    discovery = BrokerDiscovery(settings, partial(ask_identity, question=question.ask))
    known = discovery.find()
    while (placed := with_placement(settings, [question.ranges()])) is not settings:
        settings = placed
        discovery.extend(settings)
        known = discovery.find()
    if not question.placement:
        discovery.require_all()
        _check_columns(known, schema)
        return SinkTargets(_each(options, known))
    owners = owners_of(question.ranges(), known, discovery.identities())
    discovery.accept_silent()
    if part:
        # The address of one partition.
        number = int(part) if part.isdecimal() else len(owners)
        only = known if number >= len(owners) else [known[owners[number]]]
        return SinkTargets(_each(options, only[:1]))
    if BROKER_COLUMN in schema.fieldNames():
        raise AmqpOptionError(
            f"the partitions of {stream!r} are on several brokers, so the partition of a row says"
            f" its broker: drop the column {BROKER_COLUMN!r}"
        )
    return SinkTargets(_each(replace(options, address=None), known), stream, owners)


def _each(options: SinkOptions, brokers: list[KnownBroker]) -> tuple[SinkOptions, ...]:
    return tuple(replace(options, connection=one.connection) for one in brokers)


def _check_columns(known: list[KnownBroker], schema: StructType) -> None:
    names = schema.fieldNames()
    if len(known) > 1 and "partition" in names and BROKER_COLUMN not in names:
        raise AmqpOptionError(
            "the column 'partition' says the partition of a row, and there are several brokers"
            f" (option 'url'), each with partitions of its own: drop the column, or add a column"
            f" {BROKER_COLUMN!r} with the id of the row's broker"
        )
