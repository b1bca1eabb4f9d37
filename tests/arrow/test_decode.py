"""Whatever messages there are and whichever columns: the same as by decoding each as a whole."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.arrow import METADATA, RAW, ColumnError, RecordDecoder
from ferrymq.chunks import Chunk, ChunkBuilder
from ferrymq.message import Message
from ferrymq.testing.strategies import messages, values
from ferrymq_codec.containers import Array, PairMap
from ferrymq_codec.scalars import Described, Int, Symbol, Timestamp, ULong
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data
from tests.arrow.reference import batch_of, rows_of_chunk, rows_of_messages

ALL = (*METADATA, RAW)
columns = st.lists(st.sampled_from(ALL), unique=True, max_size=len(ALL))
# Times whose µs are within 64 bits, mostly; a chunk has no others unless a clock is mad.
times = st.integers(0, 1 << 42) | st.integers(-(1 << 63), (1 << 63) - 1)
places = st.fixed_dictionaries(
    {},
    optional={
        "x-opt-partition": st.integers(-1, 1 << 33) | st.just(Int(3)) | values(),
        "x-opt-partition-key": values(),
        "x-opt-sequence-number": st.integers(-1, (1 << 63) - 1) | st.just("17") | values(),
        "x-opt-offset": st.integers(0, 99) | st.just("123456") | values(),
        "x-opt-enqueued-time": st.integers(0, 1 << 42).map(Timestamp) | values(),
        "x-opt-skipped": st.integers(0, 9),
    },
)


@st.composite
def annotated(draw: st.DrawFn) -> Message:
    message = draw(messages())
    message.message_annotations.update(draw(places))
    return message


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    builder = ChunkBuilder()
    first = draw(st.integers(0, 1 << 40))
    builder.begin(first)
    offset = first
    for message in draw(st.lists(annotated(), max_size=3)):
        offset += draw(st.sampled_from([0, 0, 0, 1, 5]))
        message_format = draw(st.sampled_from([0, 0, 0, 0, 7, 0xFFFFFFFF]))
        builder.add(message.encode(), draw(times), offset, message_format)
        offset += 1
    return Chunk(builder.build(offset, offset))


def same(found: pa.RecordBatch, wanted: pa.RecordBatch) -> None:
    assert found.schema.equals(wanted.schema, check_metadata=True)
    for name, left, right in zip(found.schema.names, found.columns, wanted.columns, strict=True):
        assert left.equals(right), name


@given(chunks(), columns)
def test_chunks(chunk: Chunk, names: list[str]) -> None:
    batch = RecordDecoder(names, "orders::3", 3).decode(chunk)
    batch.validate(full=True)
    wanted = batch_of(rows_of_chunk(chunk, "orders::3", 3), names)
    same(batch, wanted)


@given(st.lists(annotated(), max_size=3), columns)
def test_messages(given_messages: list[Message], names: list[str]) -> None:
    payloads = [message.encode() for message in given_messages]
    batch = RecordDecoder(names, "queue", 5).decode_messages(payloads)
    batch.validate(full=True)
    wanted = batch_of(rows_of_messages(payloads, "queue", 5), names)
    same(batch, wanted)


@given(
    st.lists(st.tuples(annotated(), st.integers(0, 1 << 30), st.integers(0, 255)), max_size=3),
    st.randoms(use_true_random=False),
)
def test_damaged_messages_are_rows_all_the_same(
    damaged: list[tuple[Message, int, int]], random: Any
) -> None:
    payloads = []
    for message, at, byte in damaged:
        payload = bytearray(message.encode())
        payload[at % len(payload)] = byte
        if random.random() < 0.3:
            del payload[random.randrange(len(payload)) :]
        payloads.append(bytes(payload))
    # With all columns all of a message is read, so that nothing wrong with it is passed over.
    batch = RecordDecoder(ALL, "queue").decode_messages(payloads)
    batch.validate(full=True)
    same(batch, batch_of(rows_of_messages(payloads, "queue", None), ALL))


@given(
    st.lists(st.binary(max_size=60), max_size=6),
    columns,
)
def test_bytes_that_are_no_message_are_rows_all_the_same(
    payloads: list[bytes], names: list[str]
) -> None:
    batch = RecordDecoder([*names, RAW] if RAW not in names else names).decode_messages(payloads)
    batch.validate(full=True)
    assert batch.column(RAW).to_pylist() == payloads


@pytest.mark.parametrize(
    ("names", "appended"),
    [
        *[(names, b"\x40") for names in (["durable"], ["to"], ["to", "replyToGroupId"], ALL)],
        (ALL, b"\x40\x40"),
        (ALL, b"\x41"),
        (ALL, b"\x40\x41"),
    ],
)
def test_fields_behind_the_last_one(names: list[str], appended: bytes) -> None:
    """Nulls are no fields; anything else is, and nobody knows it."""
    header = b"\x41" + b"\x40" * 4 + appended
    properties = b"\x40\x40\xa1\x01q" + b"\x40" * 10 + appended
    payloads = [
        b"\x00\x53%c\xc0%c%c%s\x00\x53\x75\xa0\x01x"
        % (code, len(fields) + 1, known + len(appended), fields)
        for code, known, fields in ((0x70, 5, header), (0x73, 13, properties))
    ]
    batch = RecordDecoder(names, "queue").decode_messages(payloads)
    same(batch, batch_of(rows_of_messages(payloads, "queue", None), names))


def one(message: Message | bytes, *names: str) -> Any:
    payload = message.encode() if isinstance(message, Message) else message
    batch = RecordDecoder(names).decode_messages([payload])
    values = [column[0].as_py() for column in batch.columns]
    return values[0] if len(values) == 1 else values


@pytest.mark.parametrize(
    ("body", "kind", "wanted"),
    [
        (b"abc", "data", b"abc"),
        ([Data(b"ab"), Data(b""), Data(b"c" * 20)], "data", b"ab" + b"c" * 20),
        ("plain", "value", b'"plain"'),
        (None, "value", b"null"),
        (AmqpValue(b"\x00\xff"), "value", b'"AP8="'),
        (AmqpSequence([1, "ü", None]), "sequence", '[1,"ü",null]'.encode()),
        ([AmqpSequence([1]), AmqpSequence([2.5])], "sequence", b"[1,2.5]"),
        ({"a": float("nan"), 2: True}, "value", b'{"a":"NaN","2":true}'),
        (Timestamp(1767323045678), "value", b'"2026-01-02T03:04:05.678Z"'),
        (Timestamp(1 << 62), "value", b"4611686018427387904"),
        (Array("uint", [1, 2]), "value", b"[1,2]"),
        (
            Described(Symbol("a:b"), [ULong(1)]),
            "value",
            b'{"descriptor":"a:b","value":[1]}',
        ),
    ],
)
def test_bodies(body: object, kind: str, wanted: bytes) -> None:
    assert one(Message(body), "body", "bodyType") == [wanted, kind]


def test_a_message_without_a_body_has_none() -> None:
    assert one(b"", "body", "bodyType", "priority", "footer") == [None, None, 4, None]


def test_malformed_and_foreign_messages_have_their_bytes_for_a_body() -> None:
    decoder = RecordDecoder(["body", "bodyType", "raw", "priority", "subject"])
    whole = Message(b"x", subject="s").encode()
    batch = decoder.decode_messages([whole, whole[:-1], b"\x0a\x0b"], [0, 0, 0x80000001])
    assert batch.to_pylist() == [
        {"body": b"x", "bodyType": "data", "raw": whole, "priority": 4, "subject": "s"},
        {
            "body": whole[:-1],
            "bodyType": "malformed",
            "raw": whole[:-1],
            "priority": None,
            "subject": None,
        },
        {
            "body": b"\x0a\x0b",
            "bodyType": "foreign",
            "raw": b"\x0a\x0b",
            "priority": None,
            "subject": None,
        },
    ]


def test_a_value_that_would_fill_memory_is_malformed() -> None:
    # An array of four thousand million times true, in a few bytes.
    payload = b"\x00\x53\x77\xf0" + (5).to_bytes(4, "big") + b"\xff\xff\xff\xff" + b"\x41"
    assert Message.decode(payload).body[0] is True
    assert one(payload, "body", "bodyType") == [payload, "malformed"]


def test_many_values_that_grow_do_not_fill_memory_either() -> None:
    payload = b"\x00\x53\x77\xf0" + (5).to_bytes(4, "big") + b"\x00\x00\xff\xff" + b"\x41"
    batch = RecordDecoder(["body", "bodyType"]).decode_messages([payload] * 100)
    batch.validate(full=True)
    kinds = batch.column("bodyType").to_pylist()
    assert kinds[0] == "value"
    assert kinds[-1] == "malformed"
    assert batch.column("body").nbytes < 2 << 20


def nested(depth: int) -> bytes:
    """Maps as keys of maps: as JSON each has twice the backslashes of the one inside."""
    value: object = "x"
    for _ in range(depth):
        value = PairMap([(value, 1)])
    return Message(AmqpValue(value=value)).encode()


def described(size: int, count: int) -> bytes:
    """An array of zeros; its descriptor, of so many bytes, is that of each."""
    name = b"\xb3" + size.to_bytes(4, "big") + b"s" * size
    body = count.to_bytes(4, "big") + b"\x00" + name + b"\x43"
    return b"\x00\x53\x77\xf0" + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("payload", [nested(29), described(100_000, 60_000)], ids=["keys", "names"])
def test_a_small_value_with_an_endless_text_is_malformed_and_costs_others_nothing(
    payload: bytes,
) -> None:
    good = Message(AmqpValue(value=["good", 1, None])).encode()
    tracemalloc.start()
    try:
        rows = RecordDecoder(["body", "bodyType"]).decode_messages([good, *[payload] * 20, good])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bodies, kinds = rows.column("body").to_pylist(), rows.column("bodyType").to_pylist()
    assert (bodies[0], kinds[0]) == (bodies[-1], kinds[-1]) == (b'["good",1,null]', "value")
    assert kinds[1:-1] == ["malformed"] * 20 and bodies[1:-1] == [payload] * 20
    # Ten times what there is, and some more.
    assert peak < 10 * 20 * len(payload) + (16 << 20)


def test_the_sequence_number_is_the_offset_where_there_is_one() -> None:
    annotations = {"x-opt-offset": "4096", "x-opt-sequence-number": 7}
    assert one(Message(b"", message_annotations=annotations), "offset") == 7
    assert one(Message(b"", message_annotations={"x-opt-offset": "4096"}), "offset") == 4096


def test_position_keys_are_no_annotations_of_their_own() -> None:
    annotations: dict[str | int, object] = {"x-opt-offset": 1, "x-opt-partition-key": "k"}
    annotations.update({"mine": 5, 7: None})
    message = Message(b"", message_annotations=annotations, footer={"x-opt-offset": 1})
    assert one(message, "messageAnnotations", "partitionKey", "footer") == [
        [("mine", "5"), ("7", None)],
        "k",
        [("x-opt-offset", "1")],
    ]


def test_formats_are_as_many_as_payloads() -> None:
    with pytest.raises(ValueError, match="1 message-formats for 2 payloads"):
        RecordDecoder().decode_messages([b"", b""], [0])


def test_a_column_that_is_none() -> None:
    with pytest.raises(ColumnError, match="did you mean 'body'"):
        RecordDecoder(["bdoy"])


def test_raw_is_not_copied() -> None:
    builder = ChunkBuilder()
    builder.add(Message(b"x" * 100).encode(), 5, 0, 0)
    chunk = Chunk(builder.build(1, 1))
    array = RecordDecoder([RAW, "enqueuedTime"]).decode(chunk).column(RAW)
    start = array.buffers()[2].address
    assert start - chunk.payloads_at == array.buffers()[1].address - chunk.ends_at
