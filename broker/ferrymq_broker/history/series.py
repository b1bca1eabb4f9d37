"""The samples of one node, of a virtual host or of the broker, in arrays of fixed size.

A sample has four numbers: messages that came in and messages that went out since the broker was
started, messages that are there now, and when the oldest of them came. Samples are taken every
`PERIOD` milliseconds; the number of a sample is its *tick*. There are three levels of samples:

    fine      every tick          the last ten minutes
    middle    every 12th tick     the last hour
    coarse    every 120th tick    the last day

All levels of a node lie in one array of `CELLS` numbers of 32 bits. It is made when the node is
used first. Nothing is written for a node that has not changed: the gap is filled with the last
sample when the node changes again.

Counters are kept modulo 2**31. A difference of two samples that follow each other is exact while
less than 3.5 million messages come in a second.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i32, i64

from ferrymq_broker.nodes.node import NodeHistory

# Milliseconds between two samples.
PERIOD: Final = 5_000
# Ticks between two samples of each level, and the samples of each level: one more than differences.
FINE_TICKS: Final = 1
MIDDLE_TICKS: Final = 12
COARSE_TICKS: Final = 120
FINE_SAMPLES: Final = 121
MIDDLE_SAMPLES: Final = 61
COARSE_SAMPLES: Final = 145
LEVELS: Final = 3
# Ticks in a day.
DAY: Final = 86_400_000 // PERIOD
# The columns of a sample.
INS: Final = 0
OUTS: Final = 1
DEPTH: Final = 2
OLDEST: Final = 3
COLUMNS: Final = 4
CELLS: Final = COLUMNS * (FINE_SAMPLES + MIDDLE_SAMPLES + COARSE_SAMPLES)
# The bytes of an array.
ARRAY_BYTES: Final = 4 * CELLS

# `NodeSeries.oldest` if there is no message.
EMPTY: Final = 0
# The start of the samples, in the seconds that `oldest` counts. Messages may be older.
START: Final = 1 << 30

_MASK: Final = 0x7FFF_FFFF


def ticks_of(level: i64) -> i64:
    """Return the ticks between two samples of a level."""
    if level == 0:
        return FINE_TICKS
    return MIDDLE_TICKS if level == 1 else COARSE_TICKS


def samples_of(level: i64) -> i64:
    """Return how many samples a level has."""
    if level == 0:
        return FINE_SAMPLES
    return MIDDLE_SAMPLES if level == 1 else COARSE_SAMPLES


def _base_of(level: i64) -> i64:
    """Return where a level begins in the array."""
    if level == 0:
        return 0
    first: i64 = COLUMNS * FINE_SAMPLES
    return first if level == 1 else first + COLUMNS * MIDDLE_SAMPLES


@final
class SampleClock:
    """The time of the samples of one broker.

    Tick 0 was at the moment `began` (`Agenda.now`, milliseconds). `tick` is the last tick whose
    samples are complete, `before` the one before it.
    """

    __slots__ = ("began", "tick", "before")

    def __init__(self, began: i64) -> None:
        self.began: i64 = began
        self.tick: i64 = 0
        self.before: i64 = 0

    def age(self, oldest: i64, now: i64) -> i64:
        """Return the seconds since the oldest message came, at the moment `now`; 0 if there is
        none."""
        if oldest == EMPTY:
            return 0
        age = (now - self.began) // 1000 + START - oldest
        return age if age > 0 else 0

    def second(self, moment: i64) -> i64:
        """Return a moment (`Agenda.now`) in the seconds of `NodeSeries.oldest`."""
        second = (moment - self.began) // 1000 + START
        return second if second > EMPTY else EMPTY + 1


@final
class NodeSeries(NodeHistory):
    """The samples of one node.

    `ins`, `outs`, `depth` and `oldest` are those of the last sample that differed from the one
    before, at the tick `tick`; `came` and `went` are its differences. There are no samples before
    the tick `since`. `first` is the sequence of the oldest message of a queue, 0 without one.
    `copies` are the messages that all subscriptions of a topic have got.
    """

    __slots__ = (
        "clock",
        "since",
        "tick",
        "ins",
        "outs",
        "depth",
        "oldest",
        "came",
        "went",
        "first",
        "copies",
        "cells",
    )

    def __init__(self, clock: SampleClock, since: i64) -> None:
        super().__init__()
        self.clock: SampleClock = clock
        self.since: i64 = since
        self.tick: i64 = since
        self.ins: i64 = 0
        self.outs: i64 = 0
        self.depth: i64 = 0
        self.oldest: i64 = EMPTY
        self.came: i64 = 0
        self.went: i64 = 0
        self.first: i64 = 0
        self.copies: i64 = 0
        self.cells: vec[i32] = vec[i32]()

    @property
    def kept(self) -> bool:
        """Whether there is an array, so that samples are kept."""
        return len(self.cells) > 0

    def keep(self) -> None:
        """Make the array. Samples before this one are as the last one."""
        self.cells = vec[i32]([0] * CELLS)
        if self.ins != 0 or self.outs != 0 or self.depth != 0:
            # It changed before, without an array.
            self.since = self.tick

    def drop(self) -> None:
        """Free the array, in which all samples are the same."""
        self.cells = vec[i32]()
        self.since = self.clock.tick

    def record(self, tick: i64, ins: i64, outs: i64, depth: i64, oldest: i64) -> None:
        """Record the sample of a tick, which differs from the last one."""
        if len(self.cells) > 0:
            level: i64 = 0
            while level < LEVELS:
                self._fill(level, tick, ins, outs, depth, oldest)
                level += 1
        self.came = ins - self.ins
        self.went = outs - self.outs
        self.ins = ins
        self.outs = outs
        self.depth = depth
        self.oldest = oldest
        self.tick = tick

    def _fill(self, level: i64, tick: i64, ins: i64, outs: i64, depth: i64, oldest: i64) -> None:
        """Write the samples of a level from the last one, which may be long ago, to this one."""
        ticks = ticks_of(level)
        samples = samples_of(level)
        base = _base_of(level)
        cells = self.cells
        at = self.tick // ticks + 1
        end = tick // ticks
        if at <= end - samples:
            at = end - samples + 1
        while at <= end:
            place = base + COLUMNS * (at % samples)
            if at * ticks == tick:
                cells[place] = i32(ins & _MASK)
                cells[place + OUTS] = i32(outs & _MASK)
                cells[place + DEPTH] = i32(depth if depth < _MASK else _MASK)
                cells[place + OLDEST] = i32(oldest)
            else:
                cells[place] = i32(self.ins & _MASK)
                cells[place + OUTS] = i32(self.outs & _MASK)
                cells[place + DEPTH] = i32(self.depth if self.depth < _MASK else _MASK)
                cells[place + OLDEST] = i32(self.oldest)
            at += 1

    def has(self, level: i64, at: i64) -> bool:
        """Return whether there is the sample `at` of a level. Sample 1 is that of the first tick of
        the level, and so on."""
        ticks = ticks_of(level)
        if at * ticks < self.since or at < 0:
            return False
        if at * ticks >= self.tick:
            return True
        return len(self.cells) > 0 and at > self.tick // ticks - samples_of(level)

    def value(self, level: i64, at: i64, column: i64) -> i64:
        """Return a number of a sample, which exists."""
        if at * ticks_of(level) >= self.tick:
            if column == INS:
                return self.ins & _MASK
            if column == OUTS:
                return self.outs & _MASK
            return self.depth if column == DEPTH else self.oldest
        place = _base_of(level) + COLUMNS * (at % samples_of(level)) + column
        return i64(self.cells[place])

    def difference(self, level: i64, at: i64, column: i64) -> i64:
        """Return how far a counter has grown between the sample before `at` and `at`; both
        exist."""
        return (self.value(level, at, column) - self.value(level, at - 1, column)) & _MASK

    def arrival(self, count: i64) -> i64:
        """Return when the message number `count` came, in the seconds of `oldest`, as exactly as
        the samples tell; `EMPTY` if it came before them. It came before the last sample."""
        behind = self.ins - count
        level: i64 = 0
        while level < LEVELS:
            ticks = ticks_of(level)
            at = self.tick // ticks
            if at * ticks != self.tick:
                # The last sample lies after the last one of this level.
                at += 1
            while self.has(level, at - 1):
                before = (self.ins - self.value(level, at - 1, INS)) & _MASK
                if before > behind:
                    # Between these two. Assume that messages came at a constant rate.
                    after = (self.ins - self.value(level, at, INS)) & _MASK
                    begin = (at - 1) * ticks
                    span = (before - behind) * ticks * PERIOD // (before - after)
                    return (begin * PERIOD + span) // 1000 + START
                at -= 1
            level += 1
        return EMPTY

    def in_rate(self) -> float:
        """Return the messages that came in a second, between the last two samples."""
        return self._rate(self.came)

    def out_rate(self) -> float:
        """Return the messages that went out in a second, between the last two samples."""
        return self._rate(self.went)

    def _rate(self, count: i64) -> float:
        clock = self.clock
        if self.tick < clock.tick:
            # It has not changed since.
            return 0.0
        span = (clock.tick - clock.before) * PERIOD
        if span == 0:
            return 0.0
        return float(count) * 1000.0 / float(span)

    def age(self, now: i64) -> i64:
        """Return the age of the oldest message in seconds, at the moment `now` (`Agenda.now`)."""
        return self.clock.age(self.oldest, now)
