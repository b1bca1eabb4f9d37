"""Messages whose time is over, found promptly: a heap and one timer for each queue that needs it.

The queue itself looks at what it is about to deliver, so nothing is ever delivered too late. The
timer is for what nobody asks for: it must not count, or lie in the way of its dead-letter address,
until somebody comes. What a consumer holds is the consumer's; it is looked at when it comes back.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, REMOVED, RUN
from ferrymq_broker.nodes.facts import facts_of
from ferrymq_broker.timers import Timed

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import Message
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import Lifecycle
    from ferrymq_broker.timers import Timers

# How many expire in one pass; the others are due a millisecond later.
_BATCH: Final = 1_000
# Entries that left otherwise stay in the heap until they are half of it and so many.
_SLACK: Final = 64


def time_to_live(message: Message, message_ttl: i64) -> i64:
    """Return the milliseconds that the message may spend in the queue; -1 for any number.

    The lesser of header.ttl (AMQP 1.0 §3.2.1) and `message_ttl`, which is 0 if there is none.
    """
    ttl: i64 = message.ttl
    if message_ttl > 0 and (ttl < 0 or message_ttl < ttl):
        return message_ttl
    return ttl


def expiry_date(message: Message) -> i64:
    """Return the absolute-expiry-time (AMQP 1.0 §3.2.4) in milliseconds, at least 1; 0 if none."""
    if message.special:
        properties = facts_of(message).properties
        if properties is not None:
            absolute = properties.absolute_expiry_time
            if absolute is not None:
                time: i64 = absolute
                return time if time > 0 else 1
    return 0


@final
class _Line(Timed):
    """The entries of one queue that expire by one clock, the next one first. A run is known by its
    place and by the earliest of its deadlines."""

    __slots__ = ("_lifecycle", "_timers", "_heap", "_stale", "_runs")

    def __init__(self, lifecycle: Lifecycle, timers: Timers) -> None:
        super().__init__()
        self._lifecycle = lifecycle
        self._timers = timers
        self._heap: list[tuple[int, int, Entry]] = []
        # How many of these are of no use any more, at most.
        self._stale: i64 = 0
        # The places of runs, and when the first of their messages expires.
        self._runs: dict[Entry, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry, due: i64) -> None:
        """The entry is in the queue and expires at `due`."""
        heap = self._heap
        heappush(heap, (due, entry.sequence, entry))
        if heap[0][2] is entry:
            self._timers.set(self, due)

    def forget(self) -> None:
        """An entry has left the queue that was added once."""
        self._stale += 1
        if 2 * self._stale > len(self._heap) + _SLACK:
            self._stale = 0
            self._heap = [item for item in self._heap if self._is_known(item[2], item[0])]
            heapify(self._heap)
            if not self._heap:
                self._timers.cancel(self)

    def add_run(self, place: Entry, earliest: i64) -> None:
        """Messages of a run expire, the first of them at `earliest` or later."""
        known = self._runs.get(place)
        if known is not None:
            if known <= earliest:
                return
            self._stale += 1
        self._runs[place] = int(earliest)
        self.add(place, earliest)

    def forget_run(self, place: Entry) -> None:
        """The run is no more."""
        if self._runs.pop(place, None) is not None:
            self.forget()

    def _is_known(self, entry: Entry, due: int) -> bool:
        if entry.state == RUN:
            return self._runs.get(entry) == due
        return entry.state != REMOVED

    def on_time(self, now: i64) -> None:
        """Let expire what is due and waits."""
        lifecycle = self._lifecycle
        slices = lifecycle.queue.agenda.slices
        left: i64 = _BATCH
        while self._heap and left > 0:
            expires, _, entry = self._heap[0]
            if expires > now:
                break
            heappop(self._heap)
            if entry.state == RUN:
                if self._runs.get(entry) == expires:
                    del self._runs[entry]
                    lifecycle.release_due(entry)
            elif entry.state == AVAILABLE:
                left -= 1
                lifecycle.expired(entry)
                if slices.is_spent():
                    # Dead letters take longer than messages that are dropped.
                    left = 0
            elif entry.state != REMOVED:
                # A consumer holds it. It goes when it comes back, whatever is done to the clock.
                entry.expires = lifecycle.queue.agenda.now
        heap = self._heap
        while heap and heap[0][2].state == REMOVED:
            heappop(heap)
        if heap:
            due: i64 = heap[0][0]
            self._timers.set(self, due if due > now else now + 1)

    def close(self) -> None:
        """Forget everything."""
        self._timers.cancel(self)
        self._heap = []
        self._stale = 0
        self._runs = {}


@final
class Expiry:
    """The entries of one queue that expire: after a time, on a date, or both.

    A time to live is a duration and goes by `Agenda.now`. An absolute-expiry-time is a date and
    goes by the wall clock, even when that is set. An entry that has both is in both lines: its
    `expires` is what comes first as the clocks are when it arrives, `expires_too` the other.
    """

    __slots__ = ("_lifecycle", "_agenda", "_times", "_dates")

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        space = lifecycle.queue.space
        self._agenda: Agenda = space.agenda
        self._times = _Line(lifecycle, space.timers)
        # None until an entry has a date.
        self._dates: _Line | None = None

    def __len__(self) -> int:
        dates = self._dates
        return len(self._times) + (0 if dates is None else len(dates))

    def expire(self, entry: Entry, moment: i64, date: i64) -> None:
        """The entry is in the queue and expires at a `moment` by `Agenda.now`, on a `date`, or
        both; 0 is never."""
        agenda = self._agenda
        entry.expires = moment if moment != 0 else -date
        if moment != 0 and date != 0:
            if date - agenda.wall < moment - agenda.now:
                entry.expires = -date
                entry.expires_too = moment
            else:
                entry.expires_too = -date
        self.add(entry)

    def add(self, entry: Entry) -> None:
        """The entry, which has its deadlines, is in the queue."""
        self._add(entry, entry.expires)
        if entry.expires_too != 0:
            self._add(entry, entry.expires_too)

    def _add(self, entry: Entry, deadline: i64) -> None:
        if deadline > 0:
            self._times.add(entry, deadline)
        else:
            self._by_date().add(entry, -deadline)

    def _by_date(self) -> _Line:
        dates = self._dates
        if dates is None:
            dates = _Line(self._lifecycle, self._agenda.dates)
            self._dates = dates
        return dates

    def forget(self, entry: Entry) -> None:
        """The entry, which expires, has left the queue."""
        # It may have expired in a line before: to count it there costs an early clean-up.
        dates = self._dates
        if entry.expires > 0 or entry.expires_too > 0:
            self._times.forget()
        if dates is not None and (entry.expires < 0 or entry.expires_too < 0):
            dates.forget()

    def add_run(self, place: Entry, moment: i64, date: i64) -> None:
        """Messages of a run expire, the first of them at a `moment`, on a `date`; 0 is never."""
        # The place has something here.
        place.expires = 1
        if moment != 0:
            self._times.add_run(place, moment)
        if date != 0:
            self._by_date().add_run(place, date)

    def forget_run(self, place: Entry) -> None:
        """The run is no more."""
        self._times.forget_run(place)
        if self._dates is not None:
            self._dates.forget_run(place)

    def close(self) -> None:
        """Forget everything."""
        self._times.close()
        if self._dates is not None:
            self._dates.close()
