"""Proton: what is in a message comes out as it went in, of every kind, type and size."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import proton
import pytest
from proton import Message, symbol, ulong
from proton.utils import BlockingConnection

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import (
    EncodedReceiver,
    connect,
    receive_encoded,
    send_encoded,
)
from tests.interop.proton_values import decode_sections, encode_sections, from_proton, to_proton
from tests.interop.values import (
    APPLICATION_PROPERTIES,
    COMPOUNDS,
    DATA,
    DESCRIBED,
    PRIMITIVES,
    SEQUENCE,
    VALUE,
    Section,
    Value,
    application_properties,
    binary,
    canonical,
    integer,
    mapping,
    string,
)
from tests.interop.values import (
    symbol as symbol_value,
)

pytestmark = pytest.mark.interop

SIZES = [0, 1, 255, 256, 65_000, 65_536, 1_000_000, 10_000_000]


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url) as connection:
        yield connection


def exchange(connection: BlockingConnection, address: str, message: Message) -> Message:
    """Send the message, receive it, accept it."""
    sender = connection.create_sender(address)
    delivery = sender.send(message)
    assert delivery.remote_state == proton.Delivery.ACCEPTED
    receiver = connection.create_receiver(address)
    received = receiver.receive()
    receiver.accept()
    receiver.close()
    sender.close()
    return received


@pytest.mark.parametrize("size", SIZES)
def test_data_of_every_size(connection: BlockingConnection, address: str, size: int) -> None:
    body = os.urandom(size)
    received = exchange(connection, address, Message(body=body, inferred=True))
    assert bytes(received.body) == body
    assert received.inferred


@pytest.mark.parametrize("size", [0, 512, 1_000_000])
def test_small_frames_in_both_directions(broker: BrokerProcess, address: str, size: int) -> None:
    """1 MB is then more frames than any session window."""
    body = os.urandom(size)
    with connect(broker.url, max_frame_size=512) as connection:
        received = exchange(connection, address, Message(body=body, inferred=True))
    assert bytes(received.body) == body


@pytest.mark.parametrize("name", PRIMITIVES)
def test_value_of_every_primitive_type(
    connection: BlockingConnection, address: str, name: str
) -> None:
    for value in PRIMITIVES[name]:
        received = exchange(connection, address, Message(body=to_proton(value)))
        assert from_proton(received.body) == value


@pytest.mark.parametrize("value", COMPOUNDS + DESCRIBED, ids=lambda value: str(value)[:40])
def test_compound_values(connection: BlockingConnection, address: str, value: Value) -> None:
    received = exchange(connection, address, Message(body=to_proton(value)))
    assert canonical(from_proton(received.body)) == canonical(value)


def test_sequence(connection: BlockingConnection, address: str) -> None:
    body = [1, "two", symbol("three"), [4.0, None], {"five": b"5"}]
    received = exchange(connection, address, Message(body=body, inferred=True))
    assert received.inferred
    assert from_proton(received.body) == from_proton(body)


KINDS: dict[str, list[Section]] = {
    "no data": [(DATA, binary(b""))],
    "data": [(DATA, binary(b"some"))],
    "data, many": [(DATA, binary(bytes([n]) * n)) for n in range(20)],
    "sequence": [(SEQUENCE, ["list", [string("a"), integer("ubyte", 1)]])],
    "sequence, many": [(SEQUENCE, ["list", [integer("int", n)] * n]) for n in range(20)],
    "value": [(VALUE, string("text"))],
    "every section": [
        (0x70, ["list", [["boolean", True], integer("ubyte", 7)]]),
        (0x72, mapping((symbol_value("x-opt-a"), string("b")))),
        (0x73, ["list", [["uuid", "ab" * 16], binary(b"me"), string("to")]]),
        (APPLICATION_PROPERTIES, application_properties()),
        (VALUE, ["list", COMPOUNDS]),
        (0x78, mapping((symbol_value("x-opt-crc"), integer("uint", 7)))),
    ],
}


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("kind", KINDS)
def test_sections_keep_their_bytes(connection: BlockingConnection, address: str, kind: str) -> None:
    encoded = encode_sections(KINDS[kind])
    send_encoded(connection, address, encoded)
    assert receive_encoded(connection, address, 1) == [encoded]


@pytest.mark.spec("3.2", "3.2.1")
def test_a_ttl_counts_down_and_nothing_else_changes(
    connection: BlockingConnection, address: str
) -> None:
    sent = [
        (0x70, ["list", [["boolean", True], integer("ubyte", 7), integer("uint", 3_600_000)]]),
        *KINDS["every section"][1:],
    ]
    send_encoded(connection, address, encode_sections(sent))
    (received,) = receive_encoded(connection, address, 1)
    rest = encode_sections(sent[1:])
    assert received.endswith(rest)
    header = Message()
    header.decode(received[: -len(rest)] + encode_sections(KINDS["no data"]))
    assert header.durable and header.priority == 7
    assert 3_500_000 < header.ttl * 1000 <= 3_600_000


def test_delivery_annotations_end_at_the_broker(
    connection: BlockingConnection, address: str
) -> None:
    """They are for the next node, and the rest is untouched (AMQP 1.0 §3.2.2)."""
    header: Section = (0x70, ["list", [["boolean", True]]])
    bare: list[Section] = [(0x73, ["list", [string("id")]]), (DATA, binary(b"body"))]
    annotations: Section = (0x71, mapping((symbol_value("x-opt-hop"), string("here"))))
    send_encoded(connection, address, encode_sections([header, annotations, *bare]))
    (received,) = receive_encoded(connection, address, 1)
    assert received == encode_sections([header, *bare])


def test_application_properties_of_every_type(connection: BlockingConnection, address: str) -> None:
    value = application_properties()
    received = exchange(connection, address, Message(body=b"", properties=to_proton(value)))
    assert canonical(from_proton(received.properties)) == canonical(value)


@pytest.mark.parametrize(
    "message_id",
    [ulong(0), ulong(2**64 - 1), uuid.uuid4(), b"\0binary\xff", "string"],
    ids=lambda value: type(value).__name__,
)
def test_message_id_of_every_type(
    connection: BlockingConnection, address: str, message_id: object
) -> None:
    message = Message(id=message_id, correlation_id=message_id)
    received = exchange(connection, address, message)
    for given in (received.id, received.correlation_id):
        assert given == message_id
        # Proton gives a ulong as a plain int, a binary as a view of its bytes.
        assert isinstance(message_id, {memoryview: bytes}.get(type(given), type(given)))


def test_every_property(connection: BlockingConnection, address: str) -> None:
    fields = {
        "id": "id-1",
        "user_id": b"user",
        "address": "to/some where",
        "subject": "größer",
        "reply_to": "reply",
        "correlation_id": "correlation",
        "content_type": symbol("application/json"),
        "content_encoding": symbol("gzip"),
        "expiry_time": 4_102_444_800.125,
        "creation_time": 1_735_689_600.5,
        "group_id": "group",
        "group_sequence": 2**32 - 1,
        "reply_to_group_id": "reply-group",
    }
    received = exchange(connection, address, Message(body=[1], **fields))
    assert {name: getattr(received, name) for name in fields} == fields


def test_body_none_in_front_of_the_properties(connection: BlockingConnection, address: str) -> None:
    """Proton writes the value section of an empty body too early; the broker does not mind."""
    received = exchange(connection, address, Message(body=None, subject="still here"))
    assert (received.body, received.subject) == (None, "still here")


def test_header(connection: BlockingConnection, address: str) -> None:
    message = Message(body="x", durable=True, priority=9, ttl=3600.0)
    received = exchange(connection, address, message)
    assert (received.durable, received.priority) == (True, 9)
    assert 3000 < received.ttl <= 3600
    assert received.delivery_count == 0


def test_annotations(connection: BlockingConnection, address: str) -> None:
    annotations = {
        symbol("x-opt-text"): "text",
        symbol("x-opt-list"): [1, 2],
        ulong(77): {"a": b"b"},
    }
    received = exchange(connection, address, Message(body="x", annotations=annotations))
    assert received.annotations == annotations
    assert {type(key) for key in received.annotations} == {symbol, ulong}


def test_empty_message(connection: BlockingConnection, address: str) -> None:
    """A message of no sections at all is against the specification, but not harmful."""
    send_encoded(connection, address, b"")
    assert receive_encoded(connection, address, 1) == [b""]


def test_one_after_the_other_in_order(connection: BlockingConnection, address: str) -> None:
    messages = [encode_sections([(VALUE, integer("uint", n))]) for n in range(500)]
    send_encoded(connection, address, *messages)
    assert receive_encoded(connection, address, len(messages)) == messages


def test_value_read_back_section_by_section(connection: BlockingConnection, address: str) -> None:
    """Decoded by Proton's own codec, the sections are the ones that were sent."""
    sections = KINDS["every section"]
    send_encoded(connection, address, encode_sections(sections))
    receiver = EncodedReceiver(connection, address)
    received = decode_sections(receiver.accept())
    receiver.close()
    assert [(code, canonical(value)) for code, value in received] == [
        (code, canonical(value)) for code, value in sections
    ]
