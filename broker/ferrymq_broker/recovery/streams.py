"""Recovery of the records of streams from the store."""

from __future__ import annotations

from ferrymq_broker.broker import Broker
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.streams.partition import StreamPartition
from ferrymq_broker.nodes.streams.stored import decode_partition
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.recovery.holds import recover_holds
from ferrymq_broker.recovery.read_ahead import ReadAhead
from ferrymq_broker.recovery.recovered_state import RecoveredState
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import PARTITION, RECORD


def recover_streams(
    broker: Broker, store: Store, found: RecoveredState, reading: ReadAhead
) -> None:
    """Restore the partitions of all streams, with their records. Raises `StoreDamaged`."""
    changes = broker.agenda.changes
    partitions: dict[int, StreamPartition] = {}
    aside: set[int] = set()
    for record in store.scan(PARTITION):
        changes.has_id(record.id)
        fields = decode_partition(record.value)
        stream = found.nodes.get(fields.stream)
        if isinstance(stream, Stream):
            partitions[record.id] = stream.restore_partition(record.id, fields)
            continue
        aside.add(record.id)
        if fields.stream not in found.aside:
            log.warning("records of a stream that is gone are dropped", partition=record.id)
            changes.drop(PARTITION, record.id, 0)
            changes.drop_range(RECORD, record.id, 0, LAST)
    recover_holds(broker, store, found)
    partition: StreamPartition | None = None
    last = -1
    for record in store.scan(RECORD):
        reading.add(len(record.value))
        if record.id != last:
            last = record.id
            partition = partitions.get(last)
            if partition is None and last not in aside:
                log.warning("records of a stream that is gone are dropped", partition=last)
                changes.has_id(last)
                changes.drop_range(RECORD, last, 0, LAST)
        if partition is not None:
            partition.restore_record(record.number, record.value)
    for node in found.nodes.values():
        if isinstance(node, Stream):
            node.restored()
