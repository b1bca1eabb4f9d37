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
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import Lifecycle
    from ferrymq_broker.timers import Timers

# How many expire in one pass; the others are due a millisecond later.
_BATCH: Final = 10_000
# Entries that left otherwise stay in the heap until they are half of it and so many.
_SLACK: Final = 64


def expiry_of(message: Message, arrived: i64, message_ttl: i64) -> i64:
    """When the time of a message that arrived at `arrived` is over; 0 for never.

    The earliest of: arrival and header.ttl (AMQP 1.0 §3.2.1), properties.absolute-expiry-time
    (§3.2.4), arrival and `message_ttl`. All in milliseconds, times since the epoch.
    """
    expires: i64 = 0
    if message.ttl >= 0:
        expires = arrived + message.ttl
        if expires == 0:
            expires = 1
    if message_ttl > 0 and (expires == 0 or arrived + message_ttl < expires):
        expires = arrived + message_ttl
    if message.special:
        properties = facts_of(message).properties
        if properties is not None:
            absolute = properties.absolute_expiry_time
            if absolute is not None:
                time: i64 = absolute
                if time <= 0:
                    time = 1
                if expires == 0 or time < expires:
                    expires = time
    return expires


@final
class Expiry(Timed):
    """The entries of one queue that expire, the next one first. A run is known by its place and by
    the earliest of its deadlines."""

    __slots__ = ("_lifecycle", "_timers", "_heap", "_live", "_passed", "_runs")

    def __init__(self, lifecycle: Lifecycle, timers: Timers) -> None:
        super().__init__()
        self._lifecycle = lifecycle
        self._timers = timers
        self._heap: list[tuple[int, int, Entry]] = []
        # How many in the heap are still in the queue.
        self._live: i64 = 0
        # The last one that was taken out of the heap was due then.
        self._passed: tuple[int, int] = (0, 0)
        # The places of runs that are in the heap as they are now.
        self._runs: set[Entry] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry) -> None:
        """The entry is in the queue and has a time to expire at."""
        heap = self._heap
        heappush(heap, (entry.expires, entry.sequence, entry))
        self._live += 1
        if heap[0][2] is entry:
            self._timers.set(self, entry.expires)

    def forget(self, entry: Entry) -> None:
        """The entry has left the queue."""
        if (entry.expires, entry.sequence) <= self._passed:
            return
        self._live -= 1
        self._compact()

    def add_run(self, place: Entry, earliest: i64) -> None:
        """Messages of a run expire, the first of them at `earliest` or later."""
        if place in self._runs and place.expires <= earliest:
            return
        if place not in self._runs:
            self._runs.add(place)
            self._live += 1
        place.expires = earliest
        heap = self._heap
        heappush(heap, (earliest, place.sequence, place))
        if heap[0][2] is place:
            self._timers.set(self, earliest)

    def forget_run(self, place: Entry) -> None:
        """The run is no more."""
        if place in self._runs:
            self._runs.remove(place)
            self._live -= 1
            self._compact()

    def _compact(self) -> None:
        heap = self._heap
        if len(heap) > 2 * self._live + _SLACK:
            self._heap = [item for item in heap if item[2].state != REMOVED]
            heapify(self._heap)
            if not self._heap:
                self._timers.cancel(self)

    def on_time(self, now: i64) -> None:
        """Let expire what is due and waits."""
        lifecycle = self._lifecycle
        left: i64 = _BATCH
        while self._heap and left > 0:
            expires, sequence, entry = self._heap[0]
            if expires > now:
                break
            heappop(self._heap)
            if entry.state == RUN:
                if entry in self._runs and i64(entry.expires) == i64(expires):
                    self._runs.remove(entry)
                    self._live -= 1
                    lifecycle.release_due(entry)
            elif entry.state != REMOVED:
                self._live -= 1
                self._passed = (expires, sequence)
                if entry.state == AVAILABLE:
                    left -= 1
                    lifecycle.expired(entry)
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
        self._live = 0
        self._runs = set()
