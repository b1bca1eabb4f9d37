"""The header of a message that leaves the broker.

A first delivery of a message without a ttl sends exactly the bytes that came. The header is changed
only where the specification demands it of an intermediary (AMQP 1.0 §3.2.1); the bare message never
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_broker.nodes.message import BrokerMessage, derive
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_types.descriptors import MESSAGE_ANNOTATIONS
from ferrymq_types.messaging import (
    MessageAnnotations,
    encode_header,
    encode_message_annotations,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry


def outgoing_header(entry: Entry, left: i64) -> bytes:
    """Encode the header for the next delivery of the entry, which has `left` ms until it expires;
    return nothing if the message is sent as it came.

    `left` is ignored if the entry does not expire. The new ttl is the remaining time: the time that
    the message has spent here is subtracted, so that every broker on its way continues the count
    (AMQP 1.0 §3.2.1). The rest of the message follows unchanged and is not copied.
    """
    message = entry.message
    if entry.expires == 0 or message.ttl < 0:
        if entry.attempts == 0:
            return b""
        return message.redelivery_header(i64(entry.failures))
    if left < 0:
        left = 0
    if entry.attempts == 0 and left >= message.ttl:
        return b""
    header = message.header()
    header.ttl = left if left < message.ttl else message.ttl
    if entry.attempts != 0:
        header.first_acquirer = False
        count = header.delivery_count + i64(entry.failures)
        header.delivery_count = count if count < 0xFFFFFFFF else 0xFFFFFFFF
    w = BytesWriter()
    encode_header(w, header)
    return w.getvalue()


def delivered_before(message: BrokerMessage, failures: i64) -> BrokerMessage:
    """Return the message for another node, after a consumer here has had it.

    Its header shows that, with a delivery-count that is higher by `failures` (AMQP 1.0 §3.2.1).
    """
    payload = message.redelivery(failures)
    if payload is message.payload:
        return message
    rest: i64 = len(message.payload) - message.header_end
    return derive(message, payload, len(payload) - rest)


def readdressed(message: BrokerMessage, annotations: dict[str | int, object]) -> BrokerMessage:
    """Return the message as the broker itself sends it on: without ttl, with these annotations
    only.

    The annotations replace the message's own. The absolute-expiry-time and a schedule are ignored
    from now on (`special` is false).
    """
    if message.opaque:
        other = derive(message, message.payload, 0)
    else:
        payload = message.payload
        rest = message.header_end
        if section_at(payload, rest) == MESSAGE_ANNOTATIONS:
            rest = section_end(payload, rest)
        w = BytesWriter()
        if message.ttl >= 0:
            header = message.header()
            header.ttl = None
            encode_header(w, header)
        else:
            w.write(payload[: message.header_end])
        header_end = len(w)
        if annotations:
            encode_message_annotations(w, MessageAnnotations(value=annotations))
        w.write(payload[rest:])
        other = derive(message, w.getvalue(), header_end)
    other.ttl = -1
    other.special = False
    other.origin = 0
    return other
