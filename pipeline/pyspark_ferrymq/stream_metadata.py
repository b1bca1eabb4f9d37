"""The metadata of streams: ranges of offsets, and the offsets of times and sizes.

The driver plans with a `StreamService`; `open_service` returns the one of the option `service`.
`reading.task` chooses how tasks read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark_ferrymq.options.connection import AmqpUnreachableError

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions, Selection, SourceOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The records of a partition, from `first` to before `next`, of `size` bytes together.

    `last_time` is when the last record was appended, in milliseconds since the epoch; None if there
    is no record.
    """

    partition: int
    first: int
    next: int
    size: int = 0
    last_time: int | None = None


@dataclass(frozen=True, slots=True)
class StreamRanges:
    """The partitions of a stream. A stream made again under its name has another incarnation.
    `elsewhere` has the URLs of the partitions that other brokers have."""

    name: str
    incarnation: str
    partitions: Mapping[int, PartitionRange]
    elsewhere: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


class StreamService(Protocol):
    """A service with streams. It opens a connection only at the first request.

    All methods raise `AmqpSourceError` if the service refuses a request, `AmqpUnreachableError` if
    it cannot be reached, and `AmqpError` or TimeoutError if the connection is lost. The next
    request then opens a new connection.
    """

    def broker_ids(self) -> dict[str, str]:
        """Return, by the id of each broker, its name in the keys of streams: "" if there is only
        one broker, else the id. A broker that tells no id is left out.

        Call it after `ranges`.
        """

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        """Return the selected streams by name, with their selected partitions; with several
        brokers by a `BrokerStream`, which is a key in all other methods too.

        Names without a stream are left out.
        """

    def explain(self, name: str) -> str:
        """Explain why there is no stream of that name, in a clause that begins "there is"."""

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        """Return, by partition, the offset of the first record from a time in milliseconds on, or
        the next offset if there is no such record."""

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return, by partition, the offset after a number of bytes, at least one record further on.

        `places` has an offset and the number of bytes for each partition.
        """

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        """Keep the records from these offsets on for the holder, and release the records before."""

    def close(self) -> None:
        """Close the connection, if one is open."""


def open_service(settings: BrokerOptions) -> StreamService:
    """Return the service of the option `service`."""
    if settings.service == "eventhubs":
        from pyspark_ferrymq.foreign.eventhubs import EventHubsMetadata

        return EventHubsMetadata(settings)
    from pyspark_ferrymq.broker_streams import BrokerStreams

    return BrokerStreams(settings)


def asking(options: SourceOptions, ask: Callable[[], T]) -> T:
    """Call `ask`, and repeat it if the connection is lost: at most `fetchOffset.numRetries` times,
    with a pause of `fetchOffset.retryIntervalMs`."""
    from ferrymq import AmqpError

    tries = options.num_retries
    while True:
        try:
            return ask()
        except (AmqpError, TimeoutError, AmqpUnreachableError) as error:
            if tries == 0:
                if isinstance(error, AmqpUnreachableError):
                    raise
                raise AmqpUnreachableError(
                    f"{options.connection.place} gave no answer, after"
                    f" {options.num_retries} retries (option 'fetchOffset.numRetries'): {error}"
                ) from None
            tries -= 1
            time.sleep(options.retry_interval / 1000)
