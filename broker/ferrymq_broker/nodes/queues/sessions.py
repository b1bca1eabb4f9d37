"""Sessions: messages of one group-id (AMQP 1.0 §3.2.4) that one consumer at a time owns, with a
state of their own.

A queue with sessions has no cursors for its consumers: each session has its available messages in a
heap, in their order, and the queue offers them to the owner of the session only. A link gets a
session in steps:

- `claim` takes a session for the terms of a link: the one that the link names, or the next free one
  that has messages. Without a free one the attach waits (`ClaimWaiter`), up to its time-out;
- `adopt` gives the session to the consumer of these terms, once the link is answered;
- `release` takes the session back when the consumer has left. Its messages have come back by then.
  If a transaction still holds some of them, the session is free when they are back or settled.

With a lock duration the session is a timer as well: when it is due the lock is lost, and the link
of the owner ends. The messages that the owner held come back, as failed deliveries.

The state of a session is bytes. It has a record if the queue has one. A session without an owner,
messages and state is forgotten.

One module because a session and the sessions of its queue change each other at every step.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.parse import MAX_SESSION
from ferrymq_broker.nodes.entry import AVAILABLE, Entry
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.node import Refusal, no_session
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import SESSION
from ferrymq_broker.timers import Timer
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import ClaimWaiter, Node

LOCKED: Final = "ferrymq:session-locked"
LOCK_LOST: Final = "ferrymq:session-lock-lost"
# The property of the broker's attach that says when the lock ends, unless it is renewed.
LOCKED_UNTIL: Final = "ferrymq:locked-until"

# The largest state of a session, and of all sessions of a queue, in bytes.
MAX_STATE: Final = 256 * 1024
MAX_STATES: Final = 64 * 1024 * 1024
# The most attaches that wait for a session of one queue.
MAX_WAITING: Final = 1000


@final
class QueueSession(Timer):
    """A session. `messages` counts those in the queue, `held` has those that are acquired, and
    `deferred` those that were set aside and that no receiver holds.

    `taken` says whether a link has the session, `owner` is the consumer of that link once it is
    attached, and `link_name` the name of the link. `state` is None if there is none. `changed` is
    when a message came or the state was set, in milliseconds since the epoch. `number` is the
    number of its record, 0 without one. The timer is due when the lock of the owner is lost.
    """

    __slots__ = (
        "id",
        "messages",
        "held",
        "deferred",
        "taken",
        "owner",
        "link_name",
        "state",
        "changed",
        "number",
        "_available",
        "_sessions",
    )

    def __init__(self, id: str, sessions: Sessions) -> None:
        super().__init__()
        self.id: str = id
        self.messages: i64 = 0
        self.held: set[Entry] = set()
        self.deferred: set[Entry] = set()
        self.taken: bool = False
        self.owner: Consumer | None = None
        self.link_name: str = ""
        self.state: bytes | None = None
        self.changed: i64 = 0
        self.number: i64 = 0
        # A heap of the available messages by rank; some of them may have left.
        self._available: list[tuple[int, Entry]] = []
        self._sessions = sessions

    def offer(self, entry: Entry) -> None:
        """Add an available message."""
        heappush(self._available, (int(entry.rank), entry))

    def front(self) -> Entry | None:
        """Return the available message that is delivered next."""
        available = self._available
        while available:
            entry = available[0][1]
            if entry.state == AVAILABLE:
                return entry
            heappop(available)
        return None

    def step(self) -> None:
        """Remove the message of `front`, which was delivered."""
        heappop(self._available)

    def is_free(self) -> bool:
        """Return whether a link may take the session."""
        return not self.taken and not self.held

    def on_time(self, now: i64) -> None:
        """End the link of the owner, because the lock is lost."""
        self._sessions.lose_lock(self)


@final
class Sessions:
    """The sessions of the queue `node`. `lock_duration` is in milliseconds, 0: as long as the link.

    `waiting` has the attaches that wait for a session, the longest waiting first.
    """

    __slots__ = (
        "node",
        "lock_duration",
        "waiting",
        "_sessions",
        "_by_change",
        "_by_owner",
        "_free",
        "_pending",
        "_last_number",
        "_state_bytes",
    )

    def __init__(self, node: Node, lock_duration: i64) -> None:
        self.node: Node = node
        self.lock_duration: i64 = lock_duration
        self.waiting: OrderedDict[ClaimWaiter, None] = OrderedDict()
        self._sessions: dict[str, QueueSession] = {}
        # The sessions in the order of their last change.
        self._by_change: OrderedDict[QueueSession, None] = OrderedDict()
        self._by_owner: dict[int, QueueSession] = {}
        # The free sessions that have messages, the longest free first. Some may have none any more.
        self._free: OrderedDict[QueueSession, None] = OrderedDict()
        # The owned sessions that the next dispatch has to look at.
        self._pending: dict[QueueSession, None] = {}
        self._last_number: i64 = 0
        self._state_bytes: i64 = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def owned(self) -> int:
        """Return the number of sessions that consumers own."""
        return len(self._by_owner)

    def find(self, id: str) -> QueueSession | None:
        """Return the session of an id, None if there is none."""
        return self._sessions.get(id)

    def _get(self, id: str) -> QueueSession:
        session = self._sessions.get(id)
        if session is None:
            session = QueueSession(id, self)
            self._sessions[id] = session
            self._touch(session)
        return session

    def _touch(self, session: QueueSession) -> None:
        session.changed = self.node.agenda.wall
        self._by_change[session] = None
        self._by_change.move_to_end(session)

    def _tidy(self, session: QueueSession) -> None:
        """Forget the session if nothing is left of it."""
        if session.messages == 0 and session.state is None and not session.taken:
            self._free.pop(session, None)
            self._by_change.pop(session, None)
            self._sessions.pop(session.id, None)

    # -- messages ----------------------------------------------------------------------------

    def join(self, entry: Entry) -> None:
        """Add a new message of the queue to its session."""
        id = view_of(entry.message).group_id
        if not id:
            # A stored message of a queue that had no sessions before.
            return
        session = self._get(id)
        session.messages += 1
        entry.session = session
        self._touch(session)
        self._offer(session, entry)

    def acquire(self, session: QueueSession, entry: Entry) -> None:
        """Note that a consumer holds a message of the session."""
        session.held.add(entry)
        session.deferred.discard(entry)

    def give_back(self, session: QueueSession, entry: Entry) -> None:
        """Offer a message of the session again, which a consumer held."""
        session.held.discard(entry)
        self._offer(session, entry)

    def set_aside(self, session: QueueSession, entry: Entry) -> None:
        """Offer a message of the session to nobody, because it was deferred."""
        session.held.discard(entry)
        session.deferred.add(entry)
        if session.is_free():
            self._set_free(session)

    def leave(self, session: QueueSession, entry: Entry) -> None:
        """Count out a message of the session that has left the queue."""
        session.messages -= 1
        session.deferred.discard(entry)
        held = session.held
        if entry in held:
            held.remove(entry)
            if not held and not session.taken:
                self._set_free(session)
        self._tidy(session)

    def _offer(self, session: QueueSession, entry: Entry) -> None:
        session.offer(entry)
        if session.owner is not None:
            self._pending[session] = None
        elif session.is_free():
            self._set_free(session)

    def _set_free(self, session: QueueSession) -> None:
        if session.front() is not None:
            self._free[session] = None
            if self.waiting:
                self.node.touch()

    # -- owners ------------------------------------------------------------------------------

    def claim(self, terms: SourceTerms) -> bool:
        """Take the session that a link with these terms names, or the next free one that has
        messages.

        Return false if there is none now and the link may wait. Raises `BrokerError` if the named
        session is owned, if there is none and the link does not wait, or if too many wait.
        """
        filters = terms.filters
        id = filters.session
        session: QueueSession | None = None
        if id is None:
            session = self._next_free()
            if session is None:
                return self._may_wait(terms)
        else:
            session = self._get(id)
            if not session.is_free():
                raise BrokerError(LOCKED, f"the session {id[:200]!r} has another owner")
        session.taken = True
        session.link_name = terms.link_name
        self._free.pop(session, None)
        terms.session = session.id
        filters.grant_session(session.id)
        self._start_lock(session)
        if session.due != 0:
            terms.granted_properties[LOCKED_UNTIL] = Timestamp(int(self.locked_until(session)))
        return True

    def _next_free(self) -> QueueSession | None:
        free = self._free
        while free:
            session, _ = free.popitem(last=False)
            if session.is_free() and session.front() is not None:
                return session
        return None

    def _may_wait(self, terms: SourceTerms) -> bool:
        if terms.patience <= 0:
            raise no_session()
        if len(self.waiting) >= MAX_WAITING:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{MAX_WAITING} links wait for a session of {self.node.address[:200]!r} already",
            )
        return False

    def unclaim(self, id: str) -> None:
        """Give up a claim: the link was not attached."""
        session = self._sessions.get(id)
        if session is not None and session.owner is None:
            self._let_go(session)

    def adopt(self, consumer: Consumer) -> None:
        """Give the session that was claimed to its consumer."""
        session = self._sessions.get(consumer.session_id)
        if session is not None and session.taken and session.owner is None:
            session.owner = consumer
            self._by_owner[int(consumer.id)] = session
            self._pending[session] = None

    def release(self, consumer: Consumer) -> None:
        """Take the session from a consumer that has left."""
        session = self._by_owner.pop(int(consumer.id), None)
        if session is not None:
            session.owner = None
            self._pending.pop(session, None)
            self._let_go(session)

    def _let_go(self, session: QueueSession) -> None:
        session.taken = False
        session.link_name = ""
        self.node.space.timers.cancel(session)
        if session.is_free():
            self._set_free(session)
        self._tidy(session)

    def wake(self, consumer: Consumer) -> None:
        """Look at the session of a consumer that can take messages."""
        session = self._by_owner.get(int(consumer.id))
        if session is not None:
            self._pending[session] = None

    def count_available(self, consumer: Consumer) -> i64:
        """Return how many messages the consumer can still get."""
        session = self._by_owner.get(int(consumer.id))
        if session is None:
            return 0
        entry = session.front()
        if entry is None or is_kept_from(consumer, entry):
            return 0
        return session.messages - len(session.held) - len(session.deferred)

    def take_pending(self) -> list[QueueSession]:
        """Return the owned sessions that may have something for their owners."""
        pending = list(self._pending)
        self._pending.clear()
        return pending

    def look_again(self, session: QueueSession) -> None:
        """Look at the session in a later dispatch: its next message is not on disk yet."""
        self._pending[session] = None

    # -- locks -------------------------------------------------------------------------------

    def _start_lock(self, session: QueueSession) -> None:
        if self.lock_duration > 0:
            node = self.node
            node.space.timers.set(session, node.agenda.now + self.lock_duration)

    def lose_lock(self, session: QueueSession) -> None:
        """End the link of the owner of a session, whose lock is lost."""
        owner = session.owner
        if owner is None:
            return
        owner.forfeit(
            Error(
                condition=LOCK_LOST,
                description=f"the lock of the session {session.id[:200]!r} was not renewed in time",
            )
        )
        self.node.touch()

    def renew(self, id: str, link_name: str) -> i64:
        """Renew the lock of a session and return the date of its end, 0 for none.

        `link_name` must be that of the owner's link, or empty. Raises `BrokerError` if the session
        has no owner, or another one.
        """
        session = self.expect_owner(id, link_name)
        self._start_lock(session)
        return self.locked_until(session)

    def locked_until(self, session: QueueSession) -> i64:
        """Return the date when the lock of a session ends, 0 if it has no end."""
        return 0 if session.due == 0 else self.node.agenda.date_of(session.due)

    def expect_owner(self, id: str, link_name: str) -> QueueSession:
        """Return the session if it has an owner, on the link of this name if it is not empty.

        Raises `BrokerError` otherwise.
        """
        session = self._sessions.get(id)
        if (
            session is None
            or not session.taken
            or (link_name != "" and session.link_name != link_name)
        ):
            by = f" on the link {link_name[:200]!r}" if link_name else ""
            raise BrokerError(LOCK_LOST, f"the session {id[:200]!r} has no owner{by}")
        return session

    # -- attaches that wait --------------------------------------------------------------------

    def wait(self, waiter: ClaimWaiter, patience: i64) -> None:
        """Add an attach that waits for a free session, up to `patience` milliseconds."""
        self.waiting[waiter] = None
        self.node.space.timers.set(waiter, self.node.agenda.now + patience)

    def stop_waiting(self, waiter: ClaimWaiter) -> None:
        """Remove an attach that waits no more."""
        self.waiting.pop(waiter, None)
        self.node.space.timers.cancel(waiter)

    def serve_waiting(self) -> None:
        """Continue attaches that wait, as long as sessions are free."""
        while self.waiting and self._has_free():
            waiter, _ = self.waiting.popitem(last=False)
            self.node.space.timers.cancel(waiter)
            waiter.proceed()

    def _has_free(self) -> bool:
        free = self._free
        while free:
            session = next(iter(free))
            if session.is_free() and session.front() is not None:
                return True
            del free[session]
        return False

    def refuse_waiting(self, error: BrokerError) -> None:
        """End all attaches that wait: the queue is going away, or disabled."""
        waiting = list(self.waiting)
        self.waiting.clear()
        for waiter in waiting:
            self.node.space.timers.cancel(waiter)
            waiter.fail(error)

    # -- state -------------------------------------------------------------------------------

    def set_state(self, id: str, state: bytes | None, link_name: str = "") -> None:
        """Set the state of a session, or remove it.

        Raises `BrokerError` for a state that is too large, and if `link_name` is not empty and not
        the name of the owner's link.
        """
        if link_name:
            self.expect_owner(id, link_name)
        before = self._sessions.get(id)
        old: i64 = 0
        if before is not None and before.state is not None:
            old = len(before.state)
        elif state is None:
            return
        new: i64 = 0 if state is None else len(state)
        if new > MAX_STATE:
            raise BrokerError(
                "amqp:invalid-field", f"the state of a session has at most {MAX_STATE} bytes"
            )
        if new > old and self._state_bytes - old + new > MAX_STATES:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"the states of the sessions of {self.node.address[:200]!r} have {MAX_STATES} "
                "bytes already",
            )
        session = self._get(id)
        session.state = state
        self._state_bytes += new - old
        self._touch(session)
        self._store(session)
        self._tidy(session)

    def _store(self, session: QueueSession) -> None:
        queue_id = self.node.store_id
        if queue_id == 0:
            return
        changes = self.node.agenda.changes
        if session.state is None:
            if session.number != 0:
                changes.drop(SESSION, queue_id, session.number)
                session.number = 0
            return
        if session.number == 0:
            self._last_number += 1
            session.number = self._last_number
        fields = {"id": session.id, "state": session.state, "changed": int(session.changed)}
        changes.put(SESSION, queue_id, session.number, encode_map(fields))

    def restore_state(self, number: i64, id: str, state: bytes, changed: i64) -> None:
        """Restore the state of a session from the record of this number; the session that changed
        last comes first."""
        session = self._get(id)
        session.state = state
        session.changed = changed
        session.number = number
        self._by_change.move_to_end(session, last=False)
        self._state_bytes += len(state)
        if number > self._last_number:
            self._last_number = number

    def list_changed(self, since: i64, skip: i64, top: i64) -> list[QueueSession]:
        """Return sessions that changed at `since` or later, the last changed first."""
        changed = islice(reversed(self._by_change), int(skip), int(skip + top))
        return [session for session in changed if session.changed >= since]


def is_kept_from(consumer: Consumer, entry: Entry) -> bool:
    """Return whether the consumer must not get the message."""
    excluded = entry.excluded
    return excluded is not None and consumer.is_among(excluded)


def refusal_of(message: BrokerMessage) -> Refusal | None:
    """Return why a queue with sessions does not take the message, None if it takes it."""
    id = view_of(message).group_id
    if not id:
        return Refusal(
            "amqp:not-allowed", "the queue has sessions: a message needs a group-id that names one"
        )
    if len(id) > MAX_SESSION:
        return Refusal(
            "amqp:not-allowed",
            f"the group-id has {len(id)} characters; the id of a session has at most {MAX_SESSION}",
        )
    return None
