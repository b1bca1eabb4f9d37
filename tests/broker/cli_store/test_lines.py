"""Records as lines of JSON: each comes back as it was, whatever is in it."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_broker.cli.store.json_lines import TABLES, line_of, record_of
from ferrymq_broker.nodes.queues.persistence import EXPIRES, OWN, SHARED, SPECIAL
from ferrymq_broker.nodes.streams.stored import PartitionFields, encode_head, encode_partition
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.tables import (
    BODY,
    DUPLICATE,
    ENTRY,
    NODE,
    PARTITION,
    RECORD,
    SCHEDULED,
    STATE,
)
from ferrymq_codec.scalars import Symbol, UInt, ULong
from ferrymq_codec.value_writer import write_value
from tests.broker.cli_store.test_portable import VALUES

IDS = st.integers(0, 2**63 - 1)
TIMES = st.integers(0, 2**62)


def queued(time: int, format: int, level: int, flags: int, rest: bytes) -> bytes:
    return struct.pack(">qIBB", time, format, level, flags) + rest


def identity(time: int, known: object) -> bytes:
    w = BytesWriter()
    write_value(w, known, "identity")
    return struct.pack(">q", time) + w.getvalue()


QUEUED = st.one_of(
    st.builds(
        queued,
        TIMES,
        st.integers(0, 2**32 - 1),
        st.integers(0, 9),
        st.sampled_from([0, SPECIAL, OWN, OWN | SPECIAL]),
        st.binary(),
    ),
    st.builds(
        lambda time, id: queued(time, 0, 4, SHARED, struct.pack(">q", id)),
        TIMES,
        IDS,
    ),
)
VALUES_BY_TABLE = {
    ENTRY: st.one_of(
        QUEUED, st.builds(lambda time, body: queued(time, 0, 4, EXPIRES, body), TIMES, st.binary())
    ),
    SCHEDULED: QUEUED,
    STATE: st.builds(
        lambda count, excluded: struct.pack(f">q{len(excluded)}q", count, *excluded),
        TIMES,
        st.lists(st.integers(-(2**62), 0), max_size=3),
    ),
    BODY: st.binary(),
    DUPLICATE: st.builds(
        identity, TIMES, st.one_of(st.text(), st.binary(), st.uuids(), st.integers(0, 9).map(ULong))
    ),
    RECORD: st.builds(
        lambda time, origin, format, body: encode_head(time, origin, format) + body,
        TIMES,
        IDS,
        st.integers(0, 2**32 - 1),
        st.binary(),
    ),
    PARTITION: st.builds(PartitionFields, IDS, IDS, IDS, IDS, IDS).map(encode_partition),
}
MAPS = st.dictionaries(st.text(), VALUES, max_size=5).map(encode_map)


@given(st.sampled_from(sorted(TABLES.values())), IDS, IDS, st.data())
def test_there_and_back(table: int, id: int, number: int, data: st.DataObject) -> None:
    value = data.draw(VALUES_BY_TABLE.get(table, MAPS))
    record = Record(id, number, value)
    line = line_of(table, record)
    assert "\n" not in line
    assert record_of(json.loads(line)) == (table, record)


def test_a_line_can_be_read_by_people() -> None:
    value = encode_map({"address": "orders", "kind": "queue", "max": UInt(1), "as": Symbol("x")})
    assert json.loads(line_of(NODE, Record(3, 0, value))) == {
        "table": "node",
        "id": 3,
        "number": 0,
        "value": {
            "address": "orders",
            "kind": "queue",
            "max": {"$amqp": "UgE="},
            "as": {"$symbol": "x"},
        },
    }
    line = line_of(ENTRY, Record(3, 7, queued(1000, 0, 4, EXPIRES, b"hello")))
    assert json.loads(line)["value"] == {
        "expires": 1000,
        "format": 0,
        "level": 4,
        "message": "aGVsbG8=",
    }


@pytest.mark.parametrize("table", [ENTRY, STATE, DUPLICATE, RECORD, NODE])
def test_a_record_that_makes_no_sense_is_named(table: int) -> None:
    with pytest.raises(StoreDamaged, match=r"^\w+ 5/6: "):
        line_of(table, Record(5, 6, b"\xff"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "unknown table 'None'"),
        ({"table": "nodes"}, "unknown table 'nodes'"),
        ({"table": "node", "id": 1, "number": 0}, "record must be a map"),
        ({"table": "node", "id": "1", "number": 0, "value": {}}, "id must be a number"),
        ({"table": "node", "id": 1, "number": -1, "value": {}}, "number must be a number"),
        ({"table": "node", "id": 1, "number": 0, "value": {"$amqp": "QA=="}}, "must be a map"),
        ({"table": "entry", "id": 1, "number": 0, "value": {}}, "base64"),
        (
            {
                "table": "entry",
                "id": 1,
                "number": 0,
                "value": {"arrived": 1, "format": 0, "level": 999, "message": ""},
            },
            "the entry cannot be stored",
        ),
        (
            {"table": "state", "id": 1, "number": 0, "value": {"failures": 2**64}},
            "failures must be",
        ),
        (
            {"table": "state", "id": 1, "number": 0, "value": {"failures": 0, "excluded": "x"}},
            "excluded must be a list",
        ),
        (
            {"table": "state", "id": 1, "number": 0, "value": {"failures": 0, "excluded": ["x"]}},
            "cannot be stored",
        ),
    ],
)
def test_a_line_that_was_changed_by_hand_and_makes_no_sense(
    fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(StoreError, match=reason):
        record_of(fields)
