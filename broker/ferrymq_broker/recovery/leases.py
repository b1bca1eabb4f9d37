"""Recovery of the leases of queues from the store."""

from __future__ import annotations

from typing import Final, final

from ferrymq_broker.broker import Broker
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.entry import REMOVED, Entry
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.queues.lease import LAPSED, read_ranges
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.recovery.recovered_state import Fields, RecoveredState
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.map_values import decode_map
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import LEASE

_LOST: Final = BrokerMessage(b"", 0, 0)


@final
class StoredLease:
    """A lease as its record has it: its fields, and the ranges of `sequences` of its messages."""

    __slots__ = ("record", "fields", "sequences")

    def __init__(self, record: int, fields: Fields) -> None:
        """Read the record of this number. Raises `StoreDamaged`."""
        ranges = fields.map.get("ranges")
        if not isinstance(ranges, bytes) or len(ranges) % 16:
            raise fields.wrong("ranges")
        if not 0 <= fields.number("fate") <= LAPSED:
            raise fields.wrong("fate")
        self.record = record
        self.fields = fields
        self.sequences: list[int] = []
        for first, last in read_ranges(ranges):
            self.sequences += range(first, last + 1)


def find_leases(
    broker: Broker, store: Store, found: RecoveredState
) -> dict[Queue, list[StoredLease]]:
    """Return the stored leases of all queues. Raises `StoreDamaged`."""
    leases: dict[Queue, list[StoredLease]] = {}
    gone: set[int] = set()
    for record in store.scan(LEASE):
        queue = found.queues.get(record.id)
        if queue is not None:
            fields = Fields(f"lease {record.number} of queue {record.id}", decode_map(record.value))
            leases.setdefault(queue, []).append(StoredLease(record.number, fields))
        elif record.id not in found.aside:
            gone.add(record.id)
    for id in gone:
        log.warning("leases of a queue that is gone are dropped", queue=id)
        broker.agenda.changes.has_id(id)
        broker.agenda.changes.drop_range(LEASE, id, 0, LAST)
    return leases


def restore_leases(queue: Queue, stored: list[StoredLease], held: dict[int, Entry]) -> None:
    """Restore the leases of a queue. Their messages are among the `held` entries, by sequence."""
    leases = queue.use_leases()
    for one in stored:
        fields = one.fields
        lease = leases.restore(
            one.record,
            fields.text("holder"),
            fields.number("number"),
            fields.number("date"),
            fields.number("duration"),
            fields.number("fate"),
        )
        for sequence in one.sequences:
            entry = held.pop(sequence, None)
            if entry is None:
                # The message was not stored. Others keep their positions in the lease.
                entry = Entry(_LOST, sequence)
                entry.state = REMOVED
            lease.add(entry)
        leases.restored(lease)
