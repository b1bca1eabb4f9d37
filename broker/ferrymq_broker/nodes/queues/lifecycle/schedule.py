"""Messages that are to be in the queue later, and when a message says so.

Three annotations ask for it, all in use by brokers and clients of AMQP 1.0:

- ``x-opt-delivery-time``: when, in milliseconds since the epoch;
- ``x-opt-delivery-delay``: in how many milliseconds from now;
- ``x-opt-scheduled-enqueue-time``: when, a timestamp.

Of several the first in this order counts.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.facts import facts_of
from ferrymq_broker.nodes.paging.pager import forget_message, page_in_scheduled
from ferrymq_broker.nodes.queues.storing import drop_body, drop_scheduled, put_scheduled
from ferrymq_broker.timers import Timed

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import Message
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import Lifecycle
    from ferrymq_broker.timers import Timers

DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
SCHEDULED_ENQUEUE_TIME: Final = "x-opt-scheduled-enqueue-time"

# The end of the year 9999: what lies behind it is a mistake, not a plan.
_LATEST: Final = 253_402_300_799_999
# How many come up in one pass; the others are due a millisecond later.
_BATCH: Final = 10_000
_SLACK: Final = 64


def delivery_time(message: Message, now: i64) -> i64:
    """When the message is to be in the queue, milliseconds since the epoch; 0 for at once.

    Raises `BrokerError` with `amqp:invalid-field` if an annotation says so but not when.
    """
    annotations = facts_of(message).message_annotations
    due: i64 = 0
    if annotations:
        if DELIVERY_TIME in annotations:
            due = _number(annotations[DELIVERY_TIME], DELIVERY_TIME)
        elif DELIVERY_DELAY in annotations:
            delay = _number(annotations[DELIVERY_DELAY], DELIVERY_DELAY)
            if delay < 0:
                raise BrokerError(
                    "amqp:invalid-field", f"{DELIVERY_DELAY} is {delay}; it is at least 0"
                )
            due = now + delay
        elif SCHEDULED_ENQUEUE_TIME in annotations:
            due = _number(annotations[SCHEDULED_ENQUEUE_TIME], SCHEDULED_ENQUEUE_TIME)
    return due if due > now else 0


def _number(value: object, annotation: str) -> i64:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BrokerError(
            "amqp:invalid-field",
            f"{annotation} is a {type(value).__name__}; it is a number of milliseconds",
        )
    number = int(value)
    if number > _LATEST:
        raise BrokerError(
            "amqp:invalid-field", f"{annotation} is {number}; it is at most {_LATEST}"
        )
    return number if number >= 0 else -1


@final
class Scheduled:
    """A message that is to be in its queue at `due`. `sequence` names it within the queue; `stored`
    is whether it has a record, `size` that of its payload."""

    __slots__ = ("sequence", "due", "message", "size", "stored")

    def __init__(self, sequence: i64, due: i64, message: Message, size: i64) -> None:
        self.sequence: i64 = sequence
        self.due: i64 = due
        self.message = message
        self.size = size
        self.stored = False


@final
class Schedule(Timed):
    """The messages that one queue is to have later: `count` of them with `bytes` bytes."""

    __slots__ = ("count", "bytes", "_lifecycle", "_timers", "_heap", "_known", "_last")

    def __init__(self, lifecycle: Lifecycle, timers: Timers) -> None:
        super().__init__()
        self.count: i64 = 0
        self.bytes: i64 = 0
        self._lifecycle = lifecycle
        self._timers = timers
        self._heap: list[tuple[int, int]] = []
        self._known: dict[int, Scheduled] = {}
        self._last: i64 = 0

    def add(self, message: Message, due: i64) -> Scheduled:
        """Keep the message until `due`."""
        self._last += 1
        size: i64 = len(message.payload)
        scheduled = Scheduled(self._last, due, message, size)
        self._known[self._last] = scheduled
        heap = self._heap
        heappush(heap, (due, self._last))
        self.count += 1
        self.bytes += len(message.payload)
        self._hold(message)
        queue = self._lifecycle.queue
        if queue.keeps(message):
            scheduled.stored = True
            put_scheduled(queue, scheduled)
        if heap[0][1] == self._last:
            self._timers.set(self, due)
        return scheduled

    def restore(self, sequence: i64, due: i64, message: Message, size: i64) -> None:
        """Keep a message that was stored; its payload, which has this size, may be out of
        memory."""
        scheduled = Scheduled(sequence, due, message, size)
        scheduled.stored = True
        self._known[sequence] = scheduled
        if sequence > self._last:
            self._last = sequence
        heap = self._heap
        heappush(heap, (due, sequence))
        self.count += 1
        self.bytes += size
        self._hold(message)
        if heap[0][1] == sequence:
            self._timers.set(self, due)

    def cancel(self, sequence: i64) -> bool:
        """Let it not come; False if there is none of this number."""
        if not self._take(sequence):
            return False
        if len(self._heap) > 2 * self.count + _SLACK:
            self._heap = [item for item in self._heap if item[1] in self._known]
            heapify(self._heap)
        if self.count == 0:
            # With no timer set, nothing may lie before the next to come.
            self._heap = []
            self._timers.cancel(self)
        return True

    def listed(self) -> list[Scheduled]:
        """All of them, in the order in which they will come."""
        return sorted(self._known.values(), key=_order)

    def is_readable(self, scheduled: Scheduled) -> bool:
        """Whether the message, which may be in other queues as well and out of memory, is here."""
        message = scheduled.message
        size = scheduled.size
        if len(message.payload) == size:
            return True
        return page_in_scheduled(self._lifecycle.queue, message, size)

    def on_time(self, now: i64) -> None:
        """Let into the queue what is due."""
        left: i64 = _BATCH
        while self._heap and left > 0 and self._heap[0][0] <= now:
            sequence = heappop(self._heap)[1]
            scheduled = self._known.get(sequence)
            if scheduled is not None and self.is_readable(scheduled):
                self._take(sequence)
                left -= 1
                self._lifecycle.enter(scheduled.message)
        heap = self._heap
        while heap and heap[0][1] not in self._known:
            heappop(heap)
        if heap:
            due: i64 = heap[0][0]
            self._timers.set(self, due if due > now else now + 1)

    def close(self) -> None:
        """Drop everything."""
        self._timers.cancel(self)
        for sequence in list(self._known):
            self._take(sequence)
        self._heap = []

    def _take(self, sequence: i64) -> bool:
        scheduled = self._known.pop(sequence, None)
        if scheduled is None:
            return False
        message = scheduled.message
        self.count -= 1
        self.bytes -= scheduled.size
        message.holders -= 1
        queue = self._lifecycle.queue
        if scheduled.stored:
            drop_scheduled(queue, sequence)
        if message.holders == 0:
            if len(message.payload) != scheduled.size:
                forget_message(queue.agenda, message, scheduled.size)
                return True
            queue.agenda.held -= scheduled.size
            if message.shared:
                drop_body(queue.agenda, message)
        return True

    def _hold(self, message: Message) -> None:
        if message.holders == 0:
            self._lifecycle.queue.agenda.held += len(message.payload)
        message.holders += 1


def _order(scheduled: Scheduled) -> tuple[int, int]:
    return scheduled.due, scheduled.sequence
