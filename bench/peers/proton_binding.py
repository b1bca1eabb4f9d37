"""Proton's Python binding (`python-qpid-proton`): Python over a C library.

It has no codec for single frames. The nearest is `Data`, the generic codec, which gets the transfer
as a described list. That is not a public way to use AMQP, only a yardstick.
"""

from __future__ import annotations

import struct
from typing import Any

from proton import Data, Message

from bench import samples
from ferrymq_types import descriptors

NAME = "Proton"

# A `Data` is reused from frame to frame, as by an application.
_out = Data()
_in = Data()


def encode_frame(payload: bytes) -> bytes:
    """Encode one transfer frame."""
    data = _out
    data.clear()
    data.put_described()
    data.enter()
    data.put_ulong(descriptors.TRANSFER)
    data.put_list()
    data.enter()
    data.put_uint(0)
    data.put_uint(samples.DELIVERY_ID)
    data.put_binary(samples.TAG)
    data.put_uint(0)
    data.put_bool(False)
    data.put_bool(False)
    data.put_null()
    data.put_null()
    data.put_bool(False)
    data.put_bool(False)
    data.put_bool(False)
    data.exit()
    data.exit()
    performative: bytes = data.encode()
    size = 8 + len(performative) + len(payload)
    return struct.pack(">IBBH", size, 2, 0, 0) + performative + payload


def decode_frame(data: bytes) -> tuple[Any, bytes]:
    """Decode the performative as a described list, and the payload of one transfer frame."""
    size, offset, kind, _ = struct.unpack_from(">IBBH", data)
    if kind != 0:
        raise ValueError("no AMQP frame")
    decoder = _in
    decoder.clear()
    start = offset * 4
    used = decoder.decode(data[start:size])
    decoder.rewind()
    decoder.next()
    return decoder.get_object(), data[start + used : size]


def build() -> Message:
    """Return the message as an object."""
    return Message(
        body=samples.BODY,
        inferred=True,
        durable=samples.DURABLE,
        priority=samples.PRIORITY,
        ttl=samples.TTL / 1000,
        id=samples.MESSAGE_ID,
        address=samples.TO,
        subject=samples.SUBJECT,
        reply_to=samples.REPLY_TO,
        correlation_id=samples.CORRELATION_ID,
        content_type=samples.CONTENT_TYPE,
        creation_time=samples.CREATION_TIME_MS / 1000,
        properties=dict(samples.APPLICATION_PROPERTIES),
    )


def encode(message: Message) -> bytes:
    """Encode the message."""
    encoded: bytes = message.encode()
    return encoded


def decode(data: bytes) -> Message:
    """Decode a message."""
    message = Message()
    message.decode(data)
    return message


def read(message: Message) -> tuple[object, ...]:
    """Return the fields that an application reads: id, subject, one application property, body."""
    # Proton's body is a view of memory owned by the message, so an application must copy it.
    return message.id, message.subject, message.properties["attempt"], bytes(message.body)
