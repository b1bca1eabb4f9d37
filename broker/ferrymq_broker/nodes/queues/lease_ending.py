"""The end of a lease: its messages are removed or return to the queue, in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import ACQUIRED
from ferrymq_broker.nodes.queues.lease import LAPSED, SETTLED, QueueLease
from ferrymq_broker.slices import MESSAGE, SlicedTask, Slices

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.leases import QueueLeases


@final
class LeaseEnding(SlicedTask):
    """The task that removes the messages of a lease or returns them, in slices. `count` is how many
    so far; `over` is whether it is done."""

    __slots__ = ("over", "count", "_leases", "_lease")

    def __init__(self, leases: QueueLeases, lease: QueueLease) -> None:
        super().__init__()
        self.over: bool = False
        self.count: i64 = 0
        self._leases = leases
        self._lease = lease

    def go_on(self, slices: Slices) -> bool:
        """End the lease of as many messages as the slice allows."""
        leases = self._leases
        if leases.node.deleted:
            self.over = True
            return True
        lease = self._lease
        entries = lease.entries
        at: i64 = 0
        while at < len(entries):
            if slices.is_spent():
                # What is done and what is left are stored together.
                lease.entries = entries[at:]
                leases.store(lease)
                return False
            entry = entries[at]
            at += 1
            slices.spend(MESSAGE)
            leases.leased -= 1
            if entry.state != ACQUIRED:
                # Its message cannot be read: it stays in the queue.
                continue
            self.count += 1
            if lease.fate == SETTLED:
                leases.watcher.on_settled(entry)
            else:
                leases.watcher.on_returned(entry, lease.fate == LAPSED)
        lease.entries = []
        leases.finish(lease)
        self.over = True
        return True
