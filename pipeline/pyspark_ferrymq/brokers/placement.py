"""The placement of a stream whose partitions are on several brokers, for work that may send.

A broker tells it to whoever may send to the stream, in the error for a link to the whole of it. The
operation RANGES needs the right to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_ferrymq.brokers.grouping import KnownBroker
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.stream_metadata import StreamRanges

if TYPE_CHECKING:
    from ferrymq.blocking import Connection


class PlacementQuestion:
    """The question to brokers where the partitions of a stream are, and their answers."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        # The URLs of the broker of each partition, as each broker tells them.
        self._answers: list[list[tuple[str, ...]]] = []

    def ask(self, connection: Connection) -> None:
        """Ask one broker. Raises `ConnectionClosed`, `SessionEnded` or TimeoutError if there is no
        answer."""
        from ferrymq import LinkDetached

        if not self.stream or connection.remote_properties.get("product") != "ferrymq":
            return
        try:
            with connection.partitioned_sender(self.stream) as sender:
                found = sender.placement
        except LinkDetached:
            # The tasks attach the same link, and report the error.
            return
        if found is not None:
            self._answers.append(found)

    @property
    def placement(self) -> list[tuple[str, ...]]:
        """The URLs of the broker of each partition, by number; empty if the stream is on one
        broker.

        Partitions are only added. So if a change has not reached all brokers yet, the answer with
        the most partitions is the new one.
        """
        return max(self._answers, key=lambda found: (len(found), found), default=[])

    def ranges(self) -> StreamRanges:
        """Return the stream without the ranges of its records."""
        return StreamRanges(self.stream, "", {}, dict(enumerate(self.placement)))


def owners_of(
    placed: StreamRanges, known: list[KnownBroker], identities: Mapping[tuple[str, int], str]
) -> tuple[int, ...]:
    """Return for each partition the index of its broker among the known brokers.

    `identities` has the ids of brokers by host and port. Raises `AmqpUnreachableError` if the
    broker of a partition has not answered, and `AmqpOptionError` if the URLs of a partition lead to
    different brokers, or if one of the known brokers has no partition.
    """
    from ferrymq.partitioning import endpoint_of

    indexes = {broker.id: index for index, broker in enumerate(known)}
    owners: list[int] = []
    for number, urls in sorted(placed.elsewhere.items()):
        places = [endpoint_of(url) for url in urls]
        found = {indexes[identities[place]] for place in places if place in identities}
        which = f"partition {number} of the stream {placed.name!r} is at {', '.join(urls)}"
        if not found:
            raise AmqpUnreachableError(f"{which}, which cannot be reached")
        if len(found) > 1:
            raise AmqpOptionError(
                f"{which}, and these URLs lead to different brokers: see partitions-on in the"
                " configuration of the brokers"
            )
        owners += found
    for index, broker in enumerate(known):
        if index not in owners:
            raise AmqpOptionError(
                f"option 'url': {broker.connection.place} has no partition of the stream"
                f" {placed.name!r}, whose partitions are on other brokers: take this URL out"
            )
    return tuple(owners)
