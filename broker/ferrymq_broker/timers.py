"""The timers of the broker, in a heap.

A node owns `Timer` objects and sets them here. The server calls `Broker.handle_timeout` when the
first timer is due. There are two `TimerHeap` objects, each with its own clock: `Space.timers` for
durations uses `Agenda.now`, `Agenda.dates` for dates uses `Agenda.wall`. Both are in milliseconds.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.deadline_heap import DeadlineHeap

# No sweep begins while at most this number of records is outdated.
_SLACK: Final = 1024
# How many records are swept at each change of a timer.
_STEP: Final = 4


class Timer:
    """A timer. `due` is 0 while it is not set."""

    __slots__ = ("due", "alarm")

    def __init__(self) -> None:
        self.due: i64 = 0
        # The record of this timer in the heap, while the timer is set.
        self.alarm: Alarm | None = None

    def on_time(self, now: i64) -> None:
        """Handle that the timer is due. `due` is 0 again; the timer may be set again."""


@final
class Alarm:
    """The entry of a timer in the heap. `timed` is the timer. It becomes None when the timer is set
    again or cancelled: otherwise an outdated entry would keep a transaction, and its connection, in
    memory."""

    __slots__ = ("timed",)

    def __init__(self, timed: Timer) -> None:
        self.timed: Timer | None = timed


@final
class TimerHeap:
    """The timers that are set. `moved` is true when the first of them may have changed."""

    __slots__ = ("moved", "_heap", "_order", "_live")

    def __init__(self) -> None:
        self.moved: bool = False
        self._heap: DeadlineHeap[Alarm] = DeadlineHeap(_SLACK)
        self._order: i64 = 0
        self._live: i64 = 0

    def __len__(self) -> int:
        return self._live

    def set(self, timed: Timer, due: i64) -> None:
        """Set a timer to `due`. This replaces an earlier time of the timer."""
        if timed.due == due:
            return
        heap = self._heap
        before = timed.alarm
        if before is None:
            self._live += 1
        else:
            before.timed = None
            heap.outdate()
        alarm = Alarm(timed)
        timed.alarm = alarm
        timed.due = due
        self._order += 1
        first = heap.first()
        if first is None or due < first[0]:
            self.moved = True
        heap.push(due, self._order, alarm)
        self._sweep()

    def cancel(self, timed: Timer) -> None:
        """Cancel a timer."""
        alarm = timed.alarm
        if alarm is not None:
            alarm.timed = None
            timed.alarm = None
            timed.due = 0
            self._live -= 1
            self._heap.outdate()
            self._sweep()

    def next_due(self) -> i64:
        """Return when the first timer is due; 0 if there is none."""
        first = self._heap.first()
        while first is not None and first[2].timed is None:
            self._heap.pop()
            self._heap.discount()
            first = self._heap.first()
        return 0 if first is None else first[0]

    def run(self, now: i64) -> None:
        """Run the timers that are due, in order. A timer that is set meanwhile has to wait for the
        next run, even if it is due, because it has more work than fits in one pass."""
        last = self._order
        later: list[tuple[int, int, Alarm]] = []
        heap = self._heap
        try:
            first = heap.first()
            while first is not None and first[0] <= now:
                heap.pop()
                alarm = first[2]
                timed = alarm.timed
                if timed is None:
                    heap.discount()
                elif first[1] > last:
                    later.append(first)
                else:
                    alarm.timed = None
                    timed.alarm = None
                    timed.due = 0
                    self._live -= 1
                    timed.on_time(now)
                first = heap.first()
        finally:
            for due, order, alarm in later:
                heap.push(due, order, alarm)
                self.moved = True

    def _sweep(self) -> None:
        heap = self._heap
        for _ in range(_STEP):
            record = heap.sweep()
            if record is None:
                return
            if record[2].timed is not None:
                heap.push(record[0], record[1], record[2])
