"""The queue: first in, first out within a priority; each message goes to one consumer; browsers
only read.

A queue is composed of parts that own their state and know no queue:

- `QueueEntries`: the entries by levels of priority, their counts and records;
- `ConsumerRegistry`: consumers, browsers and views. Each consumer belongs to a *view*, one for each
  distinct filter, and in it to a *tier*, one for each priority of consumers. A view has a cursor in
  every level; an entry behind a cursor has been taken, does not pass the filter, or waits in a
  heap:

- `FilterView.returned`: entries that came back: released, modified, or held by a lost link. They
  are offered first: a message comes back to the place it was published at;
- `Consumer.own`: entries that not every consumer of the view may get;
- `FilterView.aside`: the same, for consumers that are still to come;

- `MessageLifecycle`: limits, expiry, dead letters and the like;
- `Dispatcher`: ready consumers take turns, message by message. A consumer that returns IDLE is not
  ready until it wakes the queue.

The queue itself is the node that links see: it forwards calls to its parts, counts outcomes, and
tells its parts what other parts do (`docs/decisions/0020-queues-of-parts.md`).

One module because it is one class: the methods that links and management call, most of them one
call of a part.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import fields
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.chunks import BYTES, CHUNKS, RECORDS
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.chunk_terms import chunk_of
from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.disabling import (
    evict_consumers,
    evict_producers,
    receiving_disabled,
    sending_disabled,
)
from ferrymq_broker.nodes.entry import DEFERRED, Entry
from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
from ferrymq_broker.nodes.node import PERMANENT, ClaimWaiter, Node, Refusal, Space
from ferrymq_broker.nodes.queues.consumer_registry import ConsumerRegistry
from ferrymq_broker.nodes.queues.dispatcher import Dispatcher
from ferrymq_broker.nodes.queues.entries import EntryWatcher, QueueEntries
from ferrymq_broker.nodes.queues.groups import Groups
from ferrymq_broker.nodes.queues.lease import LEASE_LOST, LeaseWatcher, QueueLease
from ferrymq_broker.nodes.queues.lease_chunks import LeaseChunkReader
from ferrymq_broker.nodes.queues.lease_reader import LeaseReader
from ferrymq_broker.nodes.queues.lease_terms import LEASE_PROPERTY, LeaseTerms
from ferrymq_broker.nodes.queues.leases import QueueLeases
from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle
from ferrymq_broker.nodes.queues.locks import LockWatcher, MessageLock, MessageLocks
from ferrymq_broker.nodes.queues.move import move, move_entry
from ferrymq_broker.nodes.queues.purge import Purge
from ferrymq_broker.nodes.queues.restore import QueueRestore
from ferrymq_broker.nodes.queues.selection import MessageSelection, select
from ferrymq_broker.nodes.queues.sessions import QueueSession, Sessions
from ferrymq_broker.nodes.queues.sub_queues import (
    OWNED,
    expect_free_sub_queues,
    sub_queue_address,
    sub_queue_policy,
)
from ferrymq_broker.slices import Slices
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Symbol, UInt, ULong

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_types.transport import Error


@final
class _Watcher(EntryWatcher):
    """The watcher that tells a queue which entries have left it."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def on_unlinked(self, entry: Entry) -> None:
        """Tell the queue of an entry that has left."""
        self._queue.on_unlinked(entry)

    def on_run_dropped(self) -> None:
        """Tell the queue of messages of a run that have left."""
        self._queue.on_run_dropped()


@final
class _LockWatcher(LockWatcher):
    """The watcher that gives a queue back the messages whose locks have lapsed."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def on_lapsed(self, holder: Consumer, entry: Entry) -> None:
        """Return the message to the queue."""
        self._queue.on_lapsed(holder, entry)


@final
class _LeaseWatcher(LeaseWatcher):
    """The watcher that removes leased messages from a queue, or gives them back to it."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def on_due(self, lease: QueueLease) -> None:
        """End the lease, whose time is over."""
        leases = self._queue.leases
        if leases is not None:
            leases.end_due(lease)

    def on_settled(self, entry: Entry) -> None:
        """Remove the message from the queue."""
        self._queue.settle_leased(entry)

    def on_returned(self, entry: Entry, failed: bool) -> None:
        """Return the message to the queue."""
        self._queue.return_leased(entry, failed)


