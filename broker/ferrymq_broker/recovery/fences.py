"""Recovery of fences from the store."""

from __future__ import annotations

from ferrymq_broker.broker import Broker
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.fences import Passed
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import FENCE


def recover_fences(broker: Broker, store: Store) -> int:
    """Restore the fences of all virtual hosts and return their number.

    Raises `StoreDamaged` for an invalid record.
    """
    count = 0
    for record in store.scan(FENCE):
        broker.agenda.changes.has_id(record.id)
        fields = decode_map(record.value)
        space = broker.spaces.get(str(fields.get("space")))
        if space is None:
            log.warning(
                "a fence of a virtual host that is not configured is kept aside",
                space=fields.get("space"),
            )
            continue
        sequence, width, time = (fields.get(key) for key in ("sequence", "width", "time"))
        if not (isinstance(sequence, int) and isinstance(width, int) and isinstance(time, int)):
            raise StoreDamaged(f"fence {record.id} has no valid sequence, width or time")
        # Fences of older releases have no target, rows or digest.
        rows, digest = fields.get("rows", 0), fields.get("digest", b"")
        repeated = fields.get("repeated", 0)
        if not (isinstance(rows, int) and isinstance(digest, bytes) and isinstance(repeated, int)):
            raise StoreDamaged(
                f"fence {record.id} has an invalid number of rows or an invalid digest"
            )
        space.fences.restore(
            str(fields.get("group")),
            str(fields.get("member")),
            str(fields.get("target", "")),
            Passed(record.id, sequence, width, time, rows, digest, repeated),
        )
        count += 1
    return count
