"""A check that the records of an import have owners: an entry its queue, a record its partition.

A broker skips records without an owner, so an export without the lines of its nodes would lose
messages silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ferrymq_broker.nodes.queues.persistence import body_id, read_head
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.records import Brief, Part, Records
from ferrymq_broker.store.tables import (
    BINDING,
    BODY,
    DELIVERY,
    ENTRY,
    NAMES,
    NODE,
    PARTITION,
    RECORD,
    RULE,
    SCHEDULED,
    SUBSCRIPTION,
    TERMINUS,
)

# Tables whose records belong to the record with the same id in another table.
_OWNERS: Final = {
    SUBSCRIPTION: NODE,
    BINDING: NODE,
    ENTRY: NODE,
    SCHEDULED: NODE,
    RULE: NODE,
    RECORD: PARTITION,
    DELIVERY: TERMINUS,
}


class _Heads(Brief):
    """A brief that asks for the whole value if it names a body, else only for the beginning."""

    def __init__(self, table: int) -> None:
        self._queued = table in (ENTRY, SCHEDULED)

    def suffices(self, id: int, head: bytes) -> bool:
        """See `Brief.suffices`."""
        return not (self._queued and read_head(head).shared)


def require_owners(records: Records, above: int) -> None:
    """Raise `StoreError` if a record with an id above `above` has no owner."""
    # The queues of subscriptions have no record of their own.
    queues = {record.number for record in records.scan(SUBSCRIPTION)}
    for table, owner in _OWNERS.items():
        known = -1
        for part in _parts(records, table, above):
            if part.id != known:
                known = part.id
                if not (owner == NODE and known in queues) and (
                    records.get(owner, known, 0) is None
                ):
                    raise StoreError(
                        f"{NAMES[table]} {known}/{part.number} belongs to {NAMES[owner]} "
                        f"{known}, which does not exist"
                    )
            if table in (ENTRY, SCHEDULED) and read_head(part.value).shared:
                body = body_id(part.value)
                if records.get(BODY, body, 0) is None:
                    raise StoreError(
                        f"the message of {NAMES[table]} {known}/{part.number} is {NAMES[BODY]} "
                        f"{body}, which does not exist"
                    )


def _parts(records: Records, table: int, above: int) -> Iterator[Part]:
    return (part for part in records.scan_parts(table, _Heads(table)) if part.id > above)
