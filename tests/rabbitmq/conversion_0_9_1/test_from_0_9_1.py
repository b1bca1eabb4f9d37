"""A message of AMQP 0-9-1 becomes one of AMQP 1.0, field by field."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from librt.strings import BytesWriter

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.message import admit, restore
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.scalars import (
    Byte,
    Float32,
    Int,
    Short,
    Timestamp,
    UByte,
    UInt,
    UShort,
    equal_values,
)
from ferrymq_codec_0_9_1.timestamps import EpochSeconds
from ferrymq_codec_0_9_1.writer import write_long_string, write_short_string, write_u32
from ferrymq_rabbitmq.amqp_0_9_1.conversion.from_0_9_1 import message_of
from ferrymq_types.messaging import ApplicationProperties, Properties
from tests.broker.harness import Network
from tests.rabbitmq.conversion_0_9_1.support import ROUTED, published, sections

UUID_TEXT = "550e8400-e29b-41d4-a716-446655440000"


def test_nothing_but_a_body() -> None:
    message = published(b"hello")
    assert list(sections(message)) == ["Header", "MessageAnnotations", "Data"]
    assert view_of(message).message_annotations == ROUTED
    # A message without a priority counts as one with the lowest.
    assert (message.durable, message.priority, message.ttl, message.special) == (
        False,
        0,
        -1,
        False,
    )
    assert message.header().priority == 0
    assert message.origin == 7


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bodies(size: int) -> None:
    message = published(b"x" * size)
    assert sections(message)["Data"].value == b"x" * size  # type: ignore[union-attr]


def test_the_header() -> None:
    message = published(delivery_mode=2, priority=9, expiration="1500")
    header = view_of(message).header
    assert (header.durable, header.priority, header.ttl) == (True, 9, 1500)
    assert (message.durable, message.priority, message.ttl) == (True, 9, 1500)
    assert message.special
    message = published(delivery_mode=1)
    assert not view_of(message).header.durable and not message.durable


@pytest.mark.parametrize("expiration", ["", "soon", "-1", "1.5", "4294967296", "٣"])
def test_other_expirations_are_no_ttl(expiration: str) -> None:
    message = published(expiration=expiration)
    assert message.ttl == -1 and view_of(message).header.ttl is None


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("message_id", "m-1", "message_id", "m-1"),
        ("message_id", f"urn:uuid:{UUID_TEXT}", "message_id", UUID(UUID_TEXT)),
        ("message_id", UUID_TEXT, "message_id", UUID_TEXT),
        (
            "message_id",
            f"urn:uuid:{UUID_TEXT.upper()}",
            "message_id",
            f"urn:uuid:{UUID_TEXT.upper()}",
        ),
        ("correlation_id", "c-1", "correlation_id", "c-1"),
        ("correlation_id", f"urn:uuid:{UUID_TEXT}", "correlation_id", UUID(UUID_TEXT)),
        ("user_id", "gäst", "user_id", "gäst".encode()),
        ("reply_to", "answers", "reply_to", "answers"),
        ("app_id", "shop", "group_id", "shop"),
        ("content_type", "text/plain", "content_type", "text/plain"),
        ("content_encoding", "gzip", "content_encoding", "gzip"),
        ("timestamp", datetime(2020, 1, 1, tzinfo=UTC), "creation_time", 1_577_836_800_000),
    ],
)
def test_properties(name: str, value: object, field: str, expected: object) -> None:
    message = published(**{name: value})
    assert sections(message)["Properties"] == Properties(**{field: expected})  # type: ignore[arg-type]
    assert not message.special


def test_the_type_is_an_annotation() -> None:
    annotations = view_of(published(type="order")).message_annotations
    assert annotations == {**ROUTED, "x-basic-type": "order"}


def test_properties_that_amqp_1_0_cannot_hold() -> None:
    message = published(
        content_type="text/é",
        content_encoding="é",
        delivery_mode=3,
        expiration="soon",
        timestamp=EpochSeconds((1 << 64) - 1),
        reserved="cluster",
    )
    assert view_of(message).message_annotations["x-amqp-0-9-1-properties"] == {
        "content-type": "text/é",
        "content-encoding": "é",
        "delivery-mode": 3,
        "expiration": "soon",
        "timestamp": str((1 << 64) - 1),
        "cluster-id": "cluster",
    }


HEADERS: dict[str, object] = {
    "text": "é" * 300,
    "true": True,
    "none": None,
    "int": 5,
    "long": 1 << 40,
    "byte": Byte(-1),
    "ubyte": UByte(255),
    "short": Short(-2),
    "ushort": UShort(65_535),
    "uint": UInt(0xFFFFFFFF),
    "float": Float32(1.5),
    "double": 2.5,
    "binary": b"\xff\x00",
    "decimal": Decimal("1.25"),
    "time": datetime(2020, 1, 1, tzinfo=UTC),
}
VALUES = {**HEADERS, "int": Int(5), "time": Timestamp(1_577_836_800_000)}


def test_headers_are_application_properties() -> None:
    message = published(headers=HEADERS)
    section = sections(message)["ApplicationProperties"]
    assert isinstance(section, ApplicationProperties)
    assert equal_values(section.value, VALUES)
    assert {name: type(value) for name, value in section.value.items()} == {
        name: type(value) for name, value in VALUES.items()
    }


def test_headers_of_extensions_are_annotations() -> None:
    message = published(headers={"x-list": [1, {"a": [None]}], "x-text": "y", "X-other": 1})
    assert view_of(message).message_annotations == {
        **ROUTED,
        "x-list": [1, {"a": [None]}],
        "x-text": "y",
    }
    assert view_of(message).application_properties == {"X-other": 1}
    assert not message.special


def test_annotations_that_the_broker_acts_upon_make_a_message_special() -> None:
    assert published(headers={"x-opt-delivery-delay": 5}).special


def test_other_headers_are_kept_for_consumers_of_amqp_0_9_1() -> None:
    kept: dict[str, object] = {
        "list": [1, "a"],
        "map": {"a": {"b": 1}},
        "x-é": 1,
        "x-exchange": "mine",
        "x-opt-deadletter-count": 5,
    }
    message = published(headers=kept)
    assert view_of(message).message_annotations == {**ROUTED, "x-amqp-0-9-1-headers": kept}
    assert not message.special


def test_copies() -> None:
    message = published(headers={"CC": ["a", "b"], "BCC": ["c"], "n": 1})
    assert view_of(message).message_annotations == {**ROUTED, "x-cc": ["a", "b"]}
    assert view_of(message).application_properties == {"n": 1}


def table(*pairs: tuple[str, bytes]) -> bytes:
    """Encoded properties with a table of headers that has these names and encoded values."""
    w = BytesWriter()
    for name, value in pairs:
        write_short_string(w, name, "name")
        w.write(value)
    content = w.getvalue()
    w = BytesWriter()
    w.write(b"\x20\x00")
    write_u32(w, len(content))
    w.write(content)
    return w.getvalue()


def test_the_last_value_of_a_name_counts() -> None:
    twice = table(("a", b"t\x00"), ("a", b"t\x01"), ("x-b", b"V"))
    view = view_of(message_of(twice, b"", "", "q", 1))
    assert view.application_properties == {"a": True}
    assert view.message_annotations == {"x-exchange": "", "x-routing-key": "q", "x-b": None}
    inner = b"F\x00\x00\x00\x08\x01at\x00\x01at\x01"
    view = view_of(message_of(table(("x-b", inner)), b"", "", "q", 1))
    assert view.message_annotations["x-b"] == {"a": True}


def test_a_text_that_is_not_utf_8_is_binary() -> None:
    w = BytesWriter()
    write_long_string(w, b"\xff", "value")
    view = view_of(message_of(table(("a", b"S" + w.getvalue())), b"", "", "q", 1))
    assert view.application_properties == {"a": b"\xff"}


def test_the_bytes_are_those_of_an_admitted_message() -> None:
    message = published(delivery_mode=2, priority=3, expiration="9", headers=HEADERS, type="t")
    other = admit(message.payload, 0)
    kept = restore(message.payload, 0, message.special, 7)
    assert other.payload == message.payload
    for one in (other, kept):
        assert (one.header_end, one.durable, one.priority, one.ttl, one.special) == (
            message.header_end,
            message.durable,
            message.priority,
            message.ttl,
            message.special,
        )


def test_a_headers_exchange_finds_the_headers() -> None:
    net = Network()
    queue = net.declare("red")
    exchange = net.space.create("/exchanges/colours", ExchangePolicy(type="headers"))
    assert isinstance(exchange, Exchange)
    exchange.bind("red", arguments={"colour": "red", "n": 1})
    net.broker.begin_pass(net.now)
    exchange.publish(published(headers={"colour": "red", "n": 1}))
    exchange.publish(published(headers={"colour": "blue", "n": 1}))
    assert queue.entries.available == 1


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\x80",
        b"\x00\x01",
        b"\x00\x02",
        b"\x80\x00\x05ab",
        b"\x80\x00\x01\xff",
        b"\x20\x00\x00\x00\x00\x09\x01at",
        b"\x20\x00\x00\x00\x00\x02\x01a",
        b"\x20\x00\x00\x00\x00\x03\x01aZ",
        b"\x20\x00\x00\x00\x00\x04\x01\xfft\x00",
        b"\x20\x00\x00\x00\x00\x07\x01aS\x00\x00\x00\x09",
        b"\x20\x00\x00\x00\x00\x07\x01aF\x00\x00\x00\x09",
        b"\x00\x00\x00",
    ],
)
def test_malformed_properties(properties: bytes) -> None:
    with pytest.raises(DecodeError):
        message_of(properties, b"", "", "q", 1)


def test_headers_that_are_nested_too_deeply() -> None:
    value: object = 1
    for _ in range(28):
        value = [value]
    view = view_of(published(headers={"a": value, "x-a": value}))
    assert view.message_annotations["x-a"] == value
    assert view.message_annotations["x-amqp-0-9-1-headers"] == {"a": value}
    with pytest.raises(DecodeError, match="nested too deeply"):
        published(headers={"x-a": [value]})


def test_too_many_values() -> None:
    with pytest.raises(DecodeError, match="too many values"):
        published(headers={"x-a": [None] * 65_536})
