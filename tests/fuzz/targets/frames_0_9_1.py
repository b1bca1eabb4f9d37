"""Frames of AMQP 0-9-1, one behind the other, wherever the bytes end.

A frame that is complete stays so when more bytes follow, and has the same size; what is refused
stays refused. Only `DecodeError` may leave the reader.
"""

from __future__ import annotations

from random import Random

from librt.strings import BytesWriter

from ferrymq_codec.errors import DecodeError
from ferrymq_codec_0_9_1 import frames
from ferrymq_types_0_9_1 import registry
from ferrymq_types_0_9_1.basic import BasicDeliver, BasicProperties
from tests.fuzz.mutation.octets import mutate_octets

_LIMIT = 512


def one(data: bytes) -> None:
    """Read frames until one is not complete or is refused."""
    pos = 0
    while True:
        size = _size(data, pos, len(data))
        if size <= 0:
            break
        assert frames.OVERHEAD <= size <= _LIMIT
        assert 0 <= frames.frame_channel(data, pos) <= 0xFFFF
        assert _size(data, pos, pos + size) == size
        assert _size(data, pos, pos + size - 1) == 0
        assert data[pos + size - 1] == frames.END
        pos += size
    for end in range(pos, min(len(data), pos + 16)):
        found = _size(data, pos, end)
        assert found == 0 or found == size == -1


def _size(data: bytes, pos: int, end: int) -> int:
    try:
        return frames.frame_size(data, pos, end, _LIMIT)
    except DecodeError as error:
        assert pos <= error.offset < end
        assert error.field.startswith("frame.")
        return -1


def seeds() -> list[bytes]:
    """A delivery, a heartbeat, and both."""
    w = BytesWriter()
    registry.write_method_frame(w, 1, BasicDeliver(consumer_tag="c", routing_key="q"))
    registry.write_header_frame(w, 1, 60, 3, BasicProperties(delivery_mode=2))
    registry.write_body_frames(w, 1, b"abc", 0)
    delivery = w.getvalue()
    w = BytesWriter()
    registry.write_heartbeat(w)
    return [delivery, w.getvalue(), delivery + w.getvalue(), frames.PROTOCOL_HEADER]


def mutate(random: Random, data: bytes) -> bytes:
    """Other octets."""
    return mutate_octets(random, data)
