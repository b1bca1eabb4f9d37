"""Scheduled delivery: messages that become available later.

Three annotations ask for it, which brokers and clients of AMQP 1.0 use:

- ``x-opt-delivery-time``: the time, in milliseconds since the epoch;
- ``x-opt-delivery-delay``: the delay from now, in milliseconds;
- ``x-opt-scheduled-enqueue-time``: the time, as a timestamp.

If a message has several, the first in this order counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.deadline_heap import DeadlineHeap
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.paging.pager import forget_message
from ferrymq_broker.nodes.queues.persistence import drop_body
from ferrymq_broker.slices import Slices, freed
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle
    from ferrymq_broker.timers import TimerHeap

DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
SCHEDULED_ENQUEUE_TIME: Final = "x-opt-scheduled-enqueue-time"

# The end of the year 9999: a later time is a mistake.
_LATEST: Final = 253_402_300_799_999
# How many messages become available in one pass; the others follow in the next pass.
_BATCH: Final = 1_000
# The number of records of cancelled messages that a heap may always have.
_SLACK: Final = 64
# How many records of the heap are checked for each cancelled message.
_STEP: Final = 4


def delivery_time(message: BrokerMessage, agenda: Agenda) -> i64:
    """Return the deadline (`Agenda`) at which the message becomes available; 0 for at once.

    A delivery time is a date, a delay is a duration. Raises `BrokerError` with `amqp:invalid-field`
    if the value of an annotation is invalid.
    """
    if message.starts_with_body():
        # Of the messages that have to be looked at, most have a ttl and nothing else.
        return 0
    annotations = view_of(message).message_annotations
    date: i64 = 0
    if annotations:
        if DELIVERY_TIME in annotations:
            date = _number(annotations[DELIVERY_TIME], DELIVERY_TIME)
        elif DELIVERY_DELAY in annotations:
            delay = _number(annotations[DELIVERY_DELAY], DELIVERY_DELAY)
            if delay < 0:
                raise BrokerError(
                    "amqp:invalid-field",
                    f"the annotation {DELIVERY_DELAY} is {delay}; it must be at least 0",
                )
            if delay > _LATEST - agenda.wall:
                raise BrokerError(
                    "amqp:invalid-field",
                    f"the annotation {DELIVERY_DELAY} is {delay}: the delivery would be after "
                    "the year 9999",
                )
            return agenda.now + delay if delay > 0 else 0
        elif SCHEDULED_ENQUEUE_TIME in annotations:
            date = _number(annotations[SCHEDULED_ENQUEUE_TIME], SCHEDULED_ENQUEUE_TIME)
    return -date if date > agenda.wall else 0


def _number(value: object, annotation: str) -> i64:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BrokerError(
            "amqp:invalid-field",
            f"the annotation {annotation} is of type {type(value).__name__}; it must be a "
            "number of milliseconds",
        )
    number = int(value)
    if number > _LATEST:
        raise BrokerError(
            "amqp:invalid-field",
            f"the annotation {annotation} is {number}; it must be at most {_LATEST}",
        )
    return number if number >= 0 else -1


@final
class Scheduled:
    """A message that becomes available at the deadline `due`. `sequence` identifies it within the
    queue; `stored` is whether it has a record; `size` is the size of its payload, `pinned` whether
    these bytes count as pinned (`Agenda`)."""

    __slots__ = ("sequence", "due", "message", "size", "stored", "pinned")

    def __init__(self, sequence: i64, due: i64, message: BrokerMessage, size: i64) -> None:
        self.sequence: i64 = sequence
        self.due: i64 = due
        self.message: BrokerMessage = message
        self.size: i64 = size
        self.stored: bool = False
        self.pinned: bool = False


@final
class _Line(Timer):
    """The scheduled messages of one clock, the earliest first: their times and numbers."""

    __slots__ = ("_schedule", "_timers", "_heap")

    def __init__(self, schedule: Schedule, timers: TimerHeap) -> None:
        super().__init__()
        self._schedule = schedule
        self._timers = timers
        self._heap: DeadlineHeap[None] = DeadlineHeap(_SLACK)

    def add(self, due: i64, sequence: i64) -> None:
        """Schedule a message for `due`."""
        heap = self._heap
        heap.push(due, sequence, None)
        first = heap.first()
        if first is not None and first[1] == sequence:
            self._timers.set(self, due)

    def forget(self) -> None:
        """Count a message of this line that was cancelled."""
        heap = self._heap
        known = self._schedule.known
        heap.outdate()
        for _ in range(_STEP):
            record = heap.sweep()
            if record is None:
                break
            if record[1] in known:
                heap.push(record[0], record[1], None)
        if not known:
            self.close()

    def close(self) -> None:
        """Forget everything."""
        # With no timer set, no outdated record may lie before the next message.
        self._heap.clear()
        self._timers.cancel(self)

    def on_time(self, now: i64) -> None:
        """Append the messages that are due to the queue."""
        known = self._schedule.known
        heap = self._heap
        left: i64 = _BATCH
        first = heap.first()
        while first is not None and left > 0 and first[0] <= now:
            heap.pop()
            if self._schedule.come(first[1]):
                left -= 1
            else:
                heap.discount()
            first = heap.first()
        while first is not None and first[1] not in known:
            heap.pop()
            heap.discount()
            first = heap.first()
        if first is not None:
            self._timers.set(self, first[0])


@final
class Schedule:
    """The scheduled messages of one queue: `known` has them by number, `count` is how many there
    are, with `bytes` bytes. `last` is the number of the last one. Delays go by `Agenda.now`,
    delivery times by the wall clock.
    """

    __slots__ = ("known", "count", "bytes", "_lifecycle", "_agenda", "_delays", "_dates", "last")

    def __init__(self, lifecycle: MessageLifecycle) -> None:
        self.known: dict[int, Scheduled] = {}
        self.count: i64 = 0
        self.bytes: i64 = 0
        self._lifecycle = lifecycle
        space = lifecycle.node.space
        self._agenda: Agenda = space.agenda
        self._delays = _Line(self, space.timers)
        self._dates = _Line(self, space.agenda.dates)
        self.last: i64 = 0

    def add(self, message: BrokerMessage, due: i64) -> Scheduled:
        """Keep the message until the deadline `due`."""
        self.last += 1
        scheduled = Scheduled(self.last, due, message, len(message.payload))
        self._enter(scheduled)
        records = self._lifecycle.entries.records
        if records.keeps(message):
            scheduled.stored = True
            records.put_scheduled(scheduled.sequence, due, message)
        return scheduled

    def restore(self, sequence: i64, date: i64, message: BrokerMessage, size: i64) -> None:
        """Keep a stored message that becomes available on a date; its payload, which has this size,
        may be out of memory. A delay never becomes longer than it was."""
        due = -date
        # A message that is out has entries in several queues, and was read for another one.
        delay = delay_of(message) if len(message.payload) == size else -1
        if delay >= 0:
            left = date - self._agenda.wall
            due = self._agenda.now + (left if left < delay else delay)
            if due <= 0:
                due = 1
        scheduled = Scheduled(sequence, due, message, size)
        scheduled.stored = True
        if sequence > self.last:
            self.last = sequence
        self._enter(scheduled)

    def _enter(self, scheduled: Scheduled) -> None:
        message = scheduled.message
        sequence = scheduled.sequence
        due = scheduled.due
        self.known[sequence] = scheduled
        self.count += 1
        self.bytes += scheduled.size
        if message.holders == 0:
            self._agenda.pin(len(message.payload))
            scheduled.pinned = True
        message.holders += 1
        if due > 0:
            self._delays.add(due, sequence)
        else:
            self._dates.add(-due, sequence)

    def cancel(self, sequence: i64) -> bool:
        """Cancel a message; return false if there is none with this number."""
        scheduled = self.known.get(sequence)
        if scheduled is None:
            return False
        self._take(sequence)
        line = self._delays if scheduled.due > 0 else self._dates
        line.forget()
        return True

    def listed(self) -> list[Scheduled]:
        """Return all scheduled messages in the order of delivery by the present clocks."""
        agenda = self._agenda
        dated = [(int(agenda.date_of(one.due)), int(one.sequence)) for one in self.known.values()]
        return [self.known[sequence] for _, sequence in sorted(dated)]

    def is_readable(self, scheduled: Scheduled) -> bool:
        """Return whether the payload of the message, which other queues may have too, is in memory;
        read it if necessary."""
        message = scheduled.message
        size = scheduled.size
        if len(message.payload) == size:
            return True
        return self._lifecycle.entries.page_in_scheduled(message, size)

    def come(self, sequence: i64) -> bool:
        """Append a message whose time has come to the queue; return false if it does not exist."""
        scheduled = self.known.get(sequence)
        if self._lifecycle.node.deleted:
            return False
        if scheduled is None or not self.is_readable(scheduled):
            return False
        self._take(sequence)
        self._lifecycle.enter(scheduled.message)
        return True

    def close(self, slices: Slices) -> bool:
        """Drop messages, as far as the slice allows; return whether all are dropped."""
        known = self.known
        while known:
            if slices.is_spent():
                return False
            last = next(reversed(known))
            cost = freed(known[last].size)
            self._take(last)
            slices.spend(cost)
        self._delays.close()
        self._dates.close()
        return True

    def _take(self, sequence: i64) -> bool:
        scheduled = self.known.pop(sequence, None)
        if scheduled is None:
            return False
        message = scheduled.message
        self.count -= 1
        self.bytes -= scheduled.size
        message.holders -= 1
        agenda = self._agenda
        if scheduled.pinned:
            agenda.pinned -= scheduled.size
        if scheduled.stored:
            self._lifecycle.entries.records.drop_scheduled(sequence)
        if message.holders == 0:
            if len(message.payload) != scheduled.size:
                forget_message(agenda, message, scheduled.size)
                return True
            agenda.held -= scheduled.size
            if message.shared:
                drop_body(agenda, message)
        return True


def delay_of(message: BrokerMessage) -> i64:
    """Return the delay that a message asks for in milliseconds; -1 if it asks for none."""
    annotations = view_of(message).message_annotations
    if DELIVERY_TIME in annotations:
        return -1
    delay = annotations.get(DELIVERY_DELAY)
    if not isinstance(delay, int) or isinstance(delay, bool) or delay < 0:
        return -1
    return int(delay)
