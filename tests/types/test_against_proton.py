"""Messages of Proton, byte for byte where both choose the encoding, else by what they mean."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq_codec import Symbol
from ferrymq_codec.reader import Reader
from ferrymq_types import unions
from ferrymq_types.messaging import (
    AmqpValue,
    ApplicationProperties,
    Data,
    DeliveryAnnotations,
    Header,
    MessageAnnotations,
    Properties,
)
from tests.types.specification import encode

pytestmark = pytest.mark.interop

# Proton's interface is in seconds, and takes empty strings for absent ones.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
SYMBOL = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=10)
SECONDS = st.integers(1, 2**31)

HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "durable": st.just(True),
        "priority": st.integers(0, 255).filter(lambda v: v != 4),
        "first_acquirer": st.just(True),
        "delivery_count": st.integers(1, 2**32 - 1),
    },
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "message_id": TEXT | st.uuids() | st.binary(min_size=1) | st.integers(0, 2**64 - 1),
        "user_id": st.binary(min_size=1, max_size=300),
        "to": TEXT,
        "subject": TEXT,
        "reply_to": TEXT,
        "correlation_id": TEXT | st.uuids() | st.binary(min_size=1) | st.integers(0, 2**64 - 1),
        "content_type": SYMBOL,
        "content_encoding": SYMBOL,
        "absolute_expiry_time": SECONDS,
        "creation_time": SECONDS,
        "group_id": TEXT,
        "reply_to_group_id": TEXT,
    },
)
NAMES = {
    "message_id": "id",
    "to": "address",
    "absolute_expiry_time": "expiry_time",
}


def proton_message(fields: dict[str, Any], **more: Any) -> proton.Message:
    message = proton.Message(**more)
    for name, value in fields.items():
        if name in ("message_id", "correlation_id") and isinstance(value, int):
            value = proton.ulong(value)
        setattr(message, NAMES.get(name, name), value)
    return message


def ours(fields: dict[str, Any]) -> Properties:
    milliseconds = {
        name: value * 1000
        for name, value in fields.items()
        if name in ("absolute_expiry_time", "creation_time")
    }
    # Proton never sends a group without a sequence number in it.
    sequence = {"group_sequence": 0} if "group_id" in fields else {}
    return Properties(**{**fields, **milliseconds, **sequence})


def sections(data: bytes) -> list[Any]:
    r = Reader(data, 0, len(data))
    found = []
    while r.remaining():
        found.append(unions.decode_section(r, "message"))
    return found


@settings(max_examples=200)
@given(HEADERS, PROPERTIES, st.binary(max_size=300))
def test_same_bytes(header: dict[str, Any], properties: dict[str, Any], body: bytes) -> None:
    message = proton_message({**header, **properties}, body=body, inferred=True)
    expected = message.encode()
    parts = [Header(**header), ours(properties), Data(body)]
    assert b"".join(encode(part) for part in parts).hex() == expected.hex()


@settings(max_examples=100)
@given(HEADERS, PROPERTIES, st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_proton_reads_what_we_write(
    header: dict[str, Any], properties: dict[str, Any], body: str
) -> None:
    parts = [
        Header(**header),
        DeliveryAnnotations({"d": 1}),
        MessageAnnotations({"m": "x", 5: None}),
        ours(properties),
        ApplicationProperties({"a": 1, "b": True, "c": Symbol("s")}),
        AmqpValue(body),
    ]
    message = proton.Message()
    message.decode(b"".join(encode(part) for part in parts))
    assert message.durable == header.get("durable", False)
    assert message.priority == header.get("priority", 4)
    assert message.delivery_count == header.get("delivery_count", 0)
    assert message.first_acquirer == header.get("first_acquirer", False)
    for name, value in properties.items():
        assert getattr(message, NAMES.get(name, name)) == value
    assert message.instructions == {proton.symbol("d"): 1}
    assert message.annotations == {proton.symbol("m"): "x", 5: None}
    assert message.properties == {"a": 1, "b": True, "c": proton.symbol("s")}
    assert message.body == body


@settings(max_examples=100)
@given(HEADERS, PROPERTIES, st.dictionaries(TEXT, st.integers(-(2**63), 2**63 - 1), max_size=3))
def test_we_read_what_proton_writes(
    header: dict[str, Any], properties: dict[str, Any], extra: dict[str, int]
) -> None:
    message = proton_message({**header, **properties}, body={"k": [1, None]}, properties=extra)
    message.annotations = {proton.symbol("x-opt"): "v"}
    expected: list[Any] = [Header(**header), MessageAnnotations({"x-opt": "v"}), ours(properties)]
    expected.append(ApplicationProperties(extra))
    assert sections(bytes(message.encode())) == [*expected, AmqpValue({"k": [1, None]})]
