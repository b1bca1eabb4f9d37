"""Locks of messages: the policy `lock-duration` of a queue.

A message that is sent unsettled to a consumer is locked: the consumer holds it for a time. The
delivery-tag is the token of the lock. A lock ends with the outcome of the message, given on the
link or by token. Without an outcome it lapses at its deadline: the message returns to its place,
which counts as a failed delivery. A lock outlives its link: another consumer, which only stands in
for the link, holds the message then.

The lock of a message in a session has no deadline of its own: the message is locked as long as its
session, and comes back when the owner of the session loses the session or leaves.

One timer serves all locks of a queue. Locks of one duration lapse in the order in which they begin
or are renewed, so they are in a list, the first due first; a queue whose duration has changed has a
list for each duration that is still in use. Locks that are due already have a list of their own, in
any order.
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

# The size of a token in bytes, and of the random bytes that are read at once.
TOKEN: Final = 16
_RANDOM: Final = 256 * TOKEN
# How many locks lapse in one pass; the others lapse in the next pass.
_BATCH: Final = 1_000


class LockWatcher:
    """The interface of a watcher that takes back messages whose locks have lapsed."""

    __slots__ = ()

    def on_lapsed(self, holder: Consumer, entry: Entry) -> None:
        """Take back the message, which the consumer held."""


@final
class MessageLock:
    """The lock of one message that `holder` holds. `deadline` is when it lapses, by `Agenda.now`; 0
    in a session, whose lock is that of its messages.

    `entry` is None once the lock is over. While the lock is `enlisted`, a transaction decides on
    the message, and the lock does not lapse. `list` is the list that the lock is in, between
    `before` and `after`.
    """

    __slots__ = (
        "token",
        "entry",
        "holder",
        "deadline",
        "enlisted",
        "list",
        "before",
        "after",
        "_locks",
    )

    def __init__(
        self, locks: MessageLocks, token: bytes, entry: Entry, holder: Consumer, deadline: i64
    ) -> None:
        self.token: bytes = token
        self.entry: Entry | None = entry
        self.holder: Consumer = holder
        self.deadline: i64 = deadline
        self.enlisted: bool = False
        self.list: LockList | None = None
        self.before: MessageLock | None = None
        self.after: MessageLock | None = None
        self._locks = locks

    def held(self) -> Entry | None:
        """Return the entry if the lock still holds; None if the lock is lost. A lock whose deadline
        has passed lapses now."""
        if self.entry is not None and self._locks.is_due(self):
            self._locks.lapse(self)
        return self.entry

    def release(self) -> None:
        """End the lock, because the message has its outcome."""
        self._locks.release(self)

    def outlives_link(self) -> bool:
        """Return whether the message stays locked when the link of its consumer ends."""
        return self.deadline != 0

    def enlist(self) -> None:
        """Note that a transaction decides on the message."""
        self.enlisted = True

    def delist(self) -> None:
        """Note that no transaction decides on the message any more. A lock whose deadline has
        passed meanwhile lapses at the next run of the timers."""
        if self.enlisted:
            self.enlisted = False
            if self.entry is not None and self.deadline != 0:
                self._locks.watch(self)


@final
class LockList:
    """Locks that last for the same `duration`, the first due first."""

    __slots__ = ("duration", "first", "last")

    def __init__(self, duration: i64) -> None:
        self.duration: i64 = duration
        self.first: MessageLock | None = None
        self.last: MessageLock | None = None

    def append(self, lock: MessageLock) -> None:
        """Add a lock, which lapses after all others."""
        last = self.last
        lock.list = self
        lock.before = last
        if last is None:
            self.first = lock
        else:
            last.after = lock
        self.last = lock

    def remove(self, lock: MessageLock) -> None:
        """Remove a lock."""
        before, after = lock.before, lock.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        lock.list = lock.before = lock.after = None


@final
class MessageLocks(Timer):
    """The locks of the queue `node`, by their tokens. `duration` is how long a lock holds, in
    milliseconds. `lost` counts the locks that have lapsed since the broker was started."""

    __slots__ = (
        "node",
        "duration",
        "lost",
        "_watcher",
        "_agenda",
        "_timers",
        "_by_token",
        "_list",
        "_others",
        "_overdue",
        "_random",
        "_used",
    )

    def __init__(self, node: Node, watcher: LockWatcher) -> None:
        super().__init__()
        self.node: Node = node
        self.duration: i64 = 0
        self.lost: i64 = 0
        self._watcher = watcher
        self._agenda: Agenda = node.agenda
        self._timers: TimerHeap = node.space.timers
        self._by_token: dict[bytes, MessageLock] = {}
        # The locks of the present duration, those of earlier ones, and those that a transaction has
        # kept beyond their deadlines.
        self._list: LockList = LockList(0)
        self._others: list[LockList] = []
        self._overdue: LockList = LockList(0)
        # Random bytes for tokens, and how many of them have been used.
        self._random: bytes = b""
        self._used: i64 = 0

    def __len__(self) -> int:
        return len(self._by_token)

    def lock(self, holder: Consumer, entry: Entry) -> MessageLock:
        """Lock the message, which the consumer is about to be sent."""
        used = self._used
        if used >= len(self._random):
            self._random = urandom(_RANDOM)
            used = 0
        self._used = used + TOKEN
        token = self._random[used : used + TOKEN]
        deadline = self._agenda.now + self.duration if entry.session is None else 0
        lock = MessageLock(self, token, entry, holder, deadline)
        entry.lock = lock
        self._by_token[token] = lock
        if deadline != 0:
            self.watch(lock)
        return lock

    def find(self, token: bytes) -> MessageLock | None:
        """Return the lock with this token; None if there is none, or if it is lost."""
        lock = self._by_token.get(token)
        return None if lock is None or lock.held() is None else lock

    def renew(self, lock: MessageLock) -> i64:
        """Extend the lock to the whole duration from now on; return its deadline. The lock must
        have a deadline already."""
        deadline = self._agenda.now + self.duration
        if deadline != lock.deadline:
            lock.deadline = deadline
            if lock.list is not None:
                lock.list.remove(lock)
            self.watch(lock)
        return deadline

    def is_due(self, lock: MessageLock) -> bool:
        """Return whether the deadline of the lock has passed and no transaction decides on it."""
        return lock.deadline != 0 and lock.deadline <= self._agenda.now and not lock.enlisted

    def watch(self, lock: MessageLock) -> None:
        """Schedule the end of the lock at its deadline."""
        if lock.list is not None:
            return
        locks = self._list
        if lock.deadline <= self._agenda.now:
            locks = self._overdue
        elif locks.duration != self.duration:
            if locks.first is not None:
                self._others.append(locks)
            locks = LockList(self.duration)
            self._list = locks
        locks.append(lock)
        # The timer need not move for a lock that lapses later; it sets itself again.
        if self.due == 0 or lock.deadline < self.due:
            self._timers.set(self, lock.deadline)

    def release(self, lock: MessageLock) -> None:
        """End the lock."""
        entry = lock.entry
        if entry is None:
            return
        lock.entry = None
        entry.lock = None
        self._by_token.pop(lock.token, None)
        if lock.list is not None:
            lock.list.remove(lock)

    def lapse(self, lock: MessageLock) -> None:
        """End the lock, because its deadline has passed, and return the message."""
        entry = lock.entry
        if entry is None:
            return
        self.release(lock)
        self.lost += 1
        self._watcher.on_lapsed(lock.holder, entry)

    def on_time(self, now: i64) -> None:
        """End the locks that are due."""
        slices = self._agenda.slices
        left: i64 = _BATCH
        due: i64 = 0
        if self._others:
            self._others = [locks for locks in self._others if locks.first is not None]
        for locks in [self._overdue, self._list, *self._others]:
            lock = locks.first
            while lock is not None and lock.deadline <= now and left > 0:
                if lock.enlisted:
                    # It is watched again after the discharge of its transaction.
                    locks.remove(lock)
                else:
                    self.lapse(lock)
                    left -= 1
                    if slices.is_spent():
                        # Dead letters take longer.
                        left = 0
                lock = locks.first
            if lock is not None and (due == 0 or lock.deadline < due):
                due = lock.deadline
        if due != 0:
            self._timers.set(self, due)

    # -- the end of the queue --------------------------------------------------------------

    def stop(self) -> None:
        """Stop the timer of the locks, because the queue is deleted."""
        self._timers.cancel(self)

    def give_up(self, slices: Slices) -> MessageLock | None:
        """Return a lock on which no transaction decides, and end it; None if there is none, or if
        the slice is spent."""
        while self._by_token and not slices.is_spent():
            _, lock = self._by_token.popitem()
            slices.spend(MESSAGE)
            if not lock.enlisted:
                return lock
        return None
