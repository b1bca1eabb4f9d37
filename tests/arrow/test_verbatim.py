"""Bytes that stay as they are: keys, entries and bodies of columns that are read verbatim."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.arrow import ColumnError, MessageEncoder, RecordDecoder, TextError, schema_of
from ferrymq.chunks import Chunk, ChunkBuilder
from ferrymq.errors import EncodeError
from ferrymq.message import Message
from ferrymq_codec.scalars import Symbol
from ferrymq_types.messaging import AmqpSequence, AmqpValue

COLUMNS = ("body", "partitionKey", "applicationProperties")
SCHEMA = schema_of(COLUMNS, verbatim=True)
KEY = "x-opt-partition-key"

contents = st.none() | st.binary(max_size=20) | st.text(max_size=8).map(str.encode)
entries = st.dictionaries(st.text(max_size=8), contents, min_size=1, max_size=4)
rows = st.fixed_dictionaries(
    {
        "body": contents,
        "partitionKey": contents,
        "applicationProperties": st.none()
        | entries.map(lambda found: [{"key": k, "value": v} for k, v in found.items()]),
    }
)


def decoded(*messages: Message) -> list[dict[str, Any]]:
    batch = RecordDecoder(COLUMNS, verbatim=True).decode_messages(
        [message.encode() for message in messages]
    )
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    return batch.to_pylist()


@given(st.lists(rows, max_size=5), st.integers(0, 2))
def test_every_byte_comes_back(found: list[dict[str, Any]], first: int) -> None:
    batch = pa.RecordBatch.from_pylist(found, SCHEMA).slice(first)
    payloads = MessageEncoder(SCHEMA).encode(batch)
    again = RecordDecoder(COLUMNS, verbatim=True).decode_messages(payloads)
    again.validate(full=True)
    assert again.to_pylist() == found[first:]


def test_what_is_utf8_is_written_as_strings() -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "body": b"",
                "partitionKey": key,
                "applicationProperties": [{"key": "a", "value": key}],
            }
            for key in ("straße".encode(), b"\xff")
        ],
        SCHEMA,
    )
    text, binary = map(Message.decode, MessageEncoder(SCHEMA).encode(batch))
    assert (text.message_annotations[KEY], text.application_properties) == (
        "straße",
        {"a": "straße"},
    )
    assert (binary.message_annotations[KEY], binary.application_properties) == (
        b"\xff",
        {"a": b"\xff"},
    )


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (AmqpValue("straße"), "straße".encode()),
        (AmqpValue(Symbol("s")), b"s"),
        (AmqpValue(b"\xff"), b"\xff"),
        (AmqpValue(None), None),
        (AmqpValue(12), b"12"),
        (AmqpValue(True), b"true"),
        (AmqpValue({"a": [1, "b"]}), b'{"a":[1,"b"]}'),
        (AmqpSequence([1, "b"]), b'[1,"b"]'),
    ],
)
def test_bodies_of_each_kind(body: object, value: bytes | None) -> None:
    assert decoded(Message(body))[0]["body"] == value


def test_entries_of_other_types_and_none() -> None:
    message = Message(b"", application_properties={"n": 5, "t": True, "x": None, "s": Symbol("y")})
    full, empty, none = decoded(message, Message(b"", application_properties={}), Message(b""))
    assert full["applicationProperties"] == [
        {"key": "n", "value": b"5"},
        {"key": "t", "value": b"true"},
        {"key": "x", "value": None},
        {"key": "s", "value": b"y"},
    ]
    assert empty["applicationProperties"] is None
    assert none["applicationProperties"] is None


def chunk(payloads: list[bytes], first: int) -> Chunk:
    builder = ChunkBuilder()
    builder.begin(first)
    for offset, payload in enumerate(payloads, first):
        builder.add(payload, 1000, offset, 0)
    return Chunk(builder.build(first + len(payloads), first + len(payloads)))


def test_columns_of_text() -> None:
    payloads = [Message(body).encode() for body in ("straße".encode(), None, b"\xff", b"\xfe")]
    decoder = RecordDecoder(["body", "offset"], texts=["body"])
    assert decoder.schema.field("body").type == pa.string()
    assert decoder.decode(chunk(payloads[:2], 7)).column("body").to_pylist() == [
        "straße",
        "null",
    ]
    with pytest.raises(TextError, match="'body' is not UTF-8 in the record 9") as caught:
        decoder.decode(chunk(payloads, 7))
    assert (caught.value.column, caught.value.row, caught.value.offset) == ("body", 2, 9)
    with pytest.raises(TextError, match="not UTF-8 in message 2"):
        decoder.decode_messages(payloads)
    with pytest.raises(ColumnError, match="'userId' has no form as text"):
        RecordDecoder(["userId"], texts=["userId"])


def test_entries_that_no_message_can_have() -> None:
    encoder = MessageEncoder(SCHEMA)
    for wrong, says in (
        ([{"key": None, "value": b"1"}], "row 1: an entry has no key"),
        ([None], "row 1: an entry has no key"),
        ([{"key": "a", "value": b"1"}] * 2, "row 1: the key 'a' is there twice"),
    ):
        found = [None, wrong, [{"key": "b", "value": b"2"}]]
        batch = pa.RecordBatch.from_pylist(
            [{"body": b"", "applicationProperties": each} for each in found], SCHEMA
        )
        with pytest.raises(EncodeError, match=says):
            encoder.encode(batch)
    with pytest.raises(ColumnError, match=r"'applicationProperties' is list<.*it has to be map<"):
        MessageEncoder(
            pa.schema([("body", pa.binary()), ("applicationProperties", pa.list_(pa.string()))])
        )
