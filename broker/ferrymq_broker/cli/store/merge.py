"""Merging the records of one store into another: free ids, and a check for conflicting names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ferrymq_broker.cli.store.json_lines import TABLES
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.tables import (
    ALIAS,
    BINDING,
    DELIVERY,
    FENCE,
    HOLD,
    NODE,
    PARTITION,
    SUBSCRIPTION,
    TERM,
    TERMINUS,
)

# The fields of values that contain ids of other records. Entries contain the id of a body.
_REFERENCES: Final = {
    BINDING: "node",
    PARTITION: "stream",
    HOLD: "stream",
    DELIVERY: "queue",
    TERMINUS: "queue",
}
# The kind of a name, and the values of its fields.
Name = tuple[object, ...]

# The fields that must be unique, by table.
_NAMES: Final = {
    NODE: ("space", "address"),
    ALIAS: ("space", "name"),
    TERMINUS: ("space", "user", "container", "link", "sends"),
    FENCE: ("space", "group", "member", "target"),
}
# The kinds of names. A node and an alias cannot have the same name.
_KINDS: Final = {
    NODE: "node or alias",
    ALIAS: "node or alias",
    TERMINUS: "terminus",
    FENCE: "fence",
}


def moved(fields: dict[str, object], by: int) -> dict[str, object]:
    """Return the fields of a line, with `by` added to all ids. Raises `StoreError`."""
    table = TABLES.get(str(fields.get("table")), 0)
    if by == 0 or table == TERM:
        return fields
    said = fields.get("value")
    if isinstance(said, dict):
        said = dict(said)
        for key in (_REFERENCES.get(table), "body"):
            id = said.get(key) if key is not None else None
            if isinstance(id, int) and not isinstance(id, bool) and id:
                said[key] = id + by
    changed = {**fields, "value": said, "id": _moved(fields, "id", by)}
    if table == SUBSCRIPTION:
        changed["number"] = _moved(fields, "number", by)
    return changed


def _moved(fields: dict[str, object], key: str, by: int) -> int:
    id = fields.get(key)
    if not isinstance(id, int):
        raise StoreError(f"{key} must be a number, not {str(id)[:40]!r}")
    return id + by


def highest_id(tables: Iterable[tuple[int, Iterable[Record]]]) -> int:
    """Return the highest id in these tables."""
    highest = 0
    for table, records in tables:
        for record in records:
            highest = max(highest, record.id)
            if table == SUBSCRIPTION:
                highest = max(highest, record.number)
    return highest


def name_of(table: int, said: object) -> Name | None:
    """Return the name of a record, if it must be unique; else None. Raises `StoreError`."""
    keys = _NAMES.get(table)
    if keys is None or not isinstance(said, dict):
        return None
    name: list[object] = [_KINDS[table]]
    for key in keys:
        value = said.get(key)
        if isinstance(value, (list, dict)):
            raise StoreError(f"{key} must be a name, not {str(value)[:40]!r}")
        name.append(value)
    return tuple(name)


def describe(name: Name) -> str:
    """Return a readable form of a name."""
    kind, space, *rest = name
    words = " ".join(repr(part)[:80] for part in rest if not isinstance(part, bool))
    return f"{kind} {words} of virtual host {space!r}"
