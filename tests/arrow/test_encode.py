"""Rows become the messages that their columns describe, and what was read can be written back."""

from __future__ import annotations

import json
import math
import string
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.arrow import (
    METADATA,
    RAW,
    TYPES,
    ColumnError,
    MessageEncoder,
    RecordDecoder,
    schema_of,
)
from ferrymq.errors import EncodeError
from ferrymq.message import Message
from ferrymq.testing.strategies import messages, symbols
from ferrymq.testing.strategies import strings as texts
from ferrymq_codec.scalars import Int
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
uints = st.integers(0, 0xFFFFFFFF)
moments = st.integers(-62_135_596_800_000, 10**14).map(
    lambda ms: EPOCH + timedelta(milliseconds=ms)
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**33), 10**33)
    | st.floats(allow_nan=False)
    | texts(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
    max_leaves=6,
)
strings = st.none() | st.text(max_size=20) | texts()
keys = symbols().filter(lambda key: key != "rejected")


def maps(names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    entries = st.dictionaries(names, strings, max_size=12)
    return st.none() | entries.map(lambda entries: list(entries.items()))


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "messageId": strings,
    "correlationId": strings,
    "userId": st.none() | st.binary(max_size=20),
    "to": strings,
    "subject": strings,
    "replyTo": strings,
    "contentType": st.none() | symbols(),
    "absoluteExpiryTime": st.none() | moments,
    "creationTime": st.none() | moments,
    "groupId": strings,
    "groupSequence": st.none() | uints,
    "replyToGroupId": strings,
    "durable": st.none() | st.booleans(),
    "priority": st.none() | st.integers(0, 127),
    "ttl": st.none() | uints,
    "applicationProperties": maps(texts()),
    "messageAnnotations": maps(keys),
    "deliveryAnnotations": maps(keys),
    "footer": maps(keys),
    "partitionKey": strings,
    "partition": st.none() | st.integers(0, 0x7FFFFFFF),
    "offset": st.none() | st.integers(0, 9),
    "enqueuedTime": st.none() | moments,
    "deliveryCount": st.none() | st.integers(0, 9),
    "firstAcquirer": st.none() | st.booleans(),
    "address": strings,
}
ATTRIBUTES = {
    name: "".join(f"_{c.lower()}" if c in string.ascii_uppercase else c for c in name)
    for name in list(FIELDS)[: list(FIELDS).index("partitionKey")]
}


@st.composite
def frames(draw: st.DrawFn) -> tuple[list[str], list[dict[str, Any]]]:
    names = ["body", *draw(st.lists(st.sampled_from(sorted(FIELDS)), unique=True))]
    kinds = draw(st.booleans())
    rows = []
    for _ in range(draw(st.integers(0, 4))):
        row = {name: draw(FIELDS[name]) for name in names[1:]}
        kind = draw(st.sampled_from(["data", "value", "sequence", None])) if kinds else None
        if kinds:
            row["bodyType"] = kind
        if kind == "value":
            row["body"] = json.dumps(draw(json_values)).encode()
        elif kind == "sequence":
            row["body"] = json.dumps(draw(st.lists(json_values, max_size=3))).encode()
        else:
            row["body"] = draw(st.none() | st.binary(max_size=300))
        rows.append(row)
    return (["bodyType", *names] if kinds else names), rows


def described(row: dict[str, Any]) -> Message:
    """The message that a row describes."""
    kind = row.get("bodyType")
    body: Any = row["body"]
    if body is None:
        body = AmqpValue(None)
    elif kind in ("value", "sequence"):
        value = json.loads(body)
        body = AmqpValue(value) if kind == "value" else AmqpSequence(value)
    else:
        body = Data(body)
    fields: dict[str, Any] = {"durable": True}
    for name, attribute in ATTRIBUTES.items():
        value = row.get(name)
        if isinstance(value, datetime):
            value = (value - EPOCH) // timedelta(milliseconds=1)
        elif isinstance(value, list):
            value = dict(value)
        if value is not None:
            # The column is in ms, as on the wire.
            fields[attribute] = value / 1000 if name == "ttl" else value
    message = Message(body, **fields)
    if row.get("partitionKey") is not None:
        message.message_annotations["x-opt-partition-key"] = row["partitionKey"]
    if row.get("partition") is not None:
        message.message_annotations["x-opt-partition"] = Int(row["partition"])
    return message


