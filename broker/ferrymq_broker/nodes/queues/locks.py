"""Locks of messages: the policy `lock-duration` of a queue.

A message that is sent unsettled to a consumer is locked: the consumer holds it for a time. The
delivery-tag is the token of the lock. A lock ends with the outcome of the message, given on the
link or by token. Without an outcome it lapses at its deadline: the message returns to its place,
which counts as a failed delivery. A lock outlives its link: another consumer, which only stands in
for the link, holds the message then.

The lock of a message in a session has no deadline of its own: the message is locked as long as its
session, and comes back when the owner of the session loses the session or leaves.

A lock needs no object: `Entry.lock_deadline` says when it lapses, and the entries that a consumer
holds are in the order of their deadlines (`Consumer.hold`), so one timer for each consumer serves
all its locks. The tokens of a link begin with a prefix of its own, so a token leads to its link,
which finds the delivery. Only a lock without a delivery is a `MessageLock`, in a dict of its queue:
its link is gone, or the message was received by a request.
"""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.slices import MESSAGE, Slices
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Agenda, Node
    from ferrymq_broker.timers import TimerHeap

# The condition of the answer to an outcome that came after the lock was lost.
LOCK_LOST: Final = "ferrymq:lock-lost"

# The size of a token in bytes, and of the prefix that the tokens of one link share.
TOKEN: Final = 16
_PREFIX: Final = 8
# How many locks of a consumer lapse in one pass; the others lapse in the next pass.
_BATCH: Final = 1_000


class LockWatcher:
    """The interface of a watcher that takes back messages whose locks have lapsed."""

    __slots__ = ()

    def on_lapsed(self, holder: Consumer, entry: Entry) -> None:
        """Take back the message, which the consumer held."""


@final
class LockOver:
    """The context of a delivery whose lock has ended without an outcome on the link."""

    __slots__ = ()


LOCK_OVER: Final = LockOver()


@final
class MessageLock:
    """The lock of one message that `holder` holds, for those who name it by its token."""

    __slots__ = ("token", "entry", "holder")

    def __init__(self, token: bytes, entry: Entry, holder: Consumer) -> None:
        self.token: bytes = token
        self.entry: Entry = entry
        self.holder: Consumer = holder


@final
class ConsumerLocks(Timer):
    """The locks of the messages that `consumer` holds, and their timer. The tokens of its
    deliveries begin with `prefix`."""

    __slots__ = ("consumer", "prefix", "_locks", "_agenda", "_timers")

    def __init__(self, locks: MessageLocks, consumer: Consumer, prefix: bytes) -> None:
        super().__init__()
        self.consumer: Consumer = consumer
        self.prefix: bytes = prefix
        self._locks = locks
        self._agenda: Agenda = locks.node.agenda
        self._timers: TimerHeap = locks.node.space.timers

    def lock(self, entry: Entry) -> None:
        """Lock the message, which the consumer is about to hold."""
        locks = self._locks
        locks.count += 1
        # Until the delivery is known, which takes the place.
        entry.lock = self
        if entry.session is None:
            self._limit(entry, self._agenda.now + locks.duration)

    def _limit(self, entry: Entry, deadline: i64) -> None:
        entry.lock_deadline = deadline
        # The timer need not move for a lock that lapses later; it sets itself again.
        if self.due == 0 or deadline < self.due:
            self._timers.set(self, deadline)

    def take_over(self, entry: Entry) -> None:
        """Watch the lock of a message that the consumer has got from another holder."""
        if entry.lock_deadline != 0:
            self._limit(entry, entry.lock_deadline)

    def renew(self, entry: Entry) -> i64:
        """Extend the lock to the whole duration from now on; return its deadline. The lock must
        have a deadline already."""
        consumer = self.consumer
        consumer.unhold(entry)
        self._limit(entry, self._agenda.now + self._locks.duration)
        consumer.hold(entry)
        return entry.lock_deadline

    def holds(self, entry: Entry) -> bool:
        """Return whether the lock still holds. A lock whose deadline has passed lapses now, unless
        a transaction decides on the message."""
        deadline = entry.lock_deadline
        if deadline == 0 or deadline > self._agenda.now or entry.enlisted:
            return True
        self._locks.lapse(self.consumer, entry)
        return False

    def decided(self, entry: Entry) -> None:
        """Note that no transaction decides on the message any more. A lock whose deadline has
        passed meanwhile lapses at the next run of the timers."""
        deadline = entry.lock_deadline
        if deadline != 0 and deadline <= self._agenda.now:
            # The timer may have passed the entry over.
            self.consumer.unhold(entry)
            self.consumer.hold_first(entry)
            self._limit(entry, deadline)

    def on_time(self, now: i64) -> None:
        """End the locks that are due."""
        if self._locks.node.deleted:
            return
        consumer = self.consumer
        slices = self._agenda.slices
        left: i64 = _BATCH
        entry = consumer.first_due(now)
        while entry is not None and left > 0:
            if entry.enlisted:
                # It is watched again after the discharge of its transaction.
                consumer.pass_over(entry)
            else:
                self._locks.lapse(consumer, entry)
                left -= 1
                if slices.is_spent():
                    # Dead letters take longer.
                    left = 0
            entry = consumer.first_due(now)
        due = consumer.next_lock_deadline()
        if due != 0:
            self._timers.set(self, due)

    def stop(self) -> None:
        """Stop the timer: the consumer has left the queue, and holds nothing."""
        self._timers.cancel(self)


