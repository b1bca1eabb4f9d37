"""Messages that Proton wrote are read, and Proton reads ours: each field for field."""

from __future__ import annotations

import uuid

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.message import Message
from ferrymq.testing.strategies import messages
from ferrymq_codec import Timestamp, UInt, ULong
from ferrymq_types.messaging import AmqpSequence, AmqpValue

pytestmark = pytest.mark.interop


def up_to_nul(text: str | None) -> str | None:
    """What is left of a string on its way through Proton's C functions."""
    return None if text is None else text.partition("\0")[0]


@given(messages())
def test_proton_reads_what_we_write(message: Message) -> None:
    theirs = proton.Message()
    theirs.decode(message.encode())
    assert theirs.durable == message.durable
    assert theirs.priority == message.priority
    assert theirs.first_acquirer == message.first_acquirer
    assert theirs.delivery_count == message.delivery_count
    assert theirs.subject == up_to_nul(message.subject)
    assert theirs.address == up_to_nul(message.to)
    assert theirs.reply_to == up_to_nul(message.reply_to)
    assert theirs.group_id == up_to_nul(message.group_id)
    assert len(theirs.properties or {}) == len(message.application_properties)
    assert len(theirs.annotations or {}) == len(message.message_annotations)


@given(
    body=st.none() | st.text() | st.binary() | st.lists(st.booleans()) | st.uuids(),
    subject=st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    id=st.none() | st.text(min_size=1) | st.uuids(),
    properties=st.dictionaries(st.text(), st.text() | st.booleans() | st.floats(allow_nan=False)),
    durable=st.booleans(),
    priority=st.integers(0, 255),
    inferred=st.booleans(),
)
def test_we_read_what_proton_writes(
    body: object,
    subject: str | None,
    id: object,
    properties: dict[str, object],
    durable: bool,
    priority: int,
    inferred: bool,
) -> None:
    theirs = proton.Message(
        body=body,
        subject=subject,
        id=id,
        properties=properties,
        durable=durable,
        priority=priority,
        inferred=inferred,
    )
    ours = Message.decode(theirs.encode())
    assert ours.body == body
    assert (ours.subject, ours.message_id) == (subject, id)
    assert ours.application_properties == properties
    assert (ours.durable, ours.priority) == (durable, priority)


def test_a_message_of_proton_field_by_field() -> None:
    identity = uuid.uuid4()
    theirs = proton.Message(
        body={"list": [1, "two", None, 2.5], "flag": True},
        durable=True,
        priority=6,
        ttl=1.5,
        id=identity,
        user_id=b"me",
        address="orders",
        subject="s",
        reply_to="replies",
        correlation_id=proton.ulong(77),
        content_type="text/plain",
        content_encoding="gzip",
        expiry_time=1700000000.0,
        creation_time=1600000000.0,
        group_id="g",
        group_sequence=8,
        reply_to_group_id="h",
        properties={"a": proton.uint(1), "b": "two", "t": proton.timestamp(5)},
        annotations={proton.symbol("x-opt-a"): proton.ulong(2)},
        instructions={proton.symbol("x-opt-i"): 3},
    )
    ours = Message.decode(theirs.encode())
    assert ours.body == {"list": [1, "two", None, 2.5], "flag": True}
    assert (ours.durable, ours.priority, ours.ttl) == (True, 6, 1.5)
    assert (ours.message_id, ours.user_id, ours.to) == (identity, b"me", "orders")
    assert (ours.subject, ours.reply_to, ours.correlation_id) == ("s", "replies", 77)
    assert (ours.content_type, ours.content_encoding) == ("text/plain", "gzip")
    assert (ours.absolute_expiry_time, ours.creation_time) == (1700000000000, 1600000000000)
    assert (ours.group_id, ours.group_sequence, ours.reply_to_group_id) == ("g", 8, "h")
    assert ours.application_properties == {"a": UInt(1), "b": "two", "t": Timestamp(5)}
    assert ours.message_annotations == {"x-opt-a": ULong(2)}
    assert ours.delivery_annotations == {"x-opt-i": 3}
    assert Message.decode(ours.encode()) == ours


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (b"bytes", b"bytes"),
        ("text", "text"),
        (12345, 12345),
        (None, None),
        ({"a": [1, 2]}, {"a": [1, 2]}),
        (AmqpValue(b"value"), b"value"),
        (AmqpSequence([1, "b"]), [1, "b"]),
    ],
)
def test_the_kinds_of_body(ours: object, theirs: object) -> None:
    message = proton.Message()
    message.decode(Message(ours).encode())
    assert message.body == theirs
    assert message.inferred == isinstance(ours, bytes | AmqpSequence)
    assert Message.decode(message.encode()).body == Message(ours).body
