"""The leases of a queue: messages that are kept for holders, who read them as often as they like.

A lease has a name: its holder and a number, which grows for each holder. The holder settles the
lease, releases it, or renews it; if it does none of these in time, the lease lapses: its messages
return to their places, and that counts as a failed delivery of each.

A leased message counts as held, as if a consumer had it. It may be on disk only, and stays there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.entry import ACQUIRED, Entry
from ferrymq_broker.nodes.queues.lease import (
    HELD,
    LAPSED,
    LEASE_LOST,
    SETTLED,
    LeaseWatcher,
    QueueLease,
)
from ferrymq_broker.nodes.queues.lease_ending import LeaseEnding
from ferrymq_broker.slices import MESSAGE, Slices
from ferrymq_broker.store.tables import LEASE
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.queues.lease_reader import LeaseReader

# The most leases of a queue.
MOST_LEASES: Final = 1000


@final
class QueueLeases:
    """The leases of the queue `node`. `leased` is the number of messages in them; `lost` counts the
    leases that have lapsed since the broker was started. `readers` are the links that read
    leases."""

    __slots__ = (
        "node",
        "watcher",
        "leased",
        "lost",
        "readers",
        "_held",
        "_ending",
        "_last_record",
        "_rest",
    )

    def __init__(self, node: Node, watcher: LeaseWatcher) -> None:
        self.node: Node = node
        self.watcher: LeaseWatcher = watcher
        self.leased: i64 = 0
        self.lost: i64 = 0
        self.readers: dict[LeaseReader, None] = {}
        self._held: dict[tuple[str, int], QueueLease] = {}
        # Leases that end in slices.
        self._ending: dict[QueueLease, None] = {}
        self._last_record: i64 = 0
        # The leases of the deleted queue.
        self._rest: list[QueueLease] = []

    def __len__(self) -> int:
        return len(self._held)

    def all(self) -> list[QueueLease]:
        """Return the leases that hold, the oldest first."""
        return [lease for lease in list(self._held.values()) if self._holds(lease)]

    def of(self, holder: str) -> list[QueueLease]:
        """Return the leases of a holder that hold, by their numbers."""
        found = [lease for lease in self.all() if lease.holder == holder]
        found.sort(key=_number_of)
        return found

    def find(self, holder: str, number: i64) -> QueueLease | None:
        """Return a lease that holds; None if there is none."""
        lease = self._held.get((holder, int(number)))
        return lease if lease is not None and self._holds(lease) else None

    def _holds(self, lease: QueueLease) -> bool:
        """Return whether the lease holds. A lease whose time is over ends now."""
        if lease.growing or lease.deadline > self.node.agenda.now:
            return True
        self.end_due(lease)
        return False

    # -- the life of a lease -------------------------------------------------------------------

    def begin(self, holder: str, number: i64) -> QueueLease:
        """Return a new lease without messages, which is `growing`. Raises `BrokerError` if the
        holder has a later one, or if there are too many."""
        later = [one.number for one in self.of(holder) if one.number > number]
        if later:
            raise BrokerError(
                "amqp:precondition-failed",
                f"number: the holder has the lease {later[0]} already, and its numbers grow",
            )
        if len(self._held) + len(self._ending) >= MOST_LEASES:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{self.node.address[:200]!r} has {MOST_LEASES} leases already",
            )
        lease = self._new(holder, number, self._last_record + 1)
        self._held[holder, int(number)] = lease
        return lease

    def _new(self, holder: str, number: i64, record: i64) -> QueueLease:
        if record > self._last_record:
            self._last_record = record
        return QueueLease(holder, number, record, self.watcher)

    def grown(self, lease: QueueLease, duration: i64) -> None:
        """Note that a lease has all its messages; it holds for `duration` ms from now on. Without
        messages there is no lease."""
        lease.growing = False
        if not lease.entries:
            del self._held[lease.holder, int(lease.number)]
            return
        self.leased += len(lease.entries)
        self.renew(lease, duration)

    def renew(self, lease: QueueLease, duration: i64) -> None:
        """Renew a lease: it lapses in `duration` ms."""
        lease.duration = duration
        self._watch(lease, self.node.agenda.now + duration)
        self.store(lease)

    def _watch(self, lease: QueueLease, deadline: i64) -> None:
        lease.deadline = deadline
        self.node.space.timers.set(lease, deadline)

    def end_due(self, lease: QueueLease) -> None:
        """End a lease whose time is over: its messages come back as failed deliveries. A restored
        lease that was about to end goes on to do so."""
        if lease.fate == HELD:
            self.lost += 1
            lease.fate = LAPSED
        self.end(lease, lease.fate)

    def end(self, lease: QueueLease, fate: i64) -> LeaseEnding:
        """End a lease: its messages are removed if its fate is `SETTLED`, else they return. Links
        that read it end."""
        node = self.node
        node.space.timers.cancel(lease)
        del self._held[lease.holder, int(lease.number)]
        lease.fate = fate
        error = Error(
            condition=LEASE_LOST, description=f"the lease {lease.number} of the holder has ended"
        )
        for reader in list(self.readers):
            if reader.lease is lease:
                reader.stop(error)
        self._ending[lease] = None
        if fate != SETTLED:
            # Newer messages must not overtake those that return.
            node.pause_dispatch()
        ending = LeaseEnding(self, lease)
        node.agenda.slices.do(ending)
        return ending

    def finish(self, lease: QueueLease) -> None:
        """Forget a lease whose messages have been removed or have returned."""
        node = self.node
        del self._ending[lease]
        if node.store_id != 0:
            node.agenda.changes.drop(LEASE, node.store_id, lease.record)
        if lease.fate != SETTLED:
            node.resume_dispatch()

    # -- the end of the queue ------------------------------------------------------------------

    def stop(self) -> None:
        """Forget all leases: the queue is being deleted."""
        for lease in self._held.values():
            self.node.space.timers.cancel(lease)
        self._rest = [*self._held.values(), *self._ending]
        self._held = {}
        self._ending = {}

    def give_up(self, slices: Slices) -> Entry | None:
        """Return a leased message of the deleted queue, and forget it; None if there is none, or if
        the slice is spent."""
        rest = self._rest
        while rest and not slices.is_spent():
            entries = rest[-1].entries
            if not entries:
                rest.pop()
                continue
            entry = entries.pop()
            slices.spend(MESSAGE)
            if entry.state == ACQUIRED:
                return entry
        return None

    def has_more(self) -> bool:
        """Return whether `give_up` has more to do."""
        return bool(self._rest)

    def consumers(self) -> list[Consumer]:
        """Return the links that read leases, as consumers."""
        return [reader.consumer for reader in self.readers if reader.consumer is not None]

    # -- the store -----------------------------------------------------------------------------

    def store(self, lease: QueueLease) -> None:
        """Store the present state of a lease."""
        node = self.node
        if node.store_id != 0:
            value = lease.encode(node.agenda)
            node.agenda.changes.put(LEASE, node.store_id, lease.record, value)

    def restore(
        self, record: i64, holder: str, number: i64, date: i64, duration: i64, fate: i64
    ) -> QueueLease:
        """Return a lease from its record. The caller adds its messages and then calls
        `restored`."""
        lease = self._new(holder, number, record)
        lease.growing = False
        lease.duration = duration
        lease.fate = fate
        agenda = self.node.agenda
        left = date - agenda.wall
        if fate != HELD or left < 0:
            left = 0
        elif left > duration:
            # The date was taken from a wall clock that was ahead.
            left = duration
        lease.deadline = agenda.now + left
        return lease

    def restored(self, lease: QueueLease) -> None:
        """Continue with a restored lease, which has its messages, for the time that was left. If it
        was about to end, it ends in the first pass. If none of its messages is left, it is gone."""
        if not any(entry.state == ACQUIRED for entry in lease.entries):
            self.node.agenda.changes.drop(LEASE, self.node.store_id, lease.record)
            return
        self.leased += len(lease.entries)
        self._held[lease.holder, int(lease.number)] = lease
        self._watch(lease, lease.deadline)


def _number_of(lease: QueueLease) -> int:
    return int(lease.number)
