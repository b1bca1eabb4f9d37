"""Messages as bytes: what is read of them, and how little is changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.message import admit
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.scalars import Symbol, UByte
from ferrymq_types.messaging import (
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    DeliveryAnnotations,
    Footer,
    Header,
    MessageAnnotations,
    Properties,
)
from ferrymq_types.unions import Section
from tests.broker.harness import decode, encode

HEADER = Header(durable=True, priority=9, ttl=1000, first_acquirer=True, delivery_count=2)
ANNOTATIONS = MessageAnnotations(value={"x-opt-key": "value", "x-opt-other": 7})
BARE: list[Section] = [
    Properties(message_id="id", to="there"),
    ApplicationProperties(value={"k": 1}),
    Data(value=b"body"),
    Footer(value={"x": 1}),
]


def symbolic(payload: bytes, code: int, name: str) -> bytes:
    """The payload with the first descriptor of this code written as a symbol."""
    return payload.replace(bytes((0, 0x53, code)), bytes((0, 0xA3, len(name))) + name.encode(), 1)


@pytest.mark.spec("3.2.2")
@pytest.mark.parametrize("before", [[], [HEADER]])
@pytest.mark.parametrize("after", [[], [ANNOTATIONS]])
def test_delivery_annotations_end_at_the_broker(
    before: list[Section], after: list[Section]
) -> None:
    payload = encode(*before, DeliveryAnnotations(value={"x-opt-hop": 1}), *after, *BARE)
    assert admit(payload, 0).payload == encode(*before, *after, *BARE)


def test_nothing_else_is_changed() -> None:
    payload = encode(HEADER, ANNOTATIONS, *BARE)
    assert admit(payload, 0).payload is payload


def test_symbolic_descriptors_are_understood() -> None:
    payload = symbolic(encode(HEADER, *BARE), 0x70, "amqp:header:list")
    message = admit(payload, 0)
    assert message.header() == HEADER
    assert decode(message.redelivery(1))[0] == Header(
        durable=True, priority=9, ttl=1000, delivery_count=3
    )


def test_symbolic_delivery_annotations_end_too() -> None:
    payload = encode(HEADER, DeliveryAnnotations(value={"a": 1}), *BARE)
    payload = symbolic(payload, 0x71, "amqp:delivery-annotations:map")
    assert admit(payload, 0).payload == encode(HEADER, *BARE)


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("before", [[], [HEADER]])
@pytest.mark.parametrize("again", [DeliveryAnnotations(value={"x-opt-hop": 1}), HEADER])
def test_what_must_not_follow_delivery_annotations(before: list[Section], again: Section) -> None:
    """It would be taken for the broker's own; and a header that nobody has looked at could not be
    read when the message is taken from the store."""
    annotations = DeliveryAnnotations(value={"x-opt-hop": 1})
    with pytest.raises(DecodeError, match=r"second delivery-annotations|header after"):
        admit(encode(*before, annotations, again, *BARE), 0)


@pytest.mark.parametrize("with_header", [True, False])
def test_a_redelivery_changes_the_header_only(with_header: bool) -> None:
    sections: list[Section] = [ANNOTATIONS, *BARE]
    message = admit(encode(*([HEADER] if with_header else []), *sections), 0)
    first, *rest = decode(message.redelivery(3))
    assert isinstance(first, Header)
    assert first.delivery_count == (5 if with_header else 3)
    assert not first.first_acquirer
    assert first.durable is with_header
    assert rest == sections


def test_a_redelivery_without_a_change_is_the_same_bytes() -> None:
    message = admit(encode(Header(priority=3), *BARE), 0)
    assert message.redelivery(0) is message.payload


def test_the_delivery_count_does_not_wrap() -> None:
    message = admit(encode(Header(delivery_count=0xFFFFFFFE), *BARE), 0)
    first, *_ = decode(message.redelivery(5))
    assert isinstance(first, Header) and first.delivery_count == 0xFFFFFFFF


@pytest.mark.parametrize("with_header", [True, False])
@pytest.mark.parametrize("with_annotations", [True, False])
def test_annotations_are_merged(with_header: bool, with_annotations: bool) -> None:
    before: list[Section] = [HEADER] if with_header else []
    old: list[Section] = [ANNOTATIONS] if with_annotations else []
    message = admit(encode(*before, *old, *BARE), 0).annotated({"x-opt-key": "new", "more": None})
    merged: dict[str | int, object] = {"x-opt-key": "new", "more": None}
    if with_annotations:
        merged["x-opt-other"] = 7
    assert decode(message.payload) == [*before, MessageAnnotations(value=merged), *BARE]
    assert message.header() == (HEADER if with_header else Header())


def test_where_a_message_wants_to_go() -> None:
    assert admit(encode(HEADER, ANNOTATIONS, *BARE), 0).to() == "there"
    assert admit(encode(Properties(to="x")), 0).to() == "x"
    assert admit(encode(Properties()), 0).to() is None
    assert admit(encode(Data(value=b"")), 0).to() is None
    assert admit(b"", 0).to() is None
    assert admit(encode(Properties(to="x")), 0x80013700).to() is None


def test_an_opaque_message_is_never_changed() -> None:
    payload = encode(HEADER, DeliveryAnnotations(value={"a": 1}), *BARE)
    message = admit(payload, 0x80013700)
    assert message.payload is payload
    assert message.redelivery(5) is payload
    assert message.annotated({"a": 1}) is message


def test_large_sections_are_found() -> None:
    big = MessageAnnotations(value={f"key-{i}": "x" * 50 for i in range(100)})
    hop = DeliveryAnnotations(value={f"key-{i}": "x" * 50 for i in range(100)})
    message = admit(encode(HEADER, hop, big, *BARE), 0)
    assert decode(message.payload) == [HEADER, big, *BARE]
    assert message.to() == "there"


def test_truncation_is_an_error_or_harmless() -> None:
    payload = encode(HEADER, DeliveryAnnotations(value={"a": 1}), ANNOTATIONS, *BARE)
    for end in range(len(payload)):
        try:
            message = admit(payload[:end], 0)
            message.header()
            message.redelivery(1)
            message.annotated({"a": 1})
            message.to()
        except DecodeError:
            pass


@given(st.binary(max_size=64), st.integers(0, 60))
def test_any_bytes_are_admitted_or_a_decode_error(noise: bytes, at: int) -> None:
    payload = encode(HEADER, ANNOTATIONS, Properties(to="x"), Data(value=b"x"))
    at = min(at, len(payload))
    for candidate in (noise, payload[:at] + noise, payload[:at] + noise + payload[at:]):
        try:
            message = admit(candidate, 0)
            message.redelivery(1)
            message.annotated({"a": 1})
            message.to()
        except DecodeError:
            pass


ORDER: list[Section] = [HEADER, DeliveryAnnotations(value={"a": 1}), ANNOTATIONS, *BARE]


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("first", range(len(ORDER)))
@pytest.mark.parametrize("second", range(len(ORDER)))
def test_sections_come_once_and_in_order(first: int, second: int) -> None:
    sections = [ORDER[first], ORDER[second]]
    # rhea encodes the footer in front of the body.
    is_footer_first = isinstance(ORDER[first], Footer) and isinstance(ORDER[second], Data)
    is_data_again = first == second and isinstance(ORDER[first], Data)
    if first < second or is_data_again or is_footer_first:
        admit(encode(*sections), 0)
    else:
        with pytest.raises(DecodeError):
            admit(encode(*sections), 0)


@pytest.mark.spec("3.2")
def test_a_body_is_of_one_kind() -> None:
    data, sequence, value = Data(value=b""), AmqpSequence(value=[1]), AmqpValue(value=1)
    admit(encode(data, data), 0)
    admit(encode(sequence, sequence), 0)
    for bodies in ((value, value), (data, value), (value, data), (sequence, data)):
        with pytest.raises(DecodeError):
            admit(encode(*bodies), 0)


@pytest.mark.spec("3.2")
def test_a_null_body_may_come_before_the_properties() -> None:
    null = AmqpValue(value=None)
    admit(encode(null, Properties(to="x"), ApplicationProperties(value={"a": 1})), 0)
    for behind in (HEADER, ANNOTATIONS, null, Data(value=b"")):
        with pytest.raises(DecodeError):
            admit(encode(null, behind), 0)
    with pytest.raises(DecodeError):
        admit(encode(AmqpValue(value=1), Properties(to="x")), 0)


@pytest.mark.spec("3.2.10")
@pytest.mark.parametrize("before", [[], [HEADER], [HEADER, DeliveryAnnotations(value={"a": 1})]])
def test_string_keys_of_annotations_become_symbols(before: list[Section]) -> None:
    strings = encode(*before, ANNOTATIONS, *BARE).replace(
        b"\xa3\x09x-opt-key", b"\xa1\x09x-opt-key"
    )
    strings = strings.replace(b"\xa3\x01x", b"\xa1\x01x")
    kept = [section for section in before if isinstance(section, Header)]
    message = admit(strings, 0)
    assert message.payload == encode(*kept, ANNOTATIONS, *BARE)
    assert message.special


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 255).map(UByte),
    st.floats(),
    st.text(max_size=8),
    st.text(st.characters(max_codepoint=127), max_size=8).map(Symbol),
    st.binary(max_size=8),
    st.uuids(),
    st.lists(st.integers(0, 9), max_size=2),
)
KEYS = st.sampled_from(["x-opt-a", "x-opt-b", "x-opt-aa", "a", "é", ""])


@pytest.mark.spec("3.2.3")
@given(
    st.dictionaries(KEYS, SCALARS, max_size=10),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=2),
    st.sampled_from([MessageAnnotations, Footer]),
)
def test_annotations_that_are_taken_can_be_decoded(
    values: dict[str, object],
    changes: list[tuple[int, int]],
    kind: type[MessageAnnotations] | type[Footer],
) -> None:
    whole = {key: value for key, value in values.items() if key.isascii()}
    payload = bytearray(encode(kind(value=whole)))
    for at, byte in changes:
        # The map alone: its constructor, size, count and content.
        if 3 + at < len(payload):
            payload[3 + at] = byte
    annotated = bytes(payload)
    body = encode(Data(value=b"body"))
    try:
        message = admit(annotated + body if kind is MessageAnnotations else body + annotated, 0)
    except DecodeError:
        assert changes
        return
    decoded = decode(message.payload)
    if not changes:
        [section] = [one for one in decoded if isinstance(one, kind)]
        assert repr(section) == repr(kind(value=whole))


@pytest.mark.spec("3.2.3")
@pytest.mark.parametrize(
    "content",
    [
        b"\x04\xa3\x01a\x40\xa3\x01a\x41",
        b"\x03\xa3\x01a\x40\xa3\x01b",
        b"\x02\xa3\x01\xc3\x40",
        b"\x02\x40\x40",
        b"\x02\xa3\x01a\xa1\x01\xff",
        b"\x02\xa3\x05a\x40",
        b"\x02\xa3\x01a\x80\x00",
    ],
    ids=["twice", "odd", "not-ascii", "null-key", "not-utf-8", "cut-key", "cut-value"],
)
def test_what_is_no_map_of_annotations_is_refused(content: bytes) -> None:
    section = b"\x00\x53\x72\xc1" + bytes((len(content),)) + content
    with pytest.raises(DecodeError):
        admit(section + encode(Data(value=b"body")), 0)
