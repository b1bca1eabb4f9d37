"""azure's pyamqp: the pure Python codec in `azure-eventhub`.

The frame is assembled and parsed as in `_transport.py` of that package, without the socket: header,
channel and performative are joined when encoding; the header is unpacked and the rest decoded when
decoding. Its session encodes every transfer again to learn its size; that is left out here.
"""

from __future__ import annotations

import struct
from typing import Any

from azure.eventhub._pyamqp import _decode, _encode
from azure.eventhub._pyamqp.message import Header, Message, Properties
from azure.eventhub._pyamqp.performatives import TransferFrame

from bench import samples

NAME = "pyamqp"


def encode_frame(payload: bytes) -> bytes:
    """Encode one transfer frame."""
    header, performative = _encode.encode_frame(
        TransferFrame(
            handle=0,
            delivery_id=samples.DELIVERY_ID,
            delivery_tag=samples.TAG,
            message_format=0,
            settled=False,
            payload=payload,
        )
    )
    frame: bytes = header + struct.pack(">H", 0) + performative
    return frame


def decode_frame(data: bytes) -> tuple[int, list[Any]]:
    """Decode the performative's code and fields; the payload is the last field."""
    view = memoryview(data)
    header = view[:8]
    struct.unpack(">H", header[6:])
    size = struct.unpack(">I", header[0:4])[0]
    offset = header[4]
    if header[5] != 0:
        raise ValueError("no AMQP frame")
    decoded: tuple[int, list[Any]] = _decode.decode_frame(view[8:size][offset - 2 :])
    return decoded


def build() -> Message:
    """Return the message as an object."""
    return Message(
        header=Header(durable=samples.DURABLE, priority=samples.PRIORITY, ttl=samples.TTL),
        properties=Properties(
            message_id=samples.MESSAGE_ID,
            to=samples.TO,
            subject=samples.SUBJECT,
            reply_to=samples.REPLY_TO,
            correlation_id=samples.CORRELATION_ID,
            content_type=samples.CONTENT_TYPE,
            creation_time=samples.CREATION_TIME_MS,
        ),
        application_properties=samples.APPLICATION_PROPERTIES,
        data=[samples.BODY],
    )


def encode(message: Message) -> bytes:
    """Encode the message."""
    output = bytearray()
    _encode.encode_payload(output, message)
    return bytes(output)


def decode(data: bytes) -> Message:
    """Decode a message. Strings stay bytes: pyamqp leaves their conversion to its callers."""
    return _decode.decode_payload(memoryview(data))


def read(message: Message) -> tuple[object, ...]:
    """Return the fields that an application reads: id, subject, one application property, body."""
    properties = message.properties
    return (
        properties.message_id,
        properties.subject,
        message.application_properties[b"attempt"],
        message.data[0],
    )
