"""What capture knows of a stream, and of each of its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ferrymq_broker.capture.options import HOLDER
from ferrymq_broker.capture.partition_feed import PartitionFeed
from ferrymq_broker.nodes.streams.stream import Stream

# Seconds until what has failed is tried again: at first, and at most.
_FIRST: Final = 1.0
_MOST: Final = 60.0


class Delay:
    """When to try again: later each time, until it went well."""

    def __init__(self) -> None:
        self.until = 0.0
        self._next = _FIRST

    def put_off(self, now: float) -> float:
        """It has failed; how many seconds it is put off."""
        seconds = self._next
        self.until = now + seconds
        self._next = min(_MOST, 2 * seconds)
        return seconds

    def reset(self) -> None:
        """It went well."""
        self.until = 0.0
        self._next = _FIRST


class CapturedPart:
    """One partition: what is read of it next, and the offset before which all is in files."""

    def __init__(self, feed: PartitionFeed) -> None:
        self.feed = feed
        self.closed = int(feed.position)
        self.epoch = 0
        self.delay = Delay()


class CapturedStream:
    """A stream that is captured, in the virtual host `space`. `open` is whether the process has
    its folder ready; `parts` are read from then on."""

    def __init__(self, id: int, space: str, stream: Stream, directory: str) -> None:
        self.id = id
        self.space = space
        self.stream = stream
        self.directory = directory
        self.open = False
        # The process was told of it and has not answered.
        self.asked = False
        self.parts: list[CapturedPart] = []
        self.delay = Delay()
        # What was last said to be wrong with its folder.
        self.trouble = ""
        self.files = 0
        self.bytes = 0
        self.records = 0
        self.failures = 0

    def lag(self) -> int:
        """Records that are in no file yet."""
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
        """Records that could not be read."""
        return sum(int(part.feed.lost) for part in self.parts)

    def figures(self) -> StreamFigures:
        """Return what there is to know."""
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
    """What there is to know of a stream's capture; all but `lag` since the broker has started.
    Without an address it is about all in the virtual host that are captured no more."""

    space: str
    address: str
    lag: int
    files: int
    bytes: int
    records: int
    failures: int
    lost: int

    def after(self, others: StreamFigures | None) -> StreamFigures:
        """Add the counters of streams that are captured no more."""
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
    """What there is to know of capture: `starts` is how often its process was started, `past` what
    was counted of streams that are captured no more."""

    running: bool
    starts: int
    streams: list[StreamFigures]
    past: list[StreamFigures]