def plain(value: Any) -> Any:
    """Integers that no long holds come as others, which are equal as numbers."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return int(value)
    return value


def same(found: bytes, wanted: Message) -> None:
    message = Message.decode(found)
    assert plain(message.body) == plain(wanted.body)
    assert [type(part) for part in message.body_sections] == [
        type(part) for part in wanted.body_sections
    ]
    message.body = wanted.body = None
    if message.header is None or wanted.header is None:
        assert message.durable == wanted.durable
        assert message.priority == wanted.priority
        message.header = wanted.header = None
    assert message == wanted


@given(frames(), st.integers(0, 3))
def test_rows(frame: tuple[list[str], list[dict[str, Any]]], skipped: int) -> None:
    names, rows = frame
    schema = schema_of(names)
    batch = pa.RecordBatch.from_pylist(rows, schema=schema).slice(skipped)
    encoder = MessageEncoder(schema)
    found = encoder.encode(batch)
    assert len(found) == len(rows[skipped:])
    for payload, row in zip(found, rows[skipped:], strict=True):
        same(payload, described(row))
    addresses = [row["address"] for row in rows[skipped:]] if "address" in names else None
    assert encoder.addresses(batch) == addresses


@given(st.lists(messages(), max_size=3))
def test_what_is_read_can_be_written_back(given_messages: list[Message]) -> None:
    for message in given_messages:
        message.delivery_annotations.pop("rejected", None)
        for entries in (message.delivery_annotations, message.message_annotations, message.footer):
            # A column shows the keys 0 and "0" in the same way, and a map has a key only once.
            for key in [key for key in entries if isinstance(key, int) and str(key) in entries]:
                del entries[key]
    decoder = RecordDecoder(METADATA, "orders", 1)
    read = decoder.decode_messages([message.encode() for message in given_messages])
    written = MessageEncoder(read.schema).encode(read)
    again = decoder.decode_messages(written)
    again.validate(full=True)
    # Sections that are empty are not written; JSON has one kind of number for all integers.
    for name in set(METADATA) - {
        "body",
        "offset",
        "enqueuedTime",
        "deliveryCount",
        "firstAcquirer",
    }:
        left, right = read.column(name), again.column(name)
        if pa.types.is_map(left.type):
            left, right = (pa.array([m or None for m in c.to_pylist()]) for c in (left, right))
        assert left.equals(right), name
    for kind, before, after in zip(
        read.column("bodyType").to_pylist(),
        read.column("body").to_pylist(),
        again.column("body").to_pylist(),
        strict=True,
    ):
        if kind == "data":
            assert before == after
        else:
            assert exactly(before) == exactly(after)


def exactly(body: bytes) -> object:
    """The JSON of a body, in which numbers are different if their digits are."""
    return json.loads(body, parse_float=lambda digits: Decimal(digits).as_tuple())


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("1.1", 1.1),
        ("1.0", 1.0),
        ("-0.0", -0.0),
        ("5e-324", 5e-324),
        # As Java and people write doubles.
        ("1.0E10", 1e10),
        ("1.1E-7", 1.1e-7),
        ("1e5", 1e5),
        ("1.10", Decimal("1.10")),
        ("1.00", Decimal("1.00")),
        ("0.00", Decimal("0.00")),
        ("0E-10", Decimal("0E-10")),
        ("1E+2", Decimal("1E+2")),
        ("0.12345678901234567890123456789", Decimal("0.12345678901234567890123456789")),
        ("0.10000000000000001", Decimal("0.10000000000000001")),
        ("1e400", Decimal("1e400")),
        ("-1e-400", Decimal("-1e-400")),
        ("-0", Decimal("-0")),
        ("9223372036854775807", 9223372036854775807),
        ("18446744073709551615", 18446744073709551615),
        ("-9223372036854775809", Decimal("-9223372036854775809")),
        ("18446744073709551616", Decimal("18446744073709551616")),
    ],
)
def test_numbers_in_json_keep_their_digits(body: str, value: object) -> None:
    schema = schema_of(["body", "bodyType"])
    for text, wanted in ((body, value), (f'{{"a":[{body}]}}', {"a": [value]})):
        row = {"body": text.encode(), "bodyType": "value"}
        (message,) = MessageEncoder(schema).encode(pa.RecordBatch.from_pylist([row], schema=schema))
        assert repr(_bare(Message.decode(message).body)) == repr(wanted)
        (again,) = RecordDecoder(["body"], "orders", 0).decode_messages([message])[0].to_pylist()
        assert json.loads(again, parse_float=Decimal) == json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ("1.1", "1.1E+0"),
        ("-0.5", "-0.5E+0"),
        ("1.0", "1.0E+0"),
        ("1.1E-7", "1.1E-007"),
        ("1E-10", "1E-0010"),
        ("1.10", "1.10"),
        ("0.0", "0.0E+0"),
        ("1E+2", "1E+2"),
        ("0.1000000000000000000001", "0.1000000000000000000001"),
        ("1E-6176", "1E-6176"),
        ("9.999999999999999999999999999999999E+6144", "9.999999999999999999999999999999999E+6144"),
    ],
)
def test_decimals_stay_decimals(value: str, body: str) -> None:
    number = Decimal(value)
    decoder = RecordDecoder(["body", "bodyType"], "orders", 0)
    read = decoder.decode_messages([Message([number, {"a": number}, float(number)]).encode()])
    assert json.loads(read["body"][0].as_py(), parse_float=Decimal)[:2] == [number, {"a": number}]
    assert read["body"][0].as_py().startswith(f"[{body},".encode())
    (written,) = MessageEncoder(read.schema).encode(read)
    one, two, double = Message.decode(written).body
    for found in (one, two["a"]):
        assert isinstance(found, Decimal) and found.as_tuple() == number.as_tuple()
    assert isinstance(double, float) or not math.isfinite(float(number))


@given(st.decimals(allow_nan=False, allow_infinity=False).filter(lambda d: d.as_tuple().exponent))
def test_no_decimal_becomes_a_double(number: Decimal) -> None:
    try:
        message = Message(number).encode()
    except EncodeError:
        return
    read = RecordDecoder(["body", "bodyType"], "orders", 0).decode_messages([message])
    (written,) = MessageEncoder(read.schema).encode(read)
    found = Message.decode(written).body
    assert isinstance(found, Decimal) and found.as_tuple() == number.as_tuple()


def _bare(value: object) -> object:
    """A value with Python's own integers."""
    if isinstance(value, dict):
        return {str(key): _bare(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return int(value) if isinstance(value, int) else value


def test_raw_is_sent_as_it_is() -> None:
    schema = pa.schema([("raw", pa.large_binary()), ("address", pa.string())])
    batch = pa.RecordBatch.from_pylist(
        [{"raw": b"anything", "address": "a"}, {"raw": b"", "address": None}], schema=schema
    )
    encoder = MessageEncoder(schema)
    assert encoder.encode(batch) == [b"anything", b""]
    assert encoder.addresses(batch) == ["a", None]
    missing = pa.RecordBatch.from_pylist([{"raw": b"x"}, {}], schema=schema)
    with pytest.raises(EncodeError, match="raw: row 1: null is no message"):
        encoder.encode(missing)
    nothing = pa.RecordBatch.from_pylist([{}], schema=schema)
    with pytest.raises(EncodeError, match="raw: row 0: null is no message"):
        encoder.encode(nothing)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"body": pa.int32()}, "'body' is int32; it has to be binary or string"),
        ({"body": pa.binary(), "subject": pa.int64()}, "'subject' is int64; it has to be string"),
        ({"body": pa.binary(), "ttl": pa.string()}, "'ttl' is string; it has to be an integer"),
        (
            {"body": pa.binary(), "creationTime": pa.timestamp("us")},
            r"'creationTime' is timestamp\[us\]; it has to be a timestamp with a time zone",
        ),
        (
            {"body": pa.binary(), "footer": pa.map_(pa.string(), pa.int32())},
            "'footer' is map<string, int32>; it has to be map<string, string>",
        ),
        ({"body": pa.binary(), "subjekt": pa.string()}, "no column 'subjekt'; did you mean 'subj"),
        ({"value": pa.binary()}, "no column 'value'.*columns: body, bodyType"),
        ({"subject": pa.string()}, "needs a column 'body' .* or 'raw' .*; there is subject"),
        ({"raw": pa.binary(), "to": pa.string()}, "'raw' is the whole message.*: to; drop these"),
    ],
)
def test_columns_that_do_not_fit(fields: dict[str, pa.DataType], reason: str) -> None:
    with pytest.raises(ColumnError, match=reason):
        MessageEncoder(pa.schema(list(fields.items())))


