"""Records as lines of JSON, which `export` writes and `import` reads.

Each line has table, id, number and value: settings and states as maps, messages as base64 with
their properties in the broker beside them. This format does not depend on the format on disk, so
that other versions can read it.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Final

from librt.strings import BytesWriter

from ferrymq_broker.cli.store.json_values import binary, original, portable
from ferrymq_broker.nodes.queues.persistence import (
    DEFERRED_FLAG,
    EXPIRES,
    HEAD,
    OWN,
    SHARED,
    SPECIAL,
    body_id,
    read_head,
    read_identity,
)
from ferrymq_broker.nodes.streams import stored as streams
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.map_values import decode_map, encode_map
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.tables import (
    BODY,
    DUPLICATE,
    ENTRY,
    NAMES,
    RECORD,
    SCHEDULED,
    STATE,
)
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.value_writer import write_value

FORMAT: Final = 1
TABLES: Final = {name: table for table, name in NAMES.items()}

_NUMBER: Final = struct.Struct(">q")
_QUEUED: Final = struct.Struct(">qIBB")
_MOST: Final = 2**63
# Flags of an entry that are written as they are. The others only describe the form on disk.
_FLAGS: Final = {"special": SPECIAL, "own": OWN}


def line_of(table: int, record: Record) -> str:
    """Return a record as a line. Raises `StoreDamaged` for an invalid record."""
    try:
        said = _said(table, record.value)
    except (StoreDamaged, IndexError, ValueError, struct.error) as error:
        name = NAMES.get(table, str(table))
        raise StoreDamaged(f"{name} {record.id}/{record.number}: {error}") from error
    fields = {"table": NAMES[table], "id": record.id, "number": record.number, "value": said}
    return json.dumps(fields, ensure_ascii=False)


def record_of(fields: dict[str, object]) -> tuple[int, Record]:
    """Return table and record of a line. Raises `StoreError`."""
    table = TABLES.get(str(fields.get("table")))
    said = fields.get("value")
    if table is None:
        raise StoreError(f"unknown table {str(fields.get('table'))[:40]!r}")
    if not isinstance(said, dict):
        raise StoreError("the value of a record must be a map")
    try:
        value = _value(table, said)
    except (EncodeError, struct.error) as error:
        raise StoreError(f"the {NAMES[table]} cannot be stored: {error}") from error
    return table, Record(_number(fields, "id"), _number(fields, "number"), value)


def _said(table: int, value: bytes) -> object:
    if table in (ENTRY, SCHEDULED):
        return _said_of_queued(table, value)
    if table == STATE:
        failures, *excluded = (number for (number,) in _NUMBER.iter_unpack(value))
        said_of_state: dict[str, object] = {"failures": failures}
        if DEFERRED_FLAG in excluded:
            excluded.remove(DEFERRED_FLAG)
            said_of_state["deferred"] = True
        return said_of_state | ({"excluded": excluded} if excluded else {})
    if table == BODY:
        return {"message": _text(value)}
    if table == DUPLICATE:
        time, identity = read_identity(value)
        known = list(identity) if isinstance(identity, tuple) else identity
        return {"time": time, "identity": portable(known)}
    if table == RECORD:
        if len(value) < streams.HEAD:
            raise StoreDamaged("the record is shorter than its head")
        return {
            "time": int(streams.time_of(value)),
            "origin": int(streams.origin_of(value)),
            "format": int(streams.format_of(value)),
            "message": _text(value[streams.HEAD :]),
        }
    return portable(decode_map(value))


def _said_of_queued(table: int, value: bytes) -> dict[str, object]:
    head = read_head(value)
    time = "due" if table == SCHEDULED else "expires" if head.expires else "arrived"
    said: dict[str, object] = {time: head.time, "format": head.format, "level": head.level}
    said |= {name: True for name, flag in _FLAGS.items() if value[HEAD - 1] & flag}
    if head.shared:
        said["body"] = body_id(value)
    else:
        said["message"] = _text(value[HEAD:])
    return said


def _value(table: int, said: dict[str, object]) -> bytes:
    if table in (ENTRY, SCHEDULED):
        return _queued(said)
    if table == STATE:
        excluded = said.get("excluded", [])
        if not isinstance(excluded, list):
            raise StoreError("excluded must be a list of numbers")
        flags = [DEFERRED_FLAG] if said.get("deferred") is True else []
        return b"".join(map(_NUMBER.pack, [_number(said, "failures"), *flags, *excluded]))
    if table == BODY:
        return binary(said.get("message"))
    if table == DUPLICATE:
        w = BytesWriter()
        write_value(w, original(said.get("identity")), "identity")
        return _NUMBER.pack(_number(said, "time")) + w.getvalue()
    if table == RECORD:
        head = streams.encode_head(
            _number(said, "time"), _number(said, "origin"), _number(said, "format")
        )
        return head + binary(said.get("message"))
    known = original(said)
    if not isinstance(known, dict):
        raise StoreError(f"the value of the {NAMES[table]} must be a map")
    return encode_map(known)


def _queued(said: dict[str, object]) -> bytes:
    flags = 0
    time = next((key for key in ("due", "expires", "arrived") if key in said), "arrived")
    if time == "expires":
        flags |= EXPIRES
    for name, flag in _FLAGS.items():
        if said.get(name) is True:
            flags |= flag
    if "body" in said:
        flags |= SHARED
        rest = _NUMBER.pack(_number(said, "body"))
    else:
        rest = binary(said.get("message"))
    head = _QUEUED.pack(_number(said, time), _number(said, "format"), _number(said, "level"), flags)
    return head + rest


def _number(said: dict[str, object], key: str) -> int:
    number = said.get(key)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _MOST:
        raise StoreError(f"{key} must be a number, not {str(number)[:40]!r}")
    return number


def _text(message: bytes) -> str:
    return base64.b64encode(message).decode()
