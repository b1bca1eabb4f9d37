"""A message of AMQP 1.0 becomes one of AMQP 0-9-1, field by field."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import (
    Char,
    Described,
    Float32,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)
from ferrymq_rabbitmq.amqp_0_9_1.conversion.to_0_9_1 import key_of
from ferrymq_types.messaging import (
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    Footer,
    Header,
    MessageAnnotations,
    Properties,
)
from ferrymq_types.unions import Section
from ferrymq_types_0_9_1.basic import BasicProperties
from tests.broker.harness import encode
from tests.rabbitmq.conversion_0_9_1.support import delivered, properties_of, sent

BODY = Data(value=b"x")
ID = UUID("550e8400-e29b-41d4-a716-446655440000")


def test_nothing_but_a_body() -> None:
    content = delivered(sent(BODY))
    assert BasicProperties.from_bytes(content.properties) == BasicProperties()
    assert (content.body, content.exchange, content.routing_key) == (b"x", "", "orders")


def test_where_it_was_published() -> None:
    annotations = MessageAnnotations(value={"x-exchange": "sales", "x-routing-key": "eu"})
    content = delivered(sent(annotations, BODY))
    assert (content.exchange, content.routing_key) == ("sales", "eu")
    assert BasicProperties.from_bytes(content.properties) == BasicProperties()


def test_the_header() -> None:
    fields = properties_of(sent(Header(durable=True, priority=7, ttl=1500), BODY))
    assert fields == BasicProperties(delivery_mode=2, priority=7, expiration="1500")
    # What the sender does not say is not set.
    assert properties_of(sent(Header(priority=7), BODY)) == BasicProperties(priority=7)
    explicit = b"\x00\x53\x70\xc0\x02\x01\x42" + encode(BODY)
    assert properties_of(admit(explicit, 0)) == BasicProperties(delivery_mode=1)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (Properties(message_id="m"), BasicProperties(message_id="m")),
        (Properties(message_id=ID), BasicProperties(message_id=f"urn:uuid:{ID}")),
        (Properties(message_id=5), BasicProperties(message_id="5")),
        (Properties(message_id=b"m"), BasicProperties(headers={"x-message-id": b"m"})),
        (Properties(message_id="é" * 128), BasicProperties(headers={"x-message-id": "é" * 128})),
        (Properties(correlation_id="c"), BasicProperties(correlation_id="c")),
        (Properties(correlation_id=ID), BasicProperties(correlation_id=f"urn:uuid:{ID}")),
        (Properties(correlation_id=5), BasicProperties(correlation_id="5")),
        (Properties(correlation_id=b"c"), BasicProperties(headers={"x-correlation-id": b"c"})),
        (
            Properties(correlation_id="c" * 256),
            BasicProperties(headers={"x-correlation-id": "c" * 256}),
        ),
        (Properties(user_id=b"guest"), BasicProperties(user_id="guest")),
        (Properties(user_id=b"\xff"), BasicProperties()),
        (Properties(user_id=b"u" * 256), BasicProperties()),
        (Properties(reply_to="/queues/a"), BasicProperties(reply_to="/queues/a")),
        (Properties(reply_to="a" * 256), BasicProperties()),
        (Properties(content_type="text/plain"), BasicProperties(content_type="text/plain")),
        (Properties(content_encoding="gzip"), BasicProperties(content_encoding="gzip")),
        (
            Properties(creation_time=1_577_836_800_999),
            BasicProperties(timestamp=datetime(2020, 1, 1, tzinfo=UTC)),
        ),
        (Properties(creation_time=-1), BasicProperties()),
        (Properties(group_id="shop"), BasicProperties(app_id="shop")),
        (
            Properties(to="/queues/q", subject="s", absolute_expiry_time=1, group_sequence=1),
            BasicProperties(),
        ),
    ],
)
def test_properties(properties: Properties, expected: BasicProperties) -> None:
    assert properties_of(sent(properties, BODY)) == expected


def test_annotations() -> None:
    annotations = MessageAnnotations(
        value={
            "x-basic-type": "order",
            "x-cc": ["a", "b"],
            "x-text": "y",
            "x-map": {"a": 1, 5: 2, Symbol("b"): [None]},
            "other": 1,
            7: 1,
            "x-opt-deadletter-count": UInt(1),
        }
    )
    assert properties_of(sent(annotations, BODY)) == BasicProperties(
        type="order",
        headers={"CC": ["a", "b"], "x-text": "y", "x-map": {"a": 1, "b": [None]}},
    )


def test_application_properties() -> None:
    values: dict[str, object] = {
        "string": "é" * 300,
        "symbol": Symbol("s"),
        "char": Char("c"),
        "uuid": ID,
        "binary": b"\x00",
        "true": True,
        "null": None,
        "int": Int(-5),
        "long": -6,
        "ulong": ULong(7),
        "high": ULong((1 << 64) - 1),
        "ubyte": UByte(8),
        "uint": UInt(0xFFFFFFFF),
        "zero": UInt(0),
        "float": Float32(1.5),
        "double": 2.5,
        "time": Timestamp(1_577_836_800_999),
        "early": Timestamp(-1500),
        "decimal": Decimal("1.25"),
        "large": Decimal("1e30"),
        "n" * 256: 1,
    }
    expected = {
        **values,
        "uuid": f"urn:uuid:{ID}",
        "high": str((1 << 64) - 1),
        "time": datetime(2020, 1, 1, tzinfo=UTC),
        "early": -2,
        "large": "1E+30",
    }
    del expected["n" * 256]
    fields = properties_of(sent(ApplicationProperties(value=values), BODY))
    assert fields == BasicProperties(headers=expected)


def test_values_in_containers() -> None:
    value = [Array("uint", [UInt(1), UInt(2)]), Described(5, "x"), {"a": Described(5, "x")}]
    annotations = MessageAnnotations(value={"x-a": value, "x-b": Described(5, "x")})
    assert properties_of(sent(annotations, BODY)) == BasicProperties(
        headers={"x-a": [[1, 2], None, {"a": None}]}
    )


def test_a_name_stands_once() -> None:
    fields = properties_of(
        sent(
            MessageAnnotations(value={"x-a": 1}),
            ApplicationProperties(value={"x-a": 2}),
            BODY,
        )
    )
    assert fields.headers == {"x-a": 1}


def test_failed_deliveries_are_counted() -> None:
    message = sent(
        MessageAnnotations(value={"x-delivery-count": 1}),
        ApplicationProperties(value={"a": 1}),
        BODY,
    )
    assert properties_of(message, 3).headers == {"a": 1, "x-delivery-count": 3}
    assert properties_of(message).headers == {"a": 1, "x-delivery-count": 1}


ENCODED: dict[str, tuple[Section, ...]] = {
    "value": (AmqpValue(value="text"),),
    "null": (AmqpValue(value=None),),
    "sequence": (AmqpSequence(value=[1]), AmqpSequence(value=[2])),
    "data": (Data(value=b"a"), Data(value=b"b")),
}


@pytest.mark.parametrize("name", ENCODED)
def test_other_bodies_stay_encoded(name: str) -> None:
    body = ENCODED[name]
    content = delivered(sent(Properties(message_id="m"), *body, Footer(value={"x-f": 1})))
    assert content.body == encode(*body)
    assert BasicProperties.from_bytes(content.properties) == BasicProperties(
        message_id="m", type="amqp-1.0"
    )


def test_a_body_with_a_footer() -> None:
    content = delivered(sent(BODY, Footer(value={"x-f": 1})))
    assert (content.body, content.properties) == (b"x", b"\x00\x00")


def test_a_null_body_before_the_properties() -> None:
    null = AmqpValue(value=None)
    content = delivered(sent(null, Properties(message_id="m")))
    assert content.body == encode(null)
    assert BasicProperties.from_bytes(content.properties) == BasicProperties(
        message_id="m", type="amqp-1.0"
    )


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_bodies(size: int) -> None:
    assert delivered(sent(Data(value=b"x" * size))).body == b"x" * size


def test_a_message_in_another_format() -> None:
    content = delivered(BrokerMessage(b"raw", 0x100, 0))
    assert (content.properties, content.body) == (b"\x00\x00", b"raw")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not amqp",
        b"\x00\x53\x74\xc1\x09",
        b"\x00\x53\x75\xa0\x09",
        b"\x00\x53\x73\xc0\x02\x01\xff\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x74\xc1\x04\x02\xa1\x01a\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x75\xa1\x01x",
        b"\x00\x80" + bytes(7) + b"\x75\xa0\x01x",
    ],
)
def test_malformed_sections_are_left_out(payload: bytes) -> None:
    content = delivered(BrokerMessage(payload, 0, 0))
    BasicProperties.from_bytes(content.properties)
    BasicProperties.from_bytes(delivered(BrokerMessage(payload, 0, 0), 2).properties)


@pytest.mark.parametrize(
    ("name", "kept"), [("x-exchange", ("", "orders")), ("x-routing-key", ("e", ""))]
)
def test_names_that_are_too_long_for_a_delivery_are_left_out(
    name: str, kept: tuple[str, str]
) -> None:
    annotations: dict[str | int, object] = {
        "x-exchange": "e",
        "x-routing-key": "k",
        name: "é" * 128,
    }
    content = delivered(sent(MessageAnnotations(value=annotations), BODY))
    assert (content.exchange, content.routing_key) == kept
    assert key_of("é" * 128) == ""
