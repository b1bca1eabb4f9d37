"""Message expiry: a heap and one timer find expired messages promptly, in each queue that needs it.

The queue itself checks each message before a delivery, so no message is delivered too late. The
timer is for messages that no consumer asks for: they must not count any more, and their dead
letters must not be late. A message that a consumer holds is checked when it comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.deadline_heap import DeadlineHeap
from ferrymq_broker.nodes.entry import AVAILABLE, DEFERRED, REMOVED, RUN
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.slices import freed
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle
    from ferrymq_broker.timers import TimerHeap

# How many messages expire in one pass (a large message counts as several); the others expire in the
# next pass.
_BATCH: Final = 1_000
# The number of outdated records that the heap may always have.
_SLACK: Final = 64
# How many records of the heap are checked, in two places, for each entry that leaves.
_STEP: Final = 4


def time_to_live(message: BrokerMessage, message_ttl: i64) -> i64:
    """Return the milliseconds that the message may spend in the queue; -1 for no limit.

    The result is the lower of header.ttl (AMQP 1.0 §3.2.1) and `message_ttl`, which is 0 if there
    is none.
    """
    ttl: i64 = message.ttl
    if message_ttl > 0 and (ttl < 0 or message_ttl < ttl):
        return message_ttl
    return ttl


def expiry_date(message: BrokerMessage) -> i64:
    """Return the absolute-expiry-time (AMQP 1.0 §3.2.4) in milliseconds, at least 1; 0 if none."""
    if message.special and not message.starts_with_body():
        properties = view_of(message).properties
        if properties is not None:
            absolute = properties.absolute_expiry_time
            if absolute is not None:
                time: i64 = absolute
                return time if time > 0 else 1
    return 0


@final
class _Line(Timer):
    """The entries of one queue that expire by one clock, the earliest first. A run is an item with
    the earliest of its deadlines."""

    __slots__ = ("_lifecycle", "_timers", "_heap", "_runs")

    def __init__(self, lifecycle: MessageLifecycle, timers: TimerHeap) -> None:
        super().__init__()
        self._lifecycle = lifecycle
        self._timers = timers
        self._heap: DeadlineHeap[Entry] = DeadlineHeap(_SLACK)
        # The places of runs, and when their first message expires.
        self._runs: dict[Entry, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry, due: i64) -> None:
        """Add an entry of the queue that expires at `due`."""
        # A timer that was set for an entry that has left only looks for the next one.
        if self._heap.push(due, entry.sequence, entry) and (self.due == 0 or due < self.due):
            self._timers.set(self, due)

    def forget(self) -> None:
        """Count an added entry that has left the queue."""
        heap = self._heap
        heap.outdate()
        for _ in range(_STEP):
            # Most entries leave in the order in which they came.
            head = heap.head()
            if head is None or self._is_known(head.item, head.due):
                break
            heap.drop_head()
        for _ in range(_STEP):
            record = heap.sweep()
            if record is None:
                break
            if self._is_known(record[2], record[0]):
                heap.push(record[0], record[1], record[2])

    def add_run(self, place: Entry, earliest: i64) -> None:
        """Add a run whose messages expire, the first of them at `earliest` or later."""
        known = self._runs.get(place)
        if known is not None:
            if known <= earliest:
                return
            self._heap.outdate()
        self._runs[place] = int(earliest)
        self.add(place, earliest)

    def forget_run(self, place: Entry) -> None:
        """Remove a run that no longer exists."""
        if self._runs.pop(place, None) is not None:
            self.forget()

    def _is_known(self, entry: Entry, due: i64) -> bool:
        if entry.state == RUN:
            return self._runs.get(entry) == int(due)
        return entry.state != REMOVED

    def on_time(self, now: i64) -> None:
        """Expire the available and deferred entries that are due."""
        lifecycle = self._lifecycle
        slices = lifecycle.node.agenda.slices
        left: i64 = _BATCH
        heap = self._heap
        first = heap.first()
        while first is not None and first[0] <= now and left > 0:
            expires, _, entry = first
            heap.pop()
            if entry.state == RUN:
                if self._runs.get(entry) == expires:
                    del self._runs[entry]
                    lifecycle.release_due(entry)
                else:
                    heap.discount()
            elif entry.state == AVAILABLE or entry.state == DEFERRED:
                left -= freed(i64(entry.size))
                lifecycle.expired(entry)
                # The entry has left the queue and has been counted as outdated.
                heap.discount()
                if slices.is_spent():
                    # Publishing dead letters takes longer than dropping messages.
                    left = 0
            elif entry.state != REMOVED:
                # A consumer holds the entry. It expires when it comes back, even if the clock is
                # set.
                entry.expires = lifecycle.node.agenda.now
            else:
                heap.discount()
            first = heap.first()
        while first is not None and first[2].state == REMOVED:
            heap.pop()
            heap.discount()
            first = heap.first()
        if first is not None:
            self._timers.set(self, first[0])

    def close(self) -> None:
        """Forget everything."""
        self._timers.cancel(self)
        self._heap.clear()
        self._runs = {}


@final
class MessageExpiry:
    """The entries of one queue that expire: after a time, on a date, or both.

    A time to live is a duration by `Agenda.now`. An absolute-expiry-time is a date by the wall
    clock, even when that is set. An entry with both is in both lines: `expires` is the deadline
    that comes first by the clocks at its arrival, `expires_too` is the other one.
    """

    __slots__ = ("_lifecycle", "_agenda", "_times", "_dates")

    def __init__(self, lifecycle: MessageLifecycle) -> None:
        self._lifecycle = lifecycle
        space = lifecycle.node.space
        self._agenda: Agenda = space.agenda
        self._times = _Line(lifecycle, space.timers)
        # None until an entry has a date.
        self._dates: _Line | None = None

    def __len__(self) -> int:
        dates = self._dates
        return len(self._times) + (0 if dates is None else len(dates))

    def expire(self, entry: Entry, moment: i64, date: i64) -> None:
        """Set when an entry expires: at a `moment` by `Agenda.now`, on a `date`, or both; 0 is
        never."""
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
        """Add an entry of the queue that has deadlines already."""
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
        """Remove an entry with a deadline that has left the queue."""
        # The entry may have expired in a line before: counting it there only costs an early
        # clean-up.
        dates = self._dates
        if entry.expires > 0 or entry.expires_too > 0:
            self._times.forget()
        if dates is not None and (entry.expires < 0 or entry.expires_too < 0):
            dates.forget()

    def add_run(self, place: Entry, moment: i64, date: i64) -> None:
        """Add a run whose messages expire, the first of them at a `moment`, on a `date`; 0 is
        never."""
        # The place is in this line.
        place.expires = 1
        if moment != 0:
            self._times.add_run(place, moment)
        if date != 0:
            self._by_date().add_run(place, date)

    def forget_run(self, place: Entry) -> None:
        """Remove a run that no longer exists."""
        self._times.forget_run(place)
        if self._dates is not None:
            self._dates.forget_run(place)

    def close(self) -> None:
        """Forget everything."""
        self._times.close()
        if self._dates is not None:
            self._dates.close()