def test_a_column_may_be_there_once() -> None:
    schema = pa.schema([("body", pa.binary()), ("body", pa.binary())])
    with pytest.raises(ColumnError, match="'body' is there twice"):
        MessageEncoder(schema)


@pytest.mark.parametrize(
    ("name", "kind", "value", "reason"),
    [
        ("priority", pa.int8(), -1, "priority: row 1: -1 is not between 0 and 255"),
        ("ttl", pa.int64(), 1 << 32, "ttl: row 1: 4294967296 is not between"),
        ("groupSequence", pa.int64(), -5, "groupSequence: row 1: -5 is not"),
        ("partition", pa.int32(), -1, "partition: row 1: -1 is not"),
        ("ttl", pa.uint64(), 1 << 63, "ttl: a value that has no place in 64 bits"),
        ("contentType", pa.string(), "tëxt", "contentType: row 1: 'tëxt' is not ASCII"),
        ("contentEncoding", pa.string(), "identity", "contentEncoding: row 1: identity is said"),
        ("bodyType", pa.string(), "malformed", "bodyType: row 1: 'malformed' is none of data,"),
        ("bodyType", pa.string(), "value", "body: row 1: not JSON"),
        ("messageAnnotations", TYPES["footer"], [("ü", "")], "messageAnnotations: row 1: 'ü' is"),
        (
            "deliveryAnnotations",
            TYPES["footer"],
            [("rejected", "")],
            "deliveryAnnotations: row 1: rejected has to be an error",
        ),
        (
            "applicationProperties",
            TYPES["footer"],
            [("a", ""), ("b", ""), ("a", "")],
            "applicationProperties: row 1: the key 'a' is there twice",
        ),
    ],
)
def test_values_that_no_message_can_have(
    name: str, kind: pa.DataType, value: object, reason: str
) -> None:
    schema = pa.schema([("body", pa.string()), (name, kind)])
    batch = pa.RecordBatch.from_pylist([{"body": "x"}, {"body": "x", name: value}], schema=schema)
    with pytest.raises(EncodeError, match=reason):
        MessageEncoder(schema).encode(batch)


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"{}", "sequence", "a sequence is an array"),
        (b"\xff", "value", "not UTF-8"),
        (b"[" * 100_000, "value", "nested too deeply"),
        (b"[" * 50 + b"]" * 50, "value", "nested too deeply"),
        (b"1" * 40, "value", "digits do not fit"),
        (b"1" * 5000, "value", "not JSON"),
        (b'"\\ud800"', "value", "surrogate"),
        (b'[{"a":1,"b":2,"a":3}]', "value", "the key 'a' is there twice"),
        (b"1e9999999999999999999", "value", "an exponent that no decimal has"),
        (b"1e7000", "value", "out of range for decimal128"),
        (b"0." + b"1" * 40, "value", "digits do not fit"),
    ],
)
def test_json_that_no_body_can_be(body: bytes, kind: str, reason: str) -> None:
    schema = schema_of(["body", "bodyType"])
    batch = pa.RecordBatch.from_pylist([{"body": body, "bodyType": kind}], schema=schema)
    with pytest.raises(EncodeError, match=f"body: row 0: .*{reason}"):
        MessageEncoder(schema).encode(batch)


