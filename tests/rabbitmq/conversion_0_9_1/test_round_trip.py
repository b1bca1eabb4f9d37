"""What a client of AMQP 0-9-1 publishes, another one gets."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.scalars import Byte, Float32, Short, UByte, UInt, UShort
from ferrymq_codec_0_9_1.timestamps import EpochSeconds
from ferrymq_rabbitmq.amqp_0_9_1.conversion import from_0_9_1, to_0_9_1
from ferrymq_rabbitmq.amqp_0_9_1.conversion.cache_budget import MAX_BYTES, MAX_ENTRIES, MAX_ENTRY
from ferrymq_rabbitmq.amqp_0_9_1.conversion.from_0_9_1 import message_of
from ferrymq_rabbitmq.amqp_0_9_1.conversion.to_0_9_1 import content_of
from ferrymq_types_0_9_1.basic import BasicProperties

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SHORT = TEXT.map(lambda text: text[:60])
NAMES = SHORT.filter(lambda name: name != "BCC") | st.sampled_from(
    ["x-a", "x-exchange", "x-routing-key", "x-cc", "x-basic-type", "x-opt-deadletter-x", "CC"]
)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)).map(
    lambda time: time.replace(microsecond=0)
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    TEXT,
    st.binary(max_size=20),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-128, 127).map(Byte),
    st.integers(0, 255).map(UByte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(Short),
    st.integers(0, 65_535).map(UShort),
    st.integers(0, (1 << 32) - 1).map(UInt),
    st.floats(width=32, allow_nan=False).map(Float32),
    st.floats(allow_nan=False),
    TIMES,
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 255)).map(
        lambda pair: Decimal(pair[0]).scaleb(-pair[1])
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHORT, inner, max_size=3),
    max_leaves=6,
)
HEADERS = st.dictionaries(NAMES, VALUES, max_size=6)


def maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


PROPERTIES = st.builds(
    BasicProperties,
    content_type=maybe(SHORT),
    content_encoding=maybe(SHORT),
    headers=maybe(HEADERS),
    delivery_mode=maybe(st.integers(0, 255)),
    priority=maybe(st.integers(0, 255)),
    correlation_id=maybe(SHORT | st.uuids().map(lambda id: f"urn:uuid:{id}")),
    reply_to=maybe(SHORT),
    expiration=maybe(
        st.integers(0, 1 << 33).map(str)
        | SHORT.filter(lambda text: not (text.isascii() and text.isdigit()))
    ),
    message_id=maybe(SHORT | st.uuids().map(lambda id: f"urn:uuid:{id}")),
    timestamp=maybe(TIMES | st.integers(1 << 50, (1 << 64) - 1).map(EpochSeconds)),
    type=maybe(SHORT),
    user_id=maybe(SHORT),
    app_id=maybe(SHORT),
    reserved=maybe(SHORT),
)


@given(PROPERTIES, st.binary(max_size=300), SHORT, SHORT)
def test_properties_come_back(
    properties: BasicProperties, body: bytes, exchange: str, key: str
) -> None:
    encoded = properties.to_bytes()
    message = message_of(encoded, body, exchange, key, 1)
    # Consumers of AMQP 1.0 and the store read the same bytes.
    assert admit(message.payload, 0).payload == message.payload
    content = content_of(message, "orders", 0)
    back = BasicProperties.from_bytes(content.properties)
    assert back == BasicProperties.from_bytes(encoded)
    assert (content.body, content.exchange, content.routing_key) == (body, exchange, key)
    # The letters are the same, too: only the order of headers may differ.
    assert len(content.properties) == len(encoded)


@given(st.binary(max_size=60), st.integers(0, 0xFFFC))
def test_malformed_properties_raise_decode_errors_only(rest: bytes, flags: int) -> None:
    for data in (rest, flags.to_bytes(2, "big") + rest):
        try:
            message = message_of(data, b"", "", "q", 1)
        except DecodeError:
            continue
        BasicProperties.from_bytes(content_of(message, "q", 0).properties)


@given(PROPERTIES, st.data())
def test_damaged_properties_raise_decode_errors_only(
    properties: BasicProperties, data: st.DataObject
) -> None:
    damaged = bytearray(properties.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = message_of(bytes(damaged), b"", "", "q", 1)
    except DecodeError:
        return
    BasicProperties.from_bytes(content_of(message, "q", 0).properties)
    assert admit(message.payload, 0).payload == message.payload


@given(PROPERTIES, st.data())
def test_a_damaged_message_is_delivered(properties: BasicProperties, data: st.DataObject) -> None:
    damaged = bytearray(message_of(properties.to_bytes(), b"body", "e", "k", 1).payload)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    content = content_of(BrokerMessage(bytes(damaged), 0, 0), "orders", 1)
    BasicProperties.from_bytes(content.properties)


def test_the_caches_are_bounded() -> None:
    for size in (10, 200):
        for number in range(2 * MAX_ENTRIES):
            fields = BasicProperties(message_id=f"{number:0{size}}", headers={"a": "b" * 1000})
            message = message_of(fields.to_bytes(), b"x", "sales", "key", 1)
            content_of(message, "orders", 0)
            for heads, budget in (
                (from_0_9_1._heads, from_0_9_1._budget),
                (to_0_9_1._heads, to_0_9_1._budget),
            ):
                assert 0 < len(heads) == budget.entries <= MAX_ENTRIES
                assert budget.bytes <= MAX_BYTES


def test_large_properties_are_not_kept() -> None:
    before = from_0_9_1._budget.entries
    fields = BasicProperties(headers={"a": "b" * MAX_ENTRY})
    message = message_of(fields.to_bytes(), b"x", "sales", "key", 1)
    assert BasicProperties.from_bytes(content_of(message, "orders", 0).properties) == fields
    assert from_0_9_1._budget.entries == before
