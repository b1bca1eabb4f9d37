"""Recovery of retention holds from the store, before any record is deleted."""

from __future__ import annotations

from ferrymq_broker.broker import Broker
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.streams.holds import RetentionHold
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.recovery.recovered_state import Fields, RecoveredState
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.map_values import decode_map
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import HELD, HOLD


def recover_holds(broker: Broker, store: Store, found: RecoveredState) -> None:
    """Restore the holds of streams that have their partitions. Raises `StoreDamaged`."""
    changes = broker.agenda.changes
    holds: dict[int, tuple[Stream, RetentionHold]] = {}
    for record in store.scan(HOLD):
        changes.has_id(record.id)
        fields = Fields(f"hold {record.id}", decode_map(record.value))
        number = fields.number("stream")
        stream = found.nodes.get(number)
        if isinstance(stream, Stream):
            since = fields.number("since")
            hold = RetentionHold(fields.text("holder"), record.id, since, fields.flag("whole"))
            stream.holds.restore(hold)
            holds[record.id] = (stream, hold)
        elif number not in found.aside:
            log.warning("a hold on a stream that is gone is dropped", hold=record.id)
            changes.drop(HOLD, record.id, 0)
            changes.drop_range(HELD, record.id, 0, LAST)
    for record in store.scan(HELD):
        known = holds.get(record.id)
        if known is not None:
            fields = Fields(f"hold {record.id}", decode_map(record.value))
            # Records of earlier versions do not have the offset where the hold began.
            begun = fields.number("begun") if "begun" in fields.map else 0
            offset = fields.number("offset")
            known[0].holds.restore_offset(known[1], record.number, offset, begun)