def test_only_data_has_an_encoding() -> None:
    schema = schema_of(["body", "bodyType", "contentEncoding"])
    row = {"body": b"1", "bodyType": "value", "contentEncoding": "gzip"}
    with pytest.raises(EncodeError, match="contentEncoding: row 0: only a body of data"):
        MessageEncoder(schema).encode(pa.RecordBatch.from_pylist([row], schema=schema))


def test_an_annotation_that_is_a_column_too() -> None:
    schema = schema_of(["body", "partitionKey", "messageAnnotations"])
    row = {"body": b"", "partitionKey": "k", "messageAnnotations": [("x-opt-partition-key", "l")]}
    with pytest.raises(EncodeError, match="'x-opt-partition-key' has a column of its own"):
        MessageEncoder(schema).encode(pa.RecordBatch.from_pylist([row], schema=schema))


def test_defaults_are_for_columns_that_are_not_there() -> None:
    schema = schema_of(["body", "subject"])
    defaults = {
        "subject": "default",
        "durable": False,
        "to": "there",
        "address": "orders",
        "applicationProperties": {"a": "1"},
    }
    encoder = MessageEncoder(schema, defaults)
    batch = pa.RecordBatch.from_pylist([{"body": b"x"}, {"subject": "s"}], schema=schema)
    first, second = map(Message.decode, encoder.encode(batch))
    assert (first.subject, first.durable, first.to) == (None, False, "there")
    assert (second.subject, second.application_properties) == ("s", {"a": "1"})
    assert encoder.addresses(batch) == ["orders", "orders"]
    with pytest.raises(ColumnError, match="'x' cannot be the column 'ttl', which is int64"):
        MessageEncoder(schema, {"ttl": "x"})
    with pytest.raises(ColumnError, match="did you mean 'priority'"):
        MessageEncoder(schema, {"prioity": 1})


def test_other_layouts_of_the_same_values() -> None:
    schema = pa.schema(
        [
            ("body", pa.large_string()),
            ("userId", pa.binary_view()),
            ("subject", pa.string_view()),
            ("priority", pa.uint16()),
            ("creationTime", pa.timestamp("ns", tz="Europe/Berlin")),
            ("footer", pa.map_(pa.large_string(), pa.large_string())),
        ]
    )
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    row = {"body": "ü", "userId": b"u" * 20, "subject": "s", "priority": 255}
    row |= {"creationTime": moment, "footer": [("a", "b")]}
    batch = pa.RecordBatch.from_pylist([row], schema=schema)
    (payload,) = MessageEncoder(schema).encode(batch)
    message = Message.decode(payload)
    assert message.body == "ü".encode()
    assert (message.user_id, message.subject, message.priority) == (b"u" * 20, "s", 255)
    assert message.creation_time == moment.timestamp() * 1000
    assert message.footer == {"a": "b"}


def test_raw_of_what_was_read() -> None:
    payloads = [Message(b"x").encode(), b"no message"]
    read = RecordDecoder([RAW]).decode_messages(payloads)
    assert MessageEncoder(read.schema).encode(read) == payloads
