"""`Message`: its fields, its three kinds of body, and its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.errors import DecodeError, EncodeError
from ferrymq.message import Message
from ferrymq.testing.strategies import messages
from ferrymq_codec import Array, Described, PairMap, Symbol, ULong
from ferrymq_codec.containers import Repeated
from ferrymq_types.messaging import (
    Accepted,
    AmqpSequence,
    AmqpValue,
    Data,
    DeliveryAnnotations,
    Header,
    Properties,
)
from ferrymq_types.transport import Error
from tests.support.script import encode

HEADER = b"\x00\x53\x70\x45"
DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xc1\x01\x00"
MESSAGE_ANNOTATIONS = b"\x00\x53\x72\xc1\x01\x00"
PROPERTIES = b"\x00\x53\x73\x45"
APPLICATION_PROPERTIES = b"\x00\x53\x74\xc1\x01\x00"
DATA = b"\x00\x53\x75\xa0\x01x"
SEQUENCE = b"\x00\x53\x76\x45"
VALUE = b"\x00\x53\x77\x40"
FOOTER = b"\x00\x53\x78\xc1\x01\x00"
SECTIONS = (
    HEADER,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
)


@given(messages())
def test_a_message_survives_the_wire(message: Message) -> None:
    assert Message.decode(message.encode()) == message


@given(messages(), st.data())
def test_damaged_bytes_give_a_message_or_a_decode_error(
    message: Message, data: st.DataObject
) -> None:
    encoded = bytearray(message.encode())
    at = data.draw(st.integers(0, len(encoded) - 1))
    if data.draw(st.booleans()):
        del encoded[at:]
    else:
        encoded[at] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(Message.decode(bytes(encoded)), Message)
    except DecodeError:
        pass


class TestFields:
    def test_missing_sections_read_as_the_defaults_of_their_fields(self) -> None:
        message = Message(b"")
        assert message.header is None
        assert message.properties is None
        assert (message.durable, message.priority, message.ttl) == (False, 4, None)
        assert (message.first_acquirer, message.delivery_count) == (False, 0)
        assert message.subject is None
        assert message.message_id is None

    def test_arguments_arrive_in_their_sections(self) -> None:
        message = Message(
            b"",
            durable=True,
            priority=9,
            ttl=1,
            delivery_count=2,
            message_id=7,
            to="q",
            subject="s",
            reply_to="r",
            correlation_id="c",
            content_type="text/plain",
            group_sequence=3,
        )
        assert message.header == Header(durable=True, priority=9, ttl=1000, delivery_count=2)
        assert message.properties == Properties(
            message_id=7,
            to="q",
            subject="s",
            reply_to="r",
            correlation_id="c",
            content_type="text/plain",
            group_sequence=3,
        )

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("durable", True),
            ("priority", 7),
            ("ttl", 5),
            ("first_acquirer", True),
            ("delivery_count", 3),
            ("message_id", "m"),
            ("user_id", b"u"),
            ("to", "t"),
            ("subject", "s"),
            ("reply_to", "r"),
            ("correlation_id", 9),
            ("content_type", "a/b"),
            ("content_encoding", "gzip"),
            ("absolute_expiry_time", 1),
            ("creation_time", 2),
            ("group_id", "g"),
            ("group_sequence", 4),
            ("reply_to_group_id", "h"),
            ("application_properties", {"a": 1}),
            ("message_annotations", {"x-a": 1, 5: None}),
            ("delivery_annotations", {"x-b": [1]}),
            ("footer", {"x-c": "d"}),
        ],
    )
    def test_a_field_set_later_equals_one_given_at_once(self, name: str, value: object) -> None:
        message = Message(b"b")
        setattr(message, name, value)
        assert getattr(message, name) == value
        given_at_once = Message(b"b", **{name: value})
        assert message == given_at_once
        assert message != Message(b"b")
        assert Message.decode(message.encode()) == given_at_once

    def test_maps_can_be_filled_in_place(self) -> None:
        message = Message(b"")
        message.application_properties["colour"] = "red"
        message.message_annotations["x-opt-a"] = 1
        message.delivery_annotations["x-opt-b"] = 2
        message.footer["x-opt-c"] = 3
        again = Message.decode(message.encode())
        assert again.application_properties == {"colour": "red"}
        assert again.message_annotations == {"x-opt-a": 1}
        assert again.delivery_annotations == {"x-opt-b": 2}
        assert again.footer == {"x-opt-c": 3}

    def test_the_header_can_be_changed_in_place(self) -> None:
        message = Message(b"x", durable=True)
        header = message.header
        assert isinstance(header, Header) and header.durable
        header.priority = 7
        assert message.priority == 7 and message.durable
        assert Message.decode(message.encode()) == Message(b"x", durable=True, priority=7)
        message.header = None
        assert Message.decode(message.encode()) == message == Message(b"x")

    def test_sections_of_a_body_can_be_changed_in_place(self) -> None:
        made = Message(b"x")
        for message in (made, Message.decode(made.encode())):
            message.body_sections.append(Data(b"y"))
            assert message.body == b"xy"
            assert Message.decode(message.encode()).body_sections == [Data(b"x"), Data(b"y")]
            message.body = b"z"
            assert message.body_sections == [Data(b"z")]

    def test_maps_are_copied_from_the_arguments(self) -> None:
        given = {"a": 1}
        message = Message(b"", application_properties=given)
        given["b"] = 2
        assert message.application_properties == {"a": 1}

    def test_reading_an_empty_map_changes_nothing(self) -> None:
        message = Message(b"")
        assert message.application_properties == {}
        assert message.footer == {}
        assert message == Message(b"")
        assert message.encode() == Message(b"").encode()

    def test_it_cannot_be_a_key(self) -> None:
        with pytest.raises(TypeError, match="unhashable"):
            hash(Message())

    def test_the_repr_is_short(self) -> None:
        text = repr(Message(b"x" * 10_000, subject="s"))
        assert text.startswith("Message(b'xxx")
        assert "subject='s'" in text
        assert len(text) < 1000


class TestBodies:
    @pytest.mark.parametrize(
        ("given", "sections", "read"),
        [
            (b"abc", [Data(b"abc")], b"abc"),
            (bytearray(b"abc"), [Data(b"abc")], b"abc"),
            (memoryview(b"abc"), [Data(b"abc")], b"abc"),
            (Data(b"abc"), [Data(b"abc")], b"abc"),
            ([Data(b"a"), Data(b"b")], [Data(b"a"), Data(b"b")], b"ab"),
            ("text", [AmqpValue("text")], "text"),
            (5, [AmqpValue(5)], 5),
            (None, [AmqpValue(None)], None),
            ([], [AmqpValue([])], []),
            ([1, 2], [AmqpValue([1, 2])], [1, 2]),
            ({"a": 1}, [AmqpValue({"a": 1})], {"a": 1}),
            (AmqpValue(b"bytes"), [AmqpValue(b"bytes")], b"bytes"),
            (AmqpSequence([1, "a"]), [AmqpSequence([1, "a"])], [1, "a"]),
            (
                [AmqpSequence([1]), AmqpSequence([2, 3])],
                [AmqpSequence([1]), AmqpSequence([2, 3])],
                [1, 2, 3],
            ),
        ],
    )
    def test_the_type_chooses_the_sections(
        self, given: object, sections: list[object], read: object
    ) -> None:
        message = Message(given)
        assert message.body_sections == sections
        assert message.body == read
        again = Message.decode(message.encode())
        assert again.body_sections == sections
        assert again.body == read
        changed = Message(b"before")
        changed.body = given
        assert changed == message

    def test_mixed_sections_are_refused(self) -> None:
        with pytest.raises(EncodeError, match="several sections"):
            Message([Data(b""), AmqpSequence([])])
        with pytest.raises(EncodeError, match="among body sections"):
            Message([Data(b""), 5])
        message = Message()
        message.body_sections = [AmqpValue(1), AmqpValue(2)]
        with pytest.raises(EncodeError, match="several sections"):
            message.encode()

    def test_values_that_have_no_amqp_type_are_refused_when_encoding(self) -> None:
        with pytest.raises(EncodeError, match=r"message\.body"):
            Message(object()).encode()

    def test_application_properties_hold_simple_values_only(self) -> None:
        with pytest.raises(EncodeError, match="not simple"):
            Message(b"", application_properties={"a": [1]}).encode()


class TestRules:
    """What the types allow and the specification does not."""

    @pytest.mark.spec("3.2.4")
    @pytest.mark.parametrize("body", ["text", None, AmqpSequence([1]), AmqpValue(b"x"), {"a": 1}])
    def test_only_data_can_have_a_content_encoding(self, body: object) -> None:
        with pytest.raises(EncodeError, match="only data") as caught:
            Message(body, content_encoding="gzip").encode()
        assert caught.value.field == "properties.content-encoding"
        message = Message(b"data")
        message.content_encoding = "gzip"
        assert Message.decode(message.encode()).content_encoding == "gzip"
        message.body = body
        with pytest.raises(EncodeError, match="only data"):
            message.encode()

    @pytest.mark.spec("3.2.4")
    def test_identity_is_no_content_encoding(self) -> None:
        with pytest.raises(EncodeError, match="leaving it out"):
            Message(b"data", content_encoding="identity").encode()

    @pytest.mark.spec("3.2.2")
    @pytest.mark.parametrize("value", ["no", None, Accepted(), Described(Symbol("a:b"), 1)])
    def test_the_annotation_rejected_is_an_error(self, value: object) -> None:
        with pytest.raises(EncodeError, match="not an error") as caught:
            Message(b"", delivery_annotations={"rejected": value}).encode()
        assert caught.value.field == "delivery-annotations.rejected"
        good = Message(b"", delivery_annotations={"rejected": Error(condition="amqp:not-found")})
        again = Message.decode(good.encode())
        # What was read can be written again.
        assert again.encode() == good.encode()

    def test_what_others_wrote_is_passed_on(self) -> None:
        theirs = b"".join(
            encode(section)
            for section in (
                DeliveryAnnotations({"rejected": 5}),
                Properties(content_encoding="identity"),
                AmqpValue("text"),
            )
        )
        assert Message.decode(theirs).encode() == theirs


@pytest.mark.spec("3.2")
class TestDecoding:
    def test_every_section_alone_is_a_message(self) -> None:
        for section in (*SECTIONS, SEQUENCE, VALUE):
            assert isinstance(Message.decode(section), Message)

    def test_sections_in_their_order(self) -> None:
        message = Message.decode(b"".join(SECTIONS))
        assert message.header == Header()
        assert message.properties == Properties()
        assert message.body == b"x"

    def test_nothing_is_a_message_without_a_body(self) -> None:
        message = Message.decode(b"")
        assert message.body is None
        assert message.body_sections == []
        # What is made here has a body, as the specification demands.
        assert message.encode() == b"" and Message().encode() == VALUE

    def test_a_body_before_the_properties_is_accepted(self) -> None:
        message = Message.decode(HEADER + VALUE + PROPERTIES + APPLICATION_PROPERTIES)
        assert message.properties == Properties()
        assert message.body is None

    @pytest.mark.parametrize("section", [s for s in SECTIONS if s != DATA] + [VALUE])
    def test_a_section_twice_is_refused(self, section: bytes) -> None:
        with pytest.raises(DecodeError, match=r"second|after") as caught:
            Message.decode(section + section)
        assert caught.value.offset == len(section)

    @pytest.mark.parametrize(
        "data",
        [
            DELIVERY_ANNOTATIONS + HEADER,
            MESSAGE_ANNOTATIONS + DELIVERY_ANNOTATIONS,
            PROPERTIES + MESSAGE_ANNOTATIONS,
            APPLICATION_PROPERTIES + PROPERTIES,
            FOOTER + HEADER,
        ],
    )
    def test_a_section_in_the_wrong_place_is_refused(self, data: bytes) -> None:
        with pytest.raises(DecodeError, match="wrong place"):
            Message.decode(data)

    @pytest.mark.parametrize(
        "data", [DATA + VALUE, VALUE + DATA, DATA + SEQUENCE, SEQUENCE + VALUE, VALUE + VALUE]
    )
    def test_bodies_of_mixed_kinds_are_refused(self, data: bytes) -> None:
        with pytest.raises(DecodeError, match="after"):
            Message.decode(data)

    @pytest.mark.parametrize(
        "data",
        [
            b"\x00",
            b"x",
            DATA[:-1],
            DATA + b"\x00",
            b"\x00\x53\x24\x45",  # accepted: no section
            b"\x00\x53\x7f\x45",  # a descriptor nobody defined
            b"\x00\xa3\x11amqp:data:binary@\xa0\x00",
            b"\x40",
        ],
    )
    def test_other_bytes_are_refused(self, data: bytes) -> None:
        with pytest.raises(DecodeError):
            Message.decode(data)

    def test_symbolic_descriptors_are_understood(self) -> None:
        assert Message.decode(b"\x00\xa3\x10amqp:data:binary\xa0\x01x").body == b"x"

    def test_the_number_of_body_sections_is_bounded(self) -> None:
        section = b"\x00\x53\x75\xa0\x00"
        assert len(Message.decode(section * 1000).body_sections) == 1000
        with pytest.raises(DecodeError, match="too many"):
            Message.decode(section * 1_002, max_memory=64_000)

    def test_message_ids_keep_their_type(self) -> None:
        assert Message.decode(Message(b"", message_id=5).encode()).message_id == 5
        assert Message(b"", message_id=5).encode() == Message(b"", message_id=ULong(5)).encode()
        with pytest.raises(EncodeError):
            Message(b"", message_id=-1).encode()


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("data", [b"", HEADER, b"".join(SECTIONS), FOOTER, *SECTIONS, SEQUENCE])
def test_a_message_that_was_decoded_is_encoded_as_it_came(data: bytes) -> None:
    message = Message.decode(data)
    assert message.encode() == data
    # To look at a section does not change it.
    assert message.footer == {} and message.body is not Ellipsis
    assert message.encode() == data
    message.body = b"x"
    assert DATA in message.encode()


@pytest.mark.spec("1.6.23")
def test_the_order_of_a_map_counts() -> None:
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert one == other
    for make in (
        Message,
        lambda value: Message([value]),
        lambda value: Message(AmqpSequence([value])),
        AmqpValue,
        lambda value: AmqpSequence([value]),
        lambda value: Array("map", Repeated(value, 2)),
        lambda value: Described(1, value),
        lambda value: Described(1, [{"x": value}]),
        lambda value: Array("map", [value]),
        lambda value: PairMap([(1, value), (True, None)]),
    ):
        assert make(one) == make(dict(one)) and make(one) != make(other)
    assert AmqpValue(one) != one and AmqpValue(one) != AmqpSequence([one])
    with pytest.raises(TypeError, match="unhashable"):
        hash(AmqpValue(1))
    # Properties are found by their names.
    assert Message(b"", application_properties=one) == Message(b"", application_properties=other)