@final
class Queue(Node):
    """A queue. `released`, `modified` and `rejected` count the outcomes of deliveries since the
    broker was started. `locks` are the locks of messages; None until the policy wants them.
    `leases` are the leases; None until there is one.
    `sub_queues` are the queues that belong to this one, by name; None without any. `owner_queue` is
    the queue that this one belongs to. `locked_to` is the number of the connection that alone may
    consume, 0 without one."""

    __slots__ = (
        "policy",
        "locks",
        "leases",
        "sub_queues",
        "owner_queue",
        "locked_to",
        "entries",
        "registry",
        "lifecycle",
        "dispatcher",
        "released",
        "modified",
        "rejected",
        "_accepted",
        "_rest",
    )

    def __init__(
        self, address: str, space: Space, policy: QueuePolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy: QueuePolicy = policy
        self.locks: MessageLocks | None = None
        self.leases: QueueLeases | None = None
        self.sub_queues: dict[str, Queue] | None = None
        self.owner_queue: Queue | None = None
        self.locked_to: i64 = 0
        self.may_wait = True
        self.released: i64 = 0
        self.modified: i64 = 0
        self.rejected: i64 = 0
        # Deliveries that were sent unsettled; `Dispatcher.settled` counts the others.
        self._accepted: i64 = 0
        # The purge of the deleted queue.
        self._rest: Purge | None = None
        entries = QueueEntries(self, policy.persist, _Watcher(self))
        self.entries: QueueEntries = entries
        self._read_policy()
        self.registry: ConsumerRegistry = ConsumerRegistry(self, entries, policy)
        self.lifecycle: MessageLifecycle = MessageLifecycle(self, entries, policy)
        self.dispatcher: Dispatcher = Dispatcher(self, entries, self.registry, self.lifecycle)
        entries.row_watcher = self.lifecycle
        self.reconsider()

    def __repr__(self) -> str:
        return f"<queue {self.address!r} {self.entries.available}+{self.entries.acquired}>"

    @property
    def kind(self) -> str:
        """``queue``."""
        return "queue"

    def _read_policy(self) -> None:
        policy = self.policy
        entries = self.entries
        entries.use_levels(policy.priorities)
        entries.records.persist = policy.persist
        if policy.groups and entries.groups is None:
            entries.groups = Groups()
        if self.locks_messages():
            if self.locks is None:
                self.locks = MessageLocks(self, _LockWatcher(self))
            self.locks.duration = policy.lock_duration
        if policy.deferral:
            entries.use_deferral()
        if policy.sessions:
            if entries.sessions is None:
                entries.sessions = Sessions(self, policy.lock_duration)
            entries.sessions.lock_duration = policy.lock_duration

    def reconsider(self) -> None:
        """Find out which optional work is needed at present."""
        self.entries.tell_watcher(self.lifecycle.guarded or self.lifetime != PERMANENT)

    def change_policy(self, policy: QueuePolicy) -> None:
        """Use another policy from now on. Messages keep their places. Raises `BrokerError` if the
        address of a new sub-queue is taken."""
        expect_free_sub_queues(self.space, self.address, policy, self.sub_queues)
        before = self.policy
        self.policy = policy
        self._read_policy()
        self.lifecycle.change_policy(policy)
        self.registry.change_policy(policy)
        locks = self.locks if self.locks_messages() else None
        for consumer in self.registry.consumers:
            consumer.use_locks(locks)
        self.reconsider()
        self.touch()
        self._follow_sub_queues()
        if policy.send_disabled and not before.send_disabled:
            evict_producers(self)
        if policy.receive_disabled and not before.receive_disabled:
            if self.entries.sessions is not None:
                self.entries.sessions.refuse_waiting(receiving_disabled(self))
            evict_consumers(self)

    # -- sub-queues --------------------------------------------------------------------

    def make_sub_queues(self) -> None:
        """Make the sub-queues of the policy that do not exist yet. The queue is in its space, and
        stored if it ever will be."""
        for name in self.policy.sub_queues:
            if self.sub_queues is None or name not in self.sub_queues:
                sub_queue = self.build_sub_queue(name)
                if self.store_id != 0:
                    self.space.keep_owned(sub_queue)
                self.space.insert_owned(sub_queue)

    def build_sub_queue(self, name: str) -> Queue:
        """Build one sub-queue, without adding it to the space."""
        policy = sub_queue_policy(self.policy)
        sub_queue = Queue(sub_queue_address(self.address, name), self.space, policy)
        sub_queue.owner_queue = self
        sub_queue.origin = OWNED
        if self.sub_queues is None:
            self.sub_queues = {}
        self.sub_queues[name] = sub_queue
        return sub_queue

    def _follow_sub_queues(self) -> None:
        """Give the sub-queues the settings of the policy; remove those that it does not name."""
        sub_queues = self.sub_queues
        if sub_queues is not None:
            policy = sub_queue_policy(self.policy)
            for name, sub_queue in list(sub_queues.items()):
                if name not in self.policy.sub_queues:
                    self.space.remove(sub_queue)
                elif sub_queue.policy != policy:
                    sub_queue.change_policy(policy)
                    self.space.changed(sub_queue)
        if self.owner_queue is None and not self.deleted and self.policy.sub_queues:
            self.make_sub_queues()

    def forget_sub_queue(self, sub_queue: Queue) -> None:
        """Note that a sub-queue is deleted."""
        if self.sub_queues is not None:
            self.sub_queues = {
                name: queue for name, queue in self.sub_queues.items() if queue is not sub_queue
            }

    def sub_queue(self, name: str) -> Node | None:
        """See `Node.sub_queue`."""
        return None if self.sub_queues is None else self.sub_queues.get(name)

    def target(self, part: str) -> Node:
        """Return the queue. Raises `BrokerError` if there is a part, or for a sub-queue: only the
        broker publishes to it."""
        if self.owner_queue is not None and not part:
            raise BrokerError(
                "amqp:not-allowed",
                f"{self.address[:200]!r} belongs to {self.owner_queue.address[:200]!r}; clients "
                "cannot send to it",
            )
        return super().target(part)

    def open_target(self, terms: TargetTerms) -> Node:
        """Accept a producer. Raises `BrokerError` if senders are not allowed."""
        node = self.target(terms.part)
        if self.policy.send_disabled:
            raise sending_disabled(self)
        return node

    def open_source(self, terms: SourceTerms) -> Node:
        """Accept a consumer or a browser. Raises `BrokerError` if no further consumer is
        allowed."""
        super().target(terms.part)
        self.expect_unlocked(terms.party.connection)
        if self.policy.receive_disabled:
            raise receiving_disabled(self)
        wanted = terms.properties.get(LEASE_PROPERTY)
        if wanted is not None:
            return self._read_lease(terms, LeaseTerms(wanted))
        self.registry.grant(terms)
        return self

    def _read_lease(self, terms: SourceTerms, wanted: LeaseTerms) -> LeaseReader:
        """Return a reader of a lease for a link. Raises `BrokerError`."""
        leases = self.leases
        lease = None if leases is None else leases.find(wanted.holder, wanted.number)
        if leases is None or lease is None or lease.growing:
            raise BrokerError(
                LEASE_LOST,
                f"{wanted.holder[:200]!r} has no lease {wanted.number} on {self.address[:200]!r}",
            )
        most = chunk_of(terms.properties, terms.max_message_size)
        granted = terms.granted_properties
        reader: LeaseReader
        if most is None:
            reader = LeaseReader(leases, self.entries, lease, wanted)
        else:
            reader = LeaseChunkReader(leases, self.entries, lease, wanted, most)
            granted[CHUNKS] = {Symbol(BYTES): ULong(most[0]), Symbol(RECORDS): UInt(most[1])}
        granted[LEASE_PROPERTY] = {
            Symbol("first"): ULong(int(reader.at)),
            Symbol("until"): ULong(int(reader.until)),
        }
        terms.filters.decline_position()
        terms.granted_mode = "copy"
        terms.browses = True
        return reader

    def lock_to(self, connection: i64) -> None:
        """Make the queue exclusive to a connection: only this one may consume, and the queue is
        deleted when it ends."""
        self.locked_to = connection
        self.space.awaiting.setdefault(int(connection), {})[self] = None

    def expect_unlocked(self, connection: i64) -> None:
        """Raise `BrokerError` (``amqp:resource-locked``) if the queue is locked to another
        connection."""
        if self.locked_to not in (0, connection):
            raise BrokerError(
                "amqp:resource-locked",
                f"{self.address[:200]!r} is exclusive to another connection, and ends with it",
            )

    def party_gone(self, number: i64) -> None:
        """Delete the queue: the connection that it is locked to has ended."""
        if number == self.locked_to and not self.deleted:
            self.space.remove(self)

    def claim(self, terms: SourceTerms) -> bool:
        """Take a session for a consumer of a queue with sessions; return false if it has to wait
        for one. Raises `BrokerError`."""
        sessions = self.entries.sessions
        if sessions is None or terms.browses:
            return True
        self.registry.check_consumer_limit(terms)
        return sessions.claim(terms)

    def unclaim(self, terms: SourceTerms) -> None:
        """Give up the session that `claim` took."""
        sessions = self.entries.sessions
        if sessions is not None:
            sessions.unclaim(terms.session)

    def await_claim(self, waiter: ClaimWaiter, terms: SourceTerms) -> None:
        """Tell the waiter when a session is free, or when its time is over."""
        sessions = self.entries.sessions
        if sessions is not None:
            sessions.wait(waiter, terms.patience)

    def stop_waiting(self, waiter: ClaimWaiter) -> None:
        """Tell the waiter nothing any more."""
        sessions = self.entries.sessions
        if sessions is not None:
            sessions.stop_waiting(waiter)

    # -- messages in -------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Append the message, unless the lifecycle refuses it."""
        if self.lifecycle.guarded or message.special:
            return self.lifecycle.publish(message)
        self.entries.append(message)
        return None

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Keep room for a message that comes later."""
        return self.lifecycle.reserve(message, holders)

    def unreserve(self, message: BrokerMessage) -> None:
        """Give up the room that was kept for a message."""
        self.lifecycle.unreserve(message)

    def keeps(self, message: BrokerMessage) -> bool:
        """See `Node.keeps`."""
        return self.entries.records.keeps(message) or self.lifecycle.keeps_elsewhere(message)

    def seal(self) -> None:
        """Note that the messages so far are in the next batch."""
        self.entries.records.seal(self.entries.published)

    def stabilise(self, number: i64) -> None:
        """Release the entries of a batch that is on disk now to consumers."""
        self.entries.records.stabilise(number)
        self.touch()

    # -- outcomes ----------------------------------------------------------------------

    def remove(self, consumer: Consumer, entry: Entry) -> None:
        """Remove a message that the consumer has accepted."""
        consumer.unhold(entry)
        self._accepted += 1
        if entry.lock is not None:
            self._unlock(consumer, entry)
        self.entries.remove(entry)

    def reject(self, consumer: Consumer, entry: Entry, error: Error | None) -> None:
        """Remove a message that the consumer found invalid (AMQP 1.0 §3.4.3)."""
        consumer.unhold(entry)
        self.rejected += 1
        if entry.lock is not None:
            self._unlock(consumer, entry)
        self.lifecycle.on_rejected(entry, error)
        self.entries.remove(entry)

    def give_back(self, consumer: Consumer, entry: Entry, failed: bool, elsewhere: bool) -> None:
        """Return the message that the consumer holds to its place.

        `failed` counts the delivery as a failed one; `elsewhere` keeps the message from this
        consumer from now on (AMQP 1.0 §3.4.4–5).
        """
        if entry.lock is not None:
            self._unlock(consumer, entry)
        if failed or elsewhere:
            self.modified += 1
        else:
            self.released += 1
        self._take_back(consumer, entry, failed, elsewhere)

    def _unlock(self, holder: Consumer, entry: Entry) -> None:
        """End the lock of a message that has its outcome."""
        locks = self.locks
        if locks is not None:
            locks.release(holder, entry)

    def on_lapsed(self, holder: Consumer, entry: Entry) -> None:
        """Return a message whose lock has lapsed; that counts as a failed delivery."""
        self._take_back(holder, entry, True, False)

    def _take_back(self, consumer: Consumer, entry: Entry, failed: bool, elsewhere: bool) -> None:
        consumer.unhold(entry)
        entries = self.entries
        changed = failed
        if elsewhere and (entry.deferred or self.policy.deferral):
            changed = changed or not entry.deferred
            entry.deferred = True
        elif elsewhere:
            self.registry.exclude(consumer.known_as, entry)
        gone = False
        if failed:
            entry.failures += 1
            gone = self.lifecycle.on_failed(entry)
        if changed and not gone:
            entries.records.put_state(entry)
        self._return(entry, gone)

    def _return(self, entry: Entry, gone: bool) -> None:
        """Make an entry available again that was held; if it is `gone`, or its time is over, remove
        it."""
        entries = self.entries
        if not gone and (self.lifecycle.guarded or entry.expires != 0):
            gone = self.lifecycle.returned(entry)
        if gone:
            entries.remove(entry)
            return
        if entry.deferred:
            entries.defer(entry)
        else:
            entries.give_back(entry)
            self.registry.offer_again(entry)
        self.registry.settle_group(entry)
        self.touch()

    # -- leases ------------------------------------------------------------------------

    def use_leases(self) -> QueueLeases:
        """Return the leases; from now on there may be some."""
        leases = self.leases
        if leases is None:
            leases = QueueLeases(self, _LeaseWatcher(self))
            self.leases = leases
        return leases

    def fill_lease(self, lease: QueueLease, messages: i64, size: i64, turns: i64) -> bool:
        """Add available messages to a lease, at most `turns` now; return whether there is no more
        for it: it has that many `messages`, another one would be more than `size` bytes, or the
        queue has none."""
        entries = self.entries
        view = self.registry.plain
        while turns > 0:
            turns -= 1
            entry = view.front(entries.records.stable)
            if entry is None or len(lease.entries) >= messages:
                return True
            if entry.expires != 0 and self.agenda.left(entry.expires) <= 0:
                self.lifecycle.expired(entry)
                continue
            if lease.entries and lease.bytes + i64(entry.size) > size:
                return True
            view.step(entry)
            entries.acquire(entry)
            lease.add(entry)
            self.dispatcher.delivered += 1
        return False

    def settle_leased(self, entry: Entry) -> None:
        """Remove a message whose lease was settled."""
        self._accepted += 1
        self.entries.remove(entry)

    def return_leased(self, entry: Entry, failed: bool) -> None:
        """Return a message whose lease was released, or has lapsed (`failed`)."""
        gone = False
        if failed:
            self.modified += 1
            entry.failures += 1
            gone = self.lifecycle.on_failed(entry)
            if not gone:
                self.entries.records.put_state(entry)
        else:
            self.released += 1
        self._return(entry, gone)

    def receive_deferred(self, entry: Entry, settled: bool) -> MessageLock | None:
        """Take a deferred message that waits: remove it if `settled`, otherwise lock it and return
        the lock. The owner of its session holds it, if it has one. Without locks only `settled` is
        possible."""
        entries = self.entries
        receiver = entries.use_deferral().receiver
        session = entry.session
        if session is not None and session.owner is not None:
            receiver = session.owner
        entries.acquire_deferred(entry)
        self.dispatcher.delivered += 1
        if settled or self.locks is None:
            self._accepted += 1
            entries.remove(entry)
            return None
        lock = self.locks.lock(receiver, entry)
        receiver.hold(entry)
        return lock

    def hand_over(self, entry: Entry, before: Consumer, after: Consumer) -> None:
        """See `Node.hand_over`. If the consumer of the message's group leaves, the group waits for
        the message."""
        super().hand_over(entry, before, after)
        if entry.lock is not None and self.locks is not None:
            self.locks.hand_over(entry, before, after)
        group = entry.group
        groups = self.entries.groups
        if group is None or groups is None:
            return
        if group.consumer is before:
            group.leave_behind(entry)
        elif group.left is not None and entry in group.left:
            # The link is attached again.
            if group.consumer is None:
                groups.give(group, after)
            self.registry.settle_group(entry)

    def decided(self, consumer: Consumer, entry: Entry) -> None:
        """See `Node.decided`."""
        super().decided(consumer, entry)
        if consumer.locks is not None:
            consumer.locks.decided(entry)

    def locks_messages(self) -> bool:
        """See `Node.locks_messages`. In a queue with sessions, the lock of a session is that of
        its messages."""
        return self.policy.lock_duration > 0 or self.policy.sessions

    def locked_until(self, entry: Entry) -> i64:
        """Return the date when the lock of a message lapses, or that of its session; 0 for none."""
        if entry.lock is None:
            return 0
        if entry.lock_deadline != 0:
            return self.agenda.date_of(entry.lock_deadline)
        session = entry.session
        sessions = self.entries.sessions
        return 0 if session is None or sessions is None else sessions.locked_until(session)

    def message_of(self, entry: Entry) -> BrokerMessage | None:
        """See `Node.message_of`."""
        return None if entry.is_out() and not self.entries.page_in(entry) else entry.message

    def pause_dispatch(self) -> None:
        """See `Node.pause_dispatch`."""
        self.dispatcher.pause()

    def resume_dispatch(self) -> None:
        """See `Node.resume_dispatch`."""
        if self.dispatcher.resume():
            self.touch()

    def amend(self, entry: Entry, message: BrokerMessage) -> None:
        """Give the entry another form of its message (AMQP 1.0 §3.4.5)."""
        self.entries.amend(entry, message)

    def on_unlinked(self, entry: Entry) -> None:
        """Tell the parts of an entry that has left, as far as they need to know."""
        self.registry.leave_group(entry)
        if self.lifecycle.guarded or entry.expires != 0:
            self.lifecycle.on_unlinked(entry)
        dying = self.lifetime != PERMANENT and self.message_count() == 0
        if self.waiting_for_room or self.dispatcher.draining or dying:
            self.touch()

    def on_run_dropped(self) -> None:
        """Tell the lifecycle that messages of a run have left."""
        self.lifecycle.on_dropped()
        if self.waiting_for_room or self.lifetime != PERMANENT:
            self.touch()

    # -- consumers ---------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer or a browser."""
        if self.locks_messages():
            consumer.use_locks(self.locks)
        self.registry.add(consumer)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer that has given back the messages that it held."""
        if self.locks is not None:
            self.locks.leave(consumer)
        self.dispatcher.draining.pop(consumer, None)
        self.registry.remove(consumer)
        if self.registry.takers == 0 and not self.deleted:
            self.lifecycle.on_unconsumed()

    def wake(self, consumer: Consumer) -> None:
        """Offer messages to the consumer: it has credit, or its transport takes bytes again."""
        if not consumer.ready:
            consumer.ready = True
            tier = consumer.tier
            if tier is not None:
                tier.admit(consumer)
        sessions = self.entries.sessions
        if sessions is not None:
            sessions.wake(consumer)
        if not self.dirty:
            self.touch()

    def count_available(self, consumer: Consumer) -> i64:
        """See `Node.count_available`."""
        return self.registry.count_available(consumer)

    def want_drained(self, consumer: Consumer) -> None:
        """Tell the consumer when there is no more for it (AMQP 1.0 §2.6.7)."""
        self.dispatcher.draining[consumer] = None
        self.touch()

    def dispatch(self) -> None:
        """Offer messages until there are no more, or no consumers that can take them."""
        if self.deleted or not self.dispatcher.dispatch():
            return
        if self.waiting_for_room:
            self.grant_room()
        if self.lifetime != PERMANENT and self.entries.published > 0 and self.message_count() == 0:
            self.reconsider_life()

    # -- the end -----------------------------------------------------------------------

    def purge(self) -> Purge:
        """Begin to drop every message that no consumer holds."""
        purge = Purge(self.entries, self.registry.views)
        self.agenda.slices.do(purge)
        return purge

    def drop(self, entry: Entry) -> None:
        """Remove an available entry, wherever it is in its list."""
        self.entries.drop(entry)

    def delete(self, error: Error) -> None:
        """End every link with `error` and drop every message."""
        if self.locked_to != 0:
            self.space.awaiting.get(int(self.locked_to), {}).pop(self, None)
        if self.sub_queues is not None:
            for sub_queue in list(self.sub_queues.values()):
                self.space.remove(sub_queue)
        if self.owner_queue is not None:
            self.owner_queue.forget_sub_queue(self)
        self.entries.records.drop_all()
        self.lifecycle.stop()
        self.dispatcher.continuation.cancel()
        if self.leases is not None:
            self.leases.stop()
        if self.entries.sessions is not None:
            reason = BrokerError(str(error.condition), error.description or "")
            self.entries.sessions.refuse_waiting(reason)
        super().delete(error)

    def consumers_of(self) -> list[Consumer]:
        """Return consumers, browsers and readers of leases."""
        found = list(self.registry.consumers)
        if self.leases is not None:
            found += self.leases.consumers()
        return found

    def drop_rest(self, slices: Slices) -> bool:
        """Drop the messages of the queue, which is deleted; return whether all are dropped."""
        if self._rest is None:
            if self.locks is not None and not self._give_up(self.locks, slices):
                return False
            if self.leases is not None and not self._give_up_leases(self.leases, slices):
                return False
            self._rest = Purge(self.entries, self.registry.views, True)
        return self._rest.go_on(slices) and self.lifecycle.close(slices)

    def _give_up(self, locks: MessageLocks, slices: Slices) -> bool:
        """Make the messages available whose locks have outlived their links; return whether all
        are."""
        lock = locks.give_up(slices)
        while lock is not None:
            lock.holder.unhold(lock.entry)
            locks.release(lock.holder, lock.entry)
            self.entries.give_back(lock.entry)
            lock = locks.give_up(slices)
        return not locks.has_more()

    def _give_up_leases(self, leases: QueueLeases, slices: Slices) -> bool:
        """Make the leased messages available; return whether all are."""
        entry = leases.give_up(slices)
        while entry is not None:
            self.entries.give_back(entry)
            entry = leases.give_up(slices)
        return not leases.has_more()

    def link_closed(self) -> None:
        """Count a link that is gone."""
        super().link_closed()
        if self.links == 0 and not self.deleted:
            self.lifecycle.on_deserted()

    # -- the store ---------------------------------------------------------------------

    def describe_stored(self) -> dict[str, object]:
        """Return the stored fields of the queue beside its policy."""
        policy_history = self.lifecycle.policy_history
        return {} if policy_history is None else policy_history.fields()

    def restore(self, id: i64, fields: dict[str, object]) -> None:
        """Restore the queue that was stored with this id and these fields of `describe_stored`;
        this queue must be new. Raises `StoreDamaged`."""
        self.agenda.changes.has_id(id)
        self.store_id = id
        if "unkeyed" in fields or "ttls" in fields:
            self.entries.count_from(self.lifecycle.restore_policy_history(fields))

    def restorer(self) -> QueueRestore:
        """Return the object that restores the entries of the queue, after `restore`."""
        return QueueRestore(self.entries, self.lifecycle, self.registry.plain)

    # -- information -------------------------------------------------------------------------

    @property
    def available(self) -> i64:
        """Return the number of messages that can be delivered."""
        return self.entries.available

    @property
    def acquired(self) -> i64:
        """Return the number of messages that consumers hold."""
        return self.entries.acquired

    @property
    def bytes(self) -> i64:
        """Return the size in bytes of the payloads of all messages."""
        return self.entries.bytes

    @property
    def published(self) -> i64:
        """Return the sequence of the last message."""
        return self.entries.published

    @property
    def accepted(self) -> i64:
        """Return how many deliveries ended as accepted, including those that were sent settled."""
        return self._accepted + self.dispatcher.settled

    @property
    def consumers(self) -> dict[Consumer, None]:
        """Return consumers and browsers."""
        return self.registry.consumers

    def consumer_count(self) -> i64:
        """Return the number of consumers, without browsers."""
        return self.registry.takers

    def message_count(self) -> i64:
        """Return the number of available, held and scheduled messages."""
        entries = self.entries
        deferred = entries.deferred
        count = entries.available + entries.acquired + self.lifecycle.scheduled()
        return count if deferred is None else count + deferred.count

    def room(self) -> i64:
        """Return how many more messages fit by the length limit."""
        return self.lifecycle.room()

    def describe(self) -> dict[str, object]:
        """Return settings and figures by their public names."""
        described: dict[str, object] = {"name": self.address, "type": self.kind}
        policy = self.policy
        for setting in fields(policy):
            value = getattr(policy, setting.name)
            described[setting.name.replace("_", "-")] = (
                list(value) if isinstance(value, tuple) else value
            )
        described["owner"] = "" if self.owner_queue is None else self.owner_queue.address
        described.update(self.figures())
        return described

    def figures(self) -> dict[str, int]:
        """Return the counters by their public names."""
        entries = self.entries
        paging = entries.paging
        sessions = entries.sessions
        figures: dict[str, int] = {
            "messages": int(self.message_count()),
            "available": int(entries.available),
            "acquired": int(entries.acquired),
            "bytes": int(entries.bytes),
            "paged-out": 0 if paging is None else int(paging.count),
            "consumers": len(self.registry.consumers),
            "producers": len(self.producers),
            "scheduled": int(self.lifecycle.scheduled()),
            "deferred": 0 if entries.deferred is None else int(entries.deferred.count),
            "locked": 0 if self.locks is None else int(self.locks.count),
            "leased": 0 if self.leases is None else int(self.leases.leased),
            "leases": 0 if self.leases is None else len(self.leases),
            "excess": int(self.lifecycle.excess()),
            "excess-bytes": int(self.lifecycle.excess_bytes()),
            "filter-evaluations": int(self.registry.evaluations()),
            "session-count": 0 if sessions is None else len(sessions),
            "sessions-owned": 0 if sessions is None else sessions.owned(),
        }
        figures.update(self.totals())
        return figures

    def totals(self) -> dict[str, int]:
        """Return the counters since the broker was started, by their public names."""
        totals: dict[str, int] = {
            "published": int(self.entries.published - self.entries.recovered),
            "delivered": int(self.dispatcher.delivered),
            "accepted": int(self.accepted),
            "released": int(self.released),
            "modified": int(self.modified),
            "rejected": int(self.rejected),
            "declined": int(self.dispatcher.declined),
            "locks-lost": 0 if self.locks is None else int(self.locks.lost),
            "leases-lost": 0 if self.leases is None else int(self.leases.lost),
        }
        totals.update(self.lifecycle.totals())
        return totals

    # -- management ----------------------------------------------------------------------

    def peek(
        self, count: int, from_sequence: i64 = 0, session: QueueSession | None = None
    ) -> list[Entry]:
        """Return up to `count` messages in the order of delivery, including held ones.

        Messages with a sequence below `from_sequence`, and with a session those of others, are left
        out. Nothing changes.
        """
        return self.entries.peek(count, from_sequence, session)

    def select(self, selection: MessageSelection) -> Generator[Entry | None, None, None]:
        """Yield the chosen messages that no consumer holds; see `queues/selection.py`."""
        return select(self.entries, selection)

    def move_entry(self, entry: Entry, target: Node) -> tuple[bool, Refusal | None]:
        """Publish one message again; see `queues/move.py`."""
        return move_entry(self.entries, self.lifecycle, entry, target, True)

    def drop_selected(self, entry: Entry) -> None:
        """Drop an available or deferred message."""
        if entry.state == DEFERRED:
            self.entries.undefer(entry)
        self.entries.drop(entry)

    def move(self, target: Node, count: int) -> Generator[None, None, tuple[int, Refusal | None]]:
        """Publish up to `count` messages that no consumer holds to `target`, in order, and drop
        them here; see `queues/move.py`."""
        return move(self.entries, self.lifecycle, target, count)
