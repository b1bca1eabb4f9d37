"""What the names in a selector stand for."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from ferrymq_codec.scalars import Char, Float32, Symbol, Timestamp, UByte, ULong
from ferrymq_types.messaging import Header, Properties
from tests.broker.filters.messages import message, verdict

FULL = message(
    header=Header(durable=True, priority=7, ttl=5000, first_acquirer=False, delivery_count=2),
    annotations={"x-opt-sequence-number": 12, "x-opt-offset": "340", "plain": "note"},
    properties=Properties(
        message_id="ID:1",
        user_id=b"john",
        to="queue://orders",
        subject="Order.new",
        reply_to="replies",
        correlation_id="c-1",
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=Timestamp(1_800_000_000_000),
        creation_time=Timestamp(1_700_000_000_000),
        group_id="g",
        group_sequence=6,
        reply_to_group_id="rg",
    ),
    application={"colour": "red", "a.b": "dotted", "order-status": "open", "Größe": 4, "$x_1": 1},
)


@pytest.mark.parametrize(
    "text",
    [
        "JMSPriority = 7",
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSMessageID = 'ID:1'",
        "JMSTimestamp = 1700000000000",
        "JMSCorrelationID = 'c-1'",
        "JMSType = 'Order.new'",
        "JMSDestination = 'queue://orders'",
        "JMSReplyTo = 'replies'",
        "JMSExpiration = 1800000000000",
        "JMSRedelivered",
        "JMSXGroupID = 'g' AND JMSXGroupSeq = 6",
        "JMSXDeliveryCount = 3",
        "JMSXUserID = 'john'",
        "header.durable = TRUE AND h.priority = 7 AND amqp.header.ttl = 5000",
        "header.first_acquirer = FALSE AND h.delivery-count = 2",
        "properties.message_id = 'ID:1' AND p.message-id = 'ID:1'",
        "amqp.properties.user-id = 'john' AND p.user_id <> 'jon'",
        "p.to = 'queue://orders' AND p.reply_to = 'replies'",
        "p.subject LIKE 'Order%'",
        "p.correlation_id IS NOT NULL",
        "p.content_type = 'text/plain' AND p.content_encoding IN ('gzip', 'zstd')",
        "p.absolute_expiry_time > p.creation_time",
        "p.group_id = 'g' AND p.group_sequence % 3 = 0 AND p.reply_to_group_id = 'rg'",
        "p.reply-to-group-id = 'rg' AND amqp.properties.reply-to = 'replies'",
        "p.group_sequence-1 = 5",
        "amqp.annotation.x-opt-sequence-number = 12",
        "m.x-opt-offset = '340' AND message_annotations.plain = 'note' AND m.[plain] = 'note'",
        "message-annotations.\"plain\" = 'note'",
        "colour = 'red' AND a.colour = 'red' AND application_properties.colour = 'red'",
        "application-properties.colour = 'red'",
        "\"colour\" = 'red' AND [colour] = 'red' AND a.[colour] = 'red'",
        "[a.b] = 'dotted' AND a.a.b = 'dotted'",
        "[order-status] = 'open'",
        "Größe = 4 AND $x_1 = 1",
        "EXISTS(colour) AND NOT EXISTS(Colour) AND EXISTS(p.to) AND EXISTS(m.plain)",
    ],
)
def test_names(text: str):
    assert verdict(text, FULL) is True


EMPTY = message()


@pytest.mark.parametrize(
    "text",
    [
        "JMSMessageID IS NULL AND JMSTimestamp IS NULL AND JMSCorrelationID IS NULL",
        "JMSType IS NULL AND JMSDestination IS NULL AND JMSXUserID IS NULL",
        "JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND JMSExpiration = 0",
        "NOT JMSRedelivered AND JMSXDeliveryCount = 1",
        "h.priority = 4 AND NOT h.durable AND h.ttl IS NULL",
        "p.subject IS NULL AND m.x IS NULL AND a.x IS NULL AND NOT EXISTS(x)",
    ],
)
def test_what_a_message_does_not_say(text: str):
    assert verdict(text, EMPTY) is True


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        (5, "JMSMessageID = 'ID:AMQP_ULONG:5' AND p.message_id = 5"),
        (b"\x01\xfe", "JMSMessageID = 'ID:AMQP_BINARY:01FE'"),
        (
            UUID(int=7),
            "JMSMessageID = 'ID:AMQP_UUID:00000000-0000-0000-0000-000000000007' AND "
            "p.message_id = '00000000-0000-0000-0000-000000000007'",
        ),
    ],
)
def test_identities_of_other_types(identity: int | bytes | UUID, text: str):
    assert verdict(text, message(properties=Properties(message_id=identity))) is True


def test_binary_values_in_the_dialect_of_the_draft():
    subject = message(properties=Properties(user_id=b"Bob", message_id=b"\x01\x23"))
    assert verdict("p.user_id = 0x426F62 AND p.message_id = 0x0123", subject, sql=True) is True
    assert verdict("p.message_id = 0x0124", subject, sql=True) is False
    assert verdict('p.user_id = "Bob"', subject, sql=True) is True


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UByte(5), "v = 5 AND v = 5.0"),
        (ULong(2**64 - 1), "v = 18446744073709551615"),
        (Float32(0.5), "v = 0.5"),
        (Decimal("2.5"), "v = 2.5 AND v > 2"),
        (Symbol("red"), "v = 'red' AND v LIKE 'r%'"),
        (Char("x"), "v = 'x'"),
        (Timestamp(1000), "v = 1000"),
        (UUID(int=1), "v = '00000000-0000-0000-0000-000000000001'"),
        (True, "v AND v = TRUE AND NOT v = 1"),
        (None, "v IS NULL AND EXISTS(v)"),
        (float("nan"), "NOT v = v"),
        (Decimal("NaN"), "v IS NULL"),
    ],
)
def test_values_of_every_type(value: object, text: str):
    assert verdict(text, message(application={"v": value})) is True
