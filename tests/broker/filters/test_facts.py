"""What routing and filtering read of a message (AMQP 1.0 §3.2)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.message import admit
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_codec.errors import DecodeError
from ferrymq_types.messaging import (
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
from tests.broker.harness import encode

HEADER = Header(durable=True, priority=7, ttl=1000)
ANNOTATIONS = MessageAnnotations(value={"x-key": 5})
PROPERTIES = Properties(message_id="m-1", subject="usd.stock", group_id="g")
APPLICATION = ApplicationProperties(value={"colour": "red"})
BODY = Data(value=b"body")


def test_every_section_is_read():
    facts = view_of(admit(encode(HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, BODY), 0))
    assert facts.header == HEADER
    assert facts.message_annotations == {"x-key": 5}
    assert facts.properties == PROPERTIES
    assert facts.application_properties == {"colour": "red"}
    assert (facts.message_id, facts.subject, facts.group_id) == ("m-1", "usd.stock", "g")
    assert facts.head_size == len(encode(HEADER, ANNOTATIONS, PROPERTIES, APPLICATION))


@given(st.lists(st.sampled_from([HEADER, ANNOTATIONS, PROPERTIES, APPLICATION]), unique_by=type))
def test_any_section_may_be_missing(some: Sequence[Section]):
    order = [HEADER, ANNOTATIONS, PROPERTIES, APPLICATION]
    sections = [section for section in order if section in some]
    facts = view_of(admit(encode(*sections, BODY, Footer(value={})), 0))
    assert facts.header == (HEADER if HEADER in some else Header())
    assert facts.message_annotations == (ANNOTATIONS.value if ANNOTATIONS in some else {})
    assert facts.properties == (PROPERTIES if PROPERTIES in some else None)
    assert facts.application_properties == (APPLICATION.value if APPLICATION in some else {})
    assert facts.subject == ("usd.stock" if PROPERTIES in some else None)
    assert facts.head_size == len(encode(*sections))


def test_delivery_annotations_hide_nothing():
    facts = view_of(
        admit(encode(HEADER, DeliveryAnnotations(value={"hop": 1}), ANNOTATIONS, PROPERTIES), 0)
    )
    assert facts.message_annotations == {"x-key": 5}
    assert facts.subject == "usd.stock"


def test_sections_known_by_their_symbols_are_read():
    long_form = b"".join(
        b"\x00\xa3" + bytes([len(name)]) + name + value
        for name, value in (
            (b"amqp:properties:list", encode(PROPERTIES)[3:]),
            (b"amqp:application-properties:map", encode(APPLICATION)[3:]),
            (b"amqp:data:binary", encode(BODY)[3:]),
        )
    )
    facts = view_of(admit(long_form, 0))
    assert facts.subject == "usd.stock"
    assert facts.application_properties == {"colour": "red"}


def test_a_body_that_comes_first_is_not_searched_for_properties():
    facts = view_of(admit(encode(AmqpValue(value=None), APPLICATION), 0))
    assert facts.application_properties == {}


def test_a_foreign_format_has_no_facts():
    facts = view_of(admit(encode(HEADER, ANNOTATIONS, PROPERTIES, APPLICATION), 0x80013700))
    assert facts.header == Header()
    assert facts.message_annotations == {}
    assert facts.properties is None
    assert facts.application_properties == {}
    assert facts.head_size == 0


@given(st.binary(max_size=60), st.integers(0, 200), st.sampled_from([0, 0x100]))
def test_no_bytes_make_facts_raise(tail: bytes, cut: int, format: int):
    payload = encode(HEADER, ANNOTATIONS, PROPERTIES, APPLICATION)[:cut] + tail
    try:
        message = admit(payload, format)
    except DecodeError:
        return
    facts = view_of(message)
    assert isinstance(facts.header, Header)
    assert isinstance(facts.message_annotations, dict)
    assert facts.properties is None or isinstance(facts.properties, Properties)
    assert isinstance(facts.application_properties, dict)
    assert 0 <= facts.head_size <= len(message.payload)


def test_a_malformed_section_takes_nothing_else_with_it():
    broken = b"\x00\x53\x73\xc0\x02\x01\x41"  # a message-id that is a boolean
    facts = view_of(admit(encode(ANNOTATIONS) + broken + encode(APPLICATION, BODY), 0))
    assert facts.message_annotations == {"x-key": 5}
    assert facts.properties is None
    assert facts.application_properties == {"colour": "red"}


def test_a_message_is_decoded_once_for_all_who_ask():
    message = admit(encode(PROPERTIES, APPLICATION, BODY), 0)
    assert view_of(message) is view_of(message)
    assert view_of(message).properties is view_of(message).properties
    assert view_of(message).application_properties is view_of(message).application_properties


@pytest.mark.parametrize("size", [100, 100_000])
def test_waiting_messages_do_not_keep_their_facts(size: int):
    messages = [admit(encode(PROPERTIES, Data(value=bytes(size))), 0) for _ in range(200)]
    for message in messages:
        assert view_of(message).subject == "usd.stock"
    keeping = [message for message in messages if message.view is not None]
    assert keeping == messages[-len(keeping) :]
    assert sum(len(message.payload) for message in keeping) < 200_000
    # Those that have forgotten can be asked again.
    assert view_of(messages[0]).subject == "usd.stock"
