"""The state of capture for each stream and partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ferrymq_broker.capture.options import HOLDER
from ferrymq_broker.capture.partition_feed import PartitionFeed
from ferrymq_broker.nodes.streams.stream import Stream

# Seconds until a failed operation is tried again: the first time, and at most.
_FIRST: Final = 1.0
_MOST: Final = 60.0


class Delay:
    """The time of the next attempt, later after each failure."""

    def __init__(self) -> None:
        self.until: float = 0.0
        self._next = _FIRST

    def put_off(self, now: float) -> float:
        """Count a failure, and return the seconds until the next attempt."""
        seconds = self._next
        self.until = now + seconds
        self._next = min(_MOST, 2 * seconds)
        return seconds

    def reset(self) -> None:
        """Count a success."""
        self.until = 0.0
        self._next = _FIRST


class CapturedPart:
    """A partition: its reader, and the offset before which all records are in files
    (`closed`)."""

    def __init__(self, feed: PartitionFeed) -> None:
        self.feed = feed
        self.closed: int = int(feed.position)
        self.epoch = 0
        self.delay: Delay = Delay()


class CapturedStream:
    """A captured stream in the virtual host `space`. `open` says whether the process has its folder
    ready; `parts` are read from then on."""

    def __init__(self, id: int, space: str, stream: Stream, directory: str) -> None:
        self.id = id
        self.space = space
        self.stream = stream
        self.directory = directory
        self.open = False
        # Whether the process was asked to open the folder.
        self.asked = False
        self.parts: list[CapturedPart] = []
        self.delay: Delay = Delay()
        # The last reason for which the folder was refused.
        self.trouble = ""
        self.files = 0
        self.bytes = 0
        self.records = 0
        self.failures = 0

    def lag(self) -> int:
        """Return the number of records that are not in a file yet."""
        stream = self.stream
        if len(self.parts) < len(stream.partitions):
            hold = stream.holds.find(HOLDER)
            begun = {} if hold is None else hold.offsets
            closed = [begun.get(number, 0) for number in range(len(stream.partitions))]
        else:
            closed = [part.closed for part in self.parts]
        return sum(
            max(0, int(partition.log.next) - max(offset, int(partition.log.first)))
            for partition, offset in zip(stream.partitions, closed, strict=True)
        )

    def lost(self) -> int:
        """Return the number of records that could not be read."""
        return sum(int(part.feed.lost) for part in self.parts)

    def figures(self) -> StreamFigures:
        """Return the figures of the stream."""
        return StreamFigures(
            self.space,
            self.stream.address,
            self.lag(),
            self.files,
            self.bytes,
            self.records,
            self.failures,
            self.lost(),
        )


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """The figures of a stream's capture. All but `lag` count from the start of the broker. Without
    an address they are the sums of the virtual host's streams that are not captured any more."""

    space: str
    address: str
    lag: int
    files: int
    bytes: int
    records: int
    failures: int
    lost: int

    def after(self, others: StreamFigures | None) -> StreamFigures:
        """Add the counters of streams that are not captured any more."""
        lost = self.lost
        files, size, records, failures = self.files, self.bytes, self.records, self.failures
        if others is not None:
            files += others.files
            size += others.bytes
            records += others.records
            failures += others.failures
            lost += others.lost
        return StreamFigures(self.space, "", 0, files, size, records, failures, lost)


@dataclass(frozen=True, slots=True)
class CaptureFigures:
    """The figures of capture. `starts` is how often its process was started, `past` has the sums of
    streams that are not captured any more."""

    running: bool
    starts: int
    streams: list[StreamFigures]
    past: list[StreamFigures]