@final
class MessageLocks:
    """The locks of the queue `node`. `duration` is how long a lock holds, in milliseconds. `count`
    is the number of locked messages; `lost` counts the locks that have lapsed since the broker was
    started."""

    __slots__ = ("node", "duration", "count", "lost", "_watcher", "_by_prefix", "_by_token")

    def __init__(self, node: Node, watcher: LockWatcher) -> None:
        self.node: Node = node
        self.duration: i64 = 0
        self.count: i64 = 0
        self.lost: i64 = 0
        self._watcher = watcher
        # The locks of consumers with links, and those without a delivery.
        self._by_prefix: dict[bytes, ConsumerLocks] = {}
        self._by_token: dict[bytes, MessageLock] = {}

    def of(self, consumer: Consumer) -> ConsumerLocks:
        """Return the locks of a consumer."""
        locks = consumer.locks
        if locks is None:
            locks = ConsumerLocks(self, consumer, urandom(_PREFIX))
            consumer.locks = locks
        return locks

    def register(self, consumer: Consumer) -> ConsumerLocks:
        """Return the locks of a consumer whose deliveries have the tokens as tags."""
        locks = self.of(consumer)
        self._by_prefix[locks.prefix] = locks
        return locks

    def leave(self, consumer: Consumer) -> None:
        """Forget a consumer that has left the queue."""
        locks = consumer.locks
        if locks is not None:
            self._by_prefix.pop(locks.prefix, None)
            locks.stop()

    def lock(self, holder: Consumer, entry: Entry) -> MessageLock:
        """Lock a message that was received by a request."""
        locks = self.of(holder)
        locks.lock(entry)
        lock = MessageLock(urandom(TOKEN), entry, holder)
        entry.lock = lock
        self._by_token[lock.token] = lock
        return lock

    def hand_over(self, entry: Entry, before: Consumer, after: Consumer) -> None:
        """Note that another consumer holds the message, after the link of the first one has
        ended."""
        lock = entry.lock
        if isinstance(lock, MessageLock):
            lock.holder = after
        elif lock is not None:
            lock = MessageLock(before.token_of(entry), entry, after)
            entry.lock = lock
            self._by_token[lock.token] = lock
        else:
            return
        self.of(after).take_over(entry)

    def find(self, token: bytes) -> MessageLock | None:
        """Return the lock with this token; None if there is none, or if it is lost."""
        lock = self._by_token.get(token)
        if lock is None:
            locks = self._by_prefix.get(token[:_PREFIX])
            entry = None if locks is None else locks.consumer.find_locked(token)
            if locks is None or entry is None:
                return None
            lock = MessageLock(token, entry, locks.consumer)
        return lock if self.of(lock.holder).holds(lock.entry) else None

    def release(self, holder: Consumer, entry: Entry) -> None:
        """End the lock of a message, which has its outcome."""
        lock = entry.lock
        if isinstance(lock, MessageLock):
            self._by_token.pop(lock.token, None)
        else:
            holder.on_unlocked(entry)
        entry.lock = None
        entry.lock_deadline = 0
        self.count -= 1

    def lapse(self, holder: Consumer, entry: Entry) -> None:
        """End a lock whose deadline has passed, and return the message."""
        self.release(holder, entry)
        self.lost += 1
        self._watcher.on_lapsed(holder, entry)

    # -- the end of the queue --------------------------------------------------------------

    def give_up(self, slices: Slices) -> MessageLock | None:
        """Return a lock without a link on which no transaction decides, and forget it; None if
        there is none, or if the slice is spent."""
        while self._by_token and not slices.is_spent():
            _, lock = self._by_token.popitem()
            slices.spend(MESSAGE)
            if not lock.entry.enlisted:
                return lock
        return None

    def has_more(self) -> bool:
        """Return whether `give_up` has more to do."""
        return bool(self._by_token)
