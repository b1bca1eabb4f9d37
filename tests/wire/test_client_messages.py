"""Sections of messages as the running client reads and writes them (AMQP 1.0 §3.2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.errors import DecodeError, EncodeError
from ferrymq_types.messaging import AmqpSequence, Data
from tests.raw.frames import disposition_frame, transfer_frame
from tests.raw.server import Server
from tests.raw.values import (
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    described,
    mapping,
    sequence,
    string,
    symbol,
    uint,
    ulong,
)
from tests.wire.control import ACCEPTED

PATIENCE = 20
OCTETS = bytes(range(256))
HEADER = composite(0x70, [TRUE])
TO_DELIVERY, TO_MESSAGE, PROPERTIES, APPLICATION, VALUE, FOOTER = (
    0x71, 0x72, 0x73, 0x74, 0x77, 0x78,
)  # fmt: skip
EMPTY = mapping()


async def receive(payload: bytes, look: Callable[[Message], None]) -> None:
    """Have the client receive a message, look at it and accept it."""

    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            while not peer.expect("flow", "empty").field(6):
                pass
            peer.send(transfer_frame(payload, 0, uint(0), binary(b"t")))
            assert peer.expect("disposition", "flow", "empty").field(1) == 0
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            delivery = await receiver.receive(timeout=PATIENCE)
            try:
                look(delivery.message)
            finally:
                await delivery.accept()


async def send(message: Message) -> bytes:
    """Have the client send a message; return its payload."""
    payloads: list[bytes] = []

    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            payloads.append(peer.expect("transfer", "flow", "empty").payload)
            peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await sender.send(message, timeout=PATIENCE)
    (payload,) = payloads
    return payload


@pytest.mark.spec("3.2.1", "3.2.2", "3.2.3")
async def test_sections_that_are_missing_mean_defaults_and_no_annotations() -> None:
    def look(message: Message) -> None:
        assert (message.durable, message.priority, message.ttl) == (False, 4, None)
        assert (message.first_acquirer, message.delivery_count) == (False, 0)
        assert message.delivery_annotations == {} and message.message_annotations == {}
        assert message.application_properties == {}

    await receive(data_section(), look)


@pytest.mark.spec("3.2.10")
async def test_annotations_that_nobody_understands_are_ignored() -> None:
    unknown = mapping(symbol("x-opt-unheard-of"), string("x"), ulong(7), TRUE)

    def look(message: Message) -> None:
        assert message.body == b"x"
        assert message.message_annotations == {"x-opt-unheard-of": "x", 7: True}

    await receive(described(TO_MESSAGE, unknown) + data_section(), look)


BODIES: dict[str, tuple[bytes, object, list[object]]] = {
    "data": (data_section(OCTETS), OCTETS, [Data(OCTETS)]),
    "data-twice": (
        data_section(b"a") + data_section(b""),
        b"a",
        [Data(b"a"), Data(b"")],
    ),
    "sequence": (
        described(0x76, sequence(uint(1), NULL, string("x"))),
        [1, None, "x"],
        [AmqpSequence([1, None, "x"])],
    ),
    "sequence-without-values": (described(0x76, sequence()), [], [AmqpSequence([])]),
    "null": (described(VALUE, NULL), None, []),
    "value": (described(VALUE, string("x")), "x", []),
}


@pytest.mark.spec("3.2.6", "3.2.7", "3.2.8")
@pytest.mark.parametrize(("payload", "body", "sections"), BODIES.values(), ids=BODIES)
async def test_bodies_are_read_as_they_came(
    payload: bytes, body: object, sections: list[object]
) -> None:
    def look(message: Message) -> None:
        if sections:
            assert message.body_sections == sections
        if len(sections) < 2:
            assert message.body == body
        assert len(message.body_sections) == max(1, len(sections))
        seen.append(message)

    seen: list[Message] = []
    await receive(payload, look)
    # What was read is written as the same.
    again = Message.decode(await send(seen[0]))
    assert again.body_sections == seen[0].body_sections


@pytest.mark.spec("3.2.6")
async def test_data_is_written_octet_by_octet() -> None:
    assert await send(Message(OCTETS)) == b"\x00\x53\x75\xb0\x00\x00\x01\x00" + OCTETS


@pytest.mark.spec("3.2")
async def test_sections_are_written_in_their_order() -> None:
    annotations: dict[str | int, object] = {"x-m": 1, 7: 2}
    message = Message(
        b"x", subject="s", durable=True, application_properties={"a": 1},
        footer={"x-f": 1}, message_annotations=annotations, delivery_annotations={"x-d": 1},
    )  # fmt: skip
    payload = await send(message)
    sections = [payload.index(b"\x00\x53" + bytes((code,))) for code in range(0x70, 0x76)]
    assert [0, *sections[1:]] == sorted(sections)
    assert payload.index(b"\x00\x53\x78") > sections[-1]
    # Keys are symbols and unsigned longs, and of application-properties strings.
    assert b"\xa3\x03x-m" in payload and b"\xa3\x03x-d" in payload and b"\x53\x07" in payload
    assert b"\xa1\x01a" in payload


MALFORMED = {
    "two-headers": HEADER + HEADER + data_section(),
    "a-header-behind": described(TO_MESSAGE, EMPTY) + HEADER + data_section(),
    "a-footer-in-front": described(FOOTER, EMPTY) + described(TO_MESSAGE, EMPTY) + data_section(),
    "two-kinds-of-body": data_section() + described(VALUE, NULL),
    "two-values": described(VALUE, NULL) + described(VALUE, NULL),
    "an-annotation-of-a-boolean": described(TO_MESSAGE, mapping(TRUE, NULL)) + data_section(),
    "an-annotation-of-null": described(TO_MESSAGE, mapping(NULL, NULL)) + data_section(),
    "a-property-without-a-name": described(APPLICATION, mapping(NULL, NULL)) + data_section(),
    "a-property-of-a-symbol": described(APPLICATION, mapping(uint(1), NULL)) + data_section(),
    "a-property-that-is-a-list": (
        described(APPLICATION, mapping(string("a"), sequence(NULL))) + data_section()
    ),
}


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
async def test_what_is_no_message_is_not_read_as_one(payload: bytes) -> None:
    def look(message: Message) -> None:
        message.application_properties  # noqa: B018
        message.message_annotations  # noqa: B018

    with pytest.raises(DecodeError):
        await receive(payload, look)


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    "message",
    [
        Message("text", content_encoding="gzip"),
        Message(b"data", content_encoding="identity"),
        Message(b"", delivery_annotations={"rejected": "no error"}),
        Message(b"", application_properties={"a": [1]}),
    ],
    ids=["encoded-text", "identity", "rejected-is-no-error", "a-property-that-is-a-list"],
)
async def test_what_breaks_a_rule_is_not_sent(message: Message) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            # The first that comes is the one behind it.
            assert peer.expect("transfer", "flow", "empty").payload == b"\x00\x53\x75\xa0\x04good"
            peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            with pytest.raises(EncodeError):
                await sender.send(message, timeout=PATIENCE)
            assert sender.unsettled == 0
            await sender.send(Message(b"good"), timeout=PATIENCE)
