"""ferrymq's codec as a Python program calls it: for one frame or message at a time."""

from __future__ import annotations

from librt.strings import BytesWriter

from bench import samples
from ferrymq.engine.frames import begin_frame, end_frame
from ferrymq.engine.input import FrameInput
from ferrymq.message import Message
from ferrymq_types.transport import Transfer, decode_transfer, encode_transfer

NAME = "ferrymq"


def encode_frame(payload: bytes) -> bytes:
    """Encode one transfer frame."""
    w = BytesWriter()
    mark = begin_frame(w, 0)
    encode_transfer(
        w,
        Transfer(
            handle=0,
            delivery_id=samples.DELIVERY_ID,
            delivery_tag=samples.TAG,
            message_format=0,
            settled=False,
        ),
    )
    w.write(payload)
    end_frame(w, mark)
    return w.getvalue()


def decode_frame(data: bytes) -> tuple[Transfer, bytes]:
    """Decode the performative and the payload of one transfer frame."""
    frames = FrameInput()
    frames.feed(data)
    frames.next_frame(65536, 0)
    reader = frames.reader
    end = reader.end
    reader.read_descriptor("frame")
    transfer = decode_transfer(reader)
    return transfer, data[reader.pos : end]


def build() -> Message:
    """Return the message as an object."""
    return Message(
        samples.BODY,
        durable=samples.DURABLE,
        priority=samples.PRIORITY,
        ttl=samples.TTL / 1000,
        message_id=samples.MESSAGE_ID,
        to=samples.TO,
        subject=samples.SUBJECT,
        reply_to=samples.REPLY_TO,
        correlation_id=samples.CORRELATION_ID,
        content_type=samples.CONTENT_TYPE,
        creation_time=samples.CREATION_TIME_MS,
        application_properties=samples.APPLICATION_PROPERTIES,
    )


def encode(message: Message) -> bytes:
    """Encode the message."""
    return message.encode()


def decode(data: bytes) -> Message:
    """Decode a message."""
    return Message.decode(data)


def read(message: Message) -> tuple[object, ...]:
    """Return the fields that an application reads: id, subject, one application property, body."""
    return (
        message.message_id,
        message.subject,
        message.application_properties["attempt"],
        message.body,
    )
