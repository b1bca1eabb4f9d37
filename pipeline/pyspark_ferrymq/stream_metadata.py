"""What a service knows of its streams: ranges of offsets, and where in them something is.

`StreamService` is what the driver needs to plan; `open_service` gives the one of the option
`service`. What tasks read with is chosen in `reading.task`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark_ferrymq.options.connection import AmqpUnreachableError

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions, Selection, SourceOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The records of a partition: those from `first` to before `next`, of `size` bytes together.

    `last_time` is when the last was appended, in milliseconds since the epoch; None if there is
    none.
    """

    partition: int
    first: int
    next: int
    size: int = 0
    last_time: int | None = None


@dataclass(frozen=True, slots=True)
class StreamRanges:
    """The partitions of a stream. One that is made anew under its name has another incarnation."""

    name: str
    incarnation: str
    partitions: Mapping[int, PartitionRange]


class StreamService(Protocol):
    """What is at the other end. Nothing is opened before something is asked.

    Everything raises `AmqpSourceError` for what the other end will not answer,
    `AmqpUnreachableError` where there is no connection, and `AmqpError` or TimeoutError where one
    is lost: then, asking again makes a new one.
    """

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        """The streams that are selected, those of their partitions that are; by name.

        Names without a stream are left out.
        """

    def explain(self, name: str) -> str:
        """Why there is no stream of that name, as a clause that begins "there is"."""

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        """By partition the first record of a time in milliseconds or later; the next to come where
        there is none."""

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """By partition the offset behind so many bytes from an offset on: one record at least."""

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        """Keep the records from these offsets on for the holder, and none before for him."""

    def close(self) -> None:
        """Close what is open."""


def open_service(settings: BrokerOptions) -> StreamService:
    """The service of the option `service`."""
    if settings.service == "eventhubs":
        from pyspark_ferrymq.foreign.eventhubs import EventHubsMetadata

        return EventHubsMetadata(settings)
    from pyspark_ferrymq.broker_streams import BrokerStreams

    return BrokerStreams(settings)


def asking(options: SourceOptions, ask: Callable[[], T]) -> T:
    """Ask, and ask again if the connection is lost: as often as `fetchOffset.numRetries` says, and
    with as long a pause as `fetchOffset.retryIntervalMs`."""
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
