"""What the store reads back: frames of the journal, batches of changes, values of records, lines of
an export. `StoreError` and ValueError are all that may leave it."""

from __future__ import annotations

import json
from random import Random

from ferrymq_broker.cli.store.json_lines import line_of, record_of
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.journal_frames import decode_header, encode, frame_bytes, is_intact
from ferrymq_broker.store.map_values import decode_map, encode_map
from ferrymq_broker.store.net_effect import NetEffect
from ferrymq_codec.errors import CodecError
from tests.fuzz.mutation.plain import mutate_bytes
from tests.support.memory_records import MemoryDisk, MemoryRecords

_SECRET = b"sixteen bytes ok"


def one(data: bytes) -> None:
    """The first byte says what it is."""
    if not data:
        return
    how, rest = data[0] % 4, data[1:]
    if how == 0:
        header = decode_header(rest)
        if header is not None:
            batch = rest[28 : 28 + header.length]
            is_intact(_SECRET, header, batch)
            assert frame_bytes(header.length) >= header.length
        parts = encode(_SECRET, 1, 2, 3, (rest[:7], rest[7:]))
        read = decode_header(b"".join(parts))
        assert read is not None and is_intact(_SECRET, read, rest)
    elif how == 1:
        _replay(rest)
    elif how == 2:
        try:
            found = decode_map(rest)
        except (StoreError, CodecError, ValueError):
            return
        encode_map(found)
    else:
        _line(rest)


def _replay(batch: bytes) -> None:
    replay = NetEffect()
    replay.begin(batch)
    try:
        while not replay.read(7):
            pass
    except StoreError:
        return
    records = MemoryRecords(MemoryDisk())
    records.begin()
    replay.rewind()
    while not replay.write(records, 5):
        pass
    records.commit(1)


def _line(text: bytes) -> None:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(fields, dict):
        return
    try:
        table, record = record_of(fields)
    except (StoreError, CodecError, ValueError):
        return
    line_of(table, record)


def seeds() -> list[bytes]:
    """A frame, batches of changes of every kind, a record, a line."""
    changes = Changes()
    changes.enabled = True
    changes.put(1, 2, 3, b"value")
    changes.put(4, 2, 1, b"")
    changes.drop(1, 2, 3)
    changes.drop_range(1, 2, 0, 9)
    batch = b"".join(changes.close())
    return [
        b"\0" + b"".join(encode(_SECRET, 1, 1, 2, [batch]))[:64],
        b"\1" + batch,
        b"\1" + batch * 3,
        b"\2" + encode_map({"name": "queue", "number": 5, "list": [1, None]}),
        b'\3{"table": "nodes", "id": 1, "number": 2, "value": {"name": "queue"}}',
        b'\3{"table": "queued", "id": 1, "number": 2, "message": {"base64": "AFN1oAF4"}}',
    ]


def mutate(random: Random, data: bytes) -> bytes:
    """Other bytes."""
    return (data[:1] or b"\0") + mutate_bytes(random, data[1:], WORDS)


WORDS = (
    b"FMQB", b"\1", b"\2", b"\3", b"\0\0\0\0", b"\xff\xff\xff\xff", b'"table"', b'"id"', b"null",
    b'"number"', b'"nodes"', b'"messages"', b"{}", b"[]", b'"base64"', b"-1", b"1e999", b"{",
)  # fmt: skip
