"""The life of the messages of one queue, as its policy has it.

The queue keeps messages in order and hands them out; everything that makes one message leave
otherwise than by a consumer, or not come in at all, is decided here.

The queue calls

- `admit` before it appends a message, and `on_appended` after, if the queue is `guarded` or the
  message `special`;
- `on_unlinked` whenever an entry has left, if the queue is `guarded` or the entry `expires`;
- `returned` before an entry becomes available again, under the same condition;
- `on_failed`, `on_rejected` and `expired` as they happen;
- `on_deserted` when its last link is gone.

It offers `append` (which neither admits nor calls `on_appended`), `drop`, `first_available`, its
counts, and `guarded`, which is set here: it says whether every message has to be looked at.

A queue of the plain policy has none of the parts below, and 50 000 of them cost little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.facts import facts_of
from ferrymq_broker.nodes.node import BOUNDLESS, Refusal
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import (
    COUNT,
    DELIVERY_LIMIT,
    EXPIRED,
    MAX_BYTES,
    MAX_LENGTH,
    REJECTED,
    DeadLetters,
)
from ferrymq_broker.nodes.queues.lifecycle.duplicates import Duplicates, identity_of
from ferrymq_broker.nodes.queues.lifecycle.expiry import Expiry, expiry_of
from ferrymq_broker.nodes.queues.lifecycle.idleness import Idleness
from ferrymq_broker.nodes.queues.lifecycle.last_value import LastValues
from ferrymq_broker.nodes.queues.lifecycle.schedule import Schedule, Scheduled, delivery_time

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import Message
    from ferrymq_broker.nodes.policy import QueuePolicy
    from ferrymq_broker.nodes.queues.queue import Queue
    from ferrymq_types.transport import Error

# What `Lifecycle.admit` answers.
APPEND: Final = 0  # let it in
HANDLED: Final = 1  # it has been taken, and is not to be appended (now)
REFUSED: Final = 2  # not taken: `refusal` says why

# What is done about a message too many, as plain numbers.
_REJECT: Final = 0
_DROP_HEAD: Final = 1
_DEAD_LETTER: Final = 2
_BLOCK: Final = 3
_OVERFLOWS: Final[dict[str, int]] = {
    "reject": _REJECT,
    "drop-head": _DROP_HEAD,
    "dead-letter": _DEAD_LETTER,
    "block": _BLOCK,
}
# The size of a message, for a queue that has none to judge by.
_TYPICAL: Final = 1024


@final
class Lifecycle:
    """Of one queue. `refusal` is why the last message was refused.

    Counted since the queue was made: `refusals`, `expirations`, `overflowed` (pushed out),
    `duplicated` (dropped because they had come before), `replaced` (by a newer message of the same
    key).
    """

    __slots__ = (
        "queue",
        "policy",
        "refusal",
        "refusals",
        "expirations",
        "overflowed",
        "duplicated",
        "replaced",
        "_max_length",
        "_max_bytes",
        "_overflow",
        "_expiry",
        "_schedule",
        "_duplicates",
        "_last_values",
        "_idleness",
        "_dead_letters",
    )

    def __init__(self, queue: Queue, policy: QueuePolicy) -> None:
        self.queue = queue
        self.policy = policy
        self.refusal: Refusal | None = None
        self.refusals = 0
        self.expirations = 0
        self.overflowed = 0
        self.duplicated = 0
        self.replaced = 0
        self._max_length: i64 = 0
        self._max_bytes: i64 = 0
        self._overflow: i64 = _REJECT
        self._expiry: Expiry | None = None
        self._schedule: Schedule | None = None
        self._duplicates: Duplicates | None = None
        self._last_values: LastValues | None = None
        self._idleness: Idleness | None = None
        self._dead_letters: DeadLetters | None = None
        self._follow(policy)

    # -- the policy ------------------------------------------------------------------------

    def change_policy(self, policy: QueuePolicy) -> None:
        """The queue has another policy from now on.

        Bounds and limits hold at once; a `message_ttl` and a `last_value_key` for the messages to
        come, those in the queue keep what they have.
        """
        self.policy = policy
        self._follow(policy)
        if self._dead_letters is not None:
            self._dead_letters.forgive()
        self._push_out()

    def _follow(self, policy: QueuePolicy) -> None:
        queue = self.queue
        self._max_length = policy.max_length
        self._max_bytes = policy.max_bytes
        self._overflow = _OVERFLOWS[policy.overflow]
        duplicates = self._duplicates
        if policy.duplicate_window <= 0:
            self._duplicates = None
        elif duplicates is None:
            self._duplicates = Duplicates(policy.duplicate_window, policy.duplicate_limit)
        else:
            duplicates.window = policy.duplicate_window
            duplicates.limit = policy.duplicate_limit
        last_values = self._last_values
        if not policy.last_value_key:
            self._last_values = None
        elif last_values is None or last_values.key != policy.last_value_key:
            self._last_values = LastValues(policy.last_value_key)
        if self._idleness is not None:
            self._idleness.close()
            self._idleness = None
        if policy.auto_delete >= 0:
            self._idleness = Idleness(queue, policy.auto_delete)
        queue.guarded = (
            policy.max_length > 0
            or policy.max_bytes > 0
            or policy.message_ttl > 0
            or policy.duplicate_window > 0
            or policy.auto_delete >= 0
            or bool(policy.last_value_key)
        )

    # -- messages in -----------------------------------------------------------------------

    def admit(self, message: Message) -> i64:
        """Whether the message gets in: one of the three above."""
        now = self.queue.agenda.now
        if self._idleness is not None:
            self._idleness.used(now)
        identity: object = None
        duplicates = self._duplicates
        if duplicates is not None:
            identity = identity_of(message)
            if identity is not None and _is_own_dead_letter(message):
                # It comes round by way of the broker, not because a client was in doubt.
                identity = None
            if identity is not None and duplicates.knows(identity, now):
                self.duplicated += 1
                return HANDLED
        due: i64 = 0
        if message.special:
            try:
                due = delivery_time(message, now)
            except BrokerError as error:
                return self._refuse(Refusal(error.condition, error.description))
        if self._max_length > 0 or self._max_bytes > 0:
            refusal = self._find_room(message, due != 0)
            if refusal is not None:
                return self._refuse(refusal)
        if duplicates is not None and identity is not None:
            duplicates.remember(identity, now)
        if due == 0:
            return APPEND
        schedule = self._schedule
        if schedule is None:
            schedule = Schedule(self, self.queue.space.timers)
            self._schedule = schedule
        schedule.add(message, due)
        return HANDLED

    def _refuse(self, refusal: Refusal) -> i64:
        self.refusal = refusal
        self.refusals += 1
        return REFUSED

    def enter(self, message: Message) -> None:
        """A message that was scheduled comes into the queue."""
        self.on_appended(self.queue.append(message))

    def on_appended(self, entry: Entry) -> None:
        """The message has its place. It may be gone again when this returns."""
        queue = self.queue
        message = entry.message
        now = queue.agenda.now
        expires = expiry_of(message, now, self.policy.message_ttl)
        if expires != 0:
            if expires <= now:
                self.expired(entry)
                return
            entry.expires = expires
            expiry = self._expiry
            if expiry is None:
                expiry = Expiry(self, queue.space.timers)
                self._expiry = expiry
            expiry.add(entry)
        last_values = self._last_values
        if last_values is not None:
            before = last_values.add(entry)
            if before is not None:
                self.replaced += 1
                queue.drop(before)
        if self._max_length > 0 or self._max_bytes > 0:
            self._push_out()

    # -- bounds ----------------------------------------------------------------------------

    def room(self) -> i64:
        """How many more messages get in, for `Node.room`.

        Only a queue that blocks runs out of room. How many messages `max_bytes` have room for is
        estimated by those there are.
        """
        if self._overflow != _BLOCK:
            return BOUNDLESS
        count = self._count()
        result: i64 = BOUNDLESS
        if self._max_length > 0:
            result = self._max_length - count
        if self._max_bytes > 0:
            size = self._size()
            free = self._max_bytes - size
            if free > 0:
                typical = (size + count - 1) // count if count > 0 else _TYPICAL
                free = free // typical
                if free == 0 and count == 0:
                    free = 1
            if free < result:
                result = free
        return result if result > 0 else 0

    def _count(self) -> i64:
        queue = self.queue
        return queue.available + queue.acquired + self.scheduled()

    def _size(self) -> i64:
        schedule = self._schedule
        return self.queue.bytes + (0 if schedule is None else schedule.bytes)

    def _find_room(self, message: Message, scheduled: bool) -> Refusal | None:
        """Why there is no room for the message, now or after others have been pushed out."""
        overflow = self._overflow
        size: i64 = len(message.payload)
        if self._max_bytes > 0 and size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes for a message of {size}")
        if overflow == _BLOCK:
            # The sender had credit, which is a promise.
            return None
        count: i64 = 1
        if overflow != _REJECT:
            if not scheduled:
                return None
            self._push_out_for(count, size)
        elif self._last_values is not None and not scheduled:
            before = self._last_values.waiting(message)
            if before is not None:
                count = 0
                size -= len(before.message.payload)
        if self._max_length > 0 and self._count() + count > self._max_length:
            return self._full(MAX_LENGTH, f"of {self._max_length} messages")
        if self._max_bytes > 0 and self._size() + size > self._max_bytes:
            return self._full(MAX_BYTES, f"of {self._max_bytes} bytes")
        return None

    def _full(self, reason: str, what: str) -> Refusal:
        address = self.queue.address
        return Refusal(
            "amqp:resource-limit-exceeded",
            f"the queue {address[:200]!r} has no room: its limit is {reason} {what}",
            info={"queue": address, "reason": reason},
        )

    def _push_out(self) -> None:
        """Let the oldest messages go until the bounds are kept."""
        if self._overflow == _DROP_HEAD or self._overflow == _DEAD_LETTER:
            self._push_out_for(0, 0)

    def _push_out_for(self, count: i64, size: i64) -> None:
        queue = self.queue
        while True:
            if self._max_length > 0 and self._count() + count > self._max_length:
                reason = MAX_LENGTH
            elif self._max_bytes > 0 and self._size() + size > self._max_bytes:
                reason = MAX_BYTES
            else:
                return
            entry = queue.first_available()
            if entry is None:
                return
            queue.drop(entry)
            self.overflowed += 1
            if self._overflow == _DEAD_LETTER:
                self._bury(entry.message, reason, None)

    # -- messages out ----------------------------------------------------------------------

    def on_unlinked(self, entry: Entry) -> None:
        """The entry has left the queue, for whatever reason."""
        if entry.expires != 0 and self._expiry is not None:
            self._expiry.forget(entry)
        if self._last_values is not None:
            self._last_values.forget(entry)
        if self._idleness is not None:
            self._idleness.reconsider()

    def returned(self, entry: Entry) -> bool:
        """An entry a consumer held is to be available again; True if it is not wanted any more.

        Then the queue unlinks it.
        """
        if entry.expires != 0 and entry.expires <= self.queue.agenda.now:
            self._count_expired(entry)
            return True
        if self._last_values is None:
            return False
        old = self._last_values.is_back(entry)
        if old is None:
            return False
        self.replaced += 1
        if old is entry:
            return True
        self.queue.drop(old)
        return False

    def expired(self, entry: Entry) -> None:
        """The time of an available entry is over: it is dropped from the queue."""
        self.queue.drop(entry)
        self._count_expired(entry)

    def _count_expired(self, entry: Entry) -> None:
        self.expirations += 1
        self._bury(entry.message, EXPIRED, None)

    def on_failed(self, consumer: Consumer, entry: Entry) -> bool:
        """A failed delivery has been counted; True if it was one too many.

        Then the message is on its way elsewhere, and the queue unlinks the entry.
        """
        limit = self.policy.delivery_limit
        if limit <= 0 or entry.failures <= limit:
            return False
        self._bury(entry.message, DELIVERY_LIMIT, None)
        return True

    def on_rejected(self, consumer: Consumer, entry: Entry, error: Error | None) -> None:
        """The consumer found the message invalid; the queue unlinks the entry."""
        self._bury(entry.message, REJECTED, error)

    def _bury(self, message: Message, reason: str, error: Error | None) -> None:
        policy = self.policy
        address = policy.expired if reason == EXPIRED and policy.expired else policy.dead_letter
        dead_letters = self._dead_letters
        if dead_letters is None:
            dead_letters = DeadLetters(self.queue)
            self._dead_letters = dead_letters
        dead_letters.send(message, address, reason, error)

    # -- messages to come ------------------------------------------------------------------

    def scheduled(self) -> i64:
        """How many messages are to come into the queue later."""
        schedule = self._schedule
        return 0 if schedule is None else schedule.count

    def list_scheduled(self) -> list[Scheduled]:
        """The messages that are to come, in the order in which they will."""
        schedule = self._schedule
        return [] if schedule is None else schedule.listed()

    def cancel_scheduled(self, sequence: i64) -> bool:
        """Let a message not come; False if there is none of this number."""
        schedule = self._schedule
        if schedule is None or not schedule.cancel(sequence):
            return False
        if self._idleness is not None:
            self._idleness.reconsider()
        # Senders may wait for the room, and the queue's end for the last message.
        self.queue.touch()
        return True

    # -- the queue -------------------------------------------------------------------------

    def on_deserted(self) -> None:
        """The last link of the queue is gone."""
        if self._idleness is not None:
            self._idleness.used(self.queue.agenda.now)

    def close(self) -> None:
        """The queue is deleted: nothing is due any more."""
        if self._expiry is not None:
            self._expiry.close()
        if self._schedule is not None:
            self._schedule.close()
        if self._idleness is not None:
            self._idleness.close()

    def figures(self) -> dict[str, object]:
        """What has been counted, by its public names, for `Node.describe`."""
        dead_letters = self._dead_letters
        return {
            "scheduled": int(self.scheduled()),
            "refused": self.refusals,
            "expired": self.expirations,
            "overflowed": self.overflowed,
            "duplicates": self.duplicated,
            "replaced": self.replaced,
            "dead-lettered": 0 if dead_letters is None else dead_letters.sent,
            "dropped": 0 if dead_letters is None else dead_letters.dropped,
            "circles": 0 if dead_letters is None else dead_letters.circles,
        }


def _is_own_dead_letter(message: Message) -> bool:
    return message.origin == 0 and COUNT in facts_of(message).message_annotations


def make_lifecycle(queue: Queue, policy: QueuePolicy) -> Lifecycle:
    """The lifecycle of a new queue."""
    return Lifecycle(queue, policy)
