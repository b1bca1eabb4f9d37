"""Frames: type, channel, size, payload and the octet at the end (AMQP 0-9-1 §4.2.3).

A method is one method frame. If it has a content, a header frame and body frames follow on the same
channel (§4.2.6). Reading needs no object: `frame_size` says how long the frame at a position is,
`frame_channel` names its channel, the first byte is its type, and its payload lies between
`PAYLOAD` bytes from its start and one byte before its end.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i64_be
from mypy_extensions import i64, u8

from ferrymq_codec.errors import DecodeError, EncodeError
from ferrymq_codec.limits import MAX_U32
from ferrymq_codec_0_9_1.writer import write_longlong, write_u16, write_u32

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE

PAYLOAD: Final = 7
"""The bytes of a frame before its payload."""

OVERHEAD: Final = 8
"""The bytes of a frame beside its payload."""

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
"""The first eight bytes of a client (AMQP 0-9-1 §4.2.2)."""


def frame_size(data: bytes, pos: i64, end: i64, frame_max: i64) -> i64:
    """Return the size in bytes of the frame that starts at `pos`, or 0 if it is not complete.

    `end` is where the received bytes end. `frame_max` is the largest size of a frame in bytes, with
    its envelope; 0 means no limit. Raises `DecodeError` if the frame has no known type, is larger,
    or does not end with the octet 0xCE.
    """
    left = end - pos
    if left <= 0:
        return 0
    kind: i64 = data[pos]
    if kind != METHOD and kind != BODY and kind != HEADER and kind != HEARTBEAT:
        raise DecodeError(pos, "frame.type", f"no frame has the type {kind}")
    if left < PAYLOAD:
        return 0
    size = (i64(read_i32_be(data, pos + 3)) & 0xFFFFFFFF) + OVERHEAD
    if frame_max != 0 and size > frame_max:
        raise DecodeError(pos, "frame.size", f"{size} bytes, not at most {frame_max}")
    if size > left:
        return 0
    last: i64 = data[pos + size - 1]
    if last != END:
        at = pos + size - 1
        raise DecodeError(at, "frame.end", f"the last octet is 0x{last:02x}, not 0xce")
    return size


def frame_channel(data: bytes, pos: i64) -> i64:
    """Return the channel of the frame at `pos`, whose size is known."""
    return i64(read_i16_be(data, pos + 1)) & 0xFFFF


def begin_frame(w: BytesWriter, kind: u8, channel: i64) -> i64:
    """Append the start of a frame; returns the mark that `end_frame` needs."""
    if channel < 0 or channel > 0xFFFF:
        raise EncodeError("frame.channel", f"{channel} is out of range for a channel")
    w.append(kind)
    write_u16(w, channel)
    write_u32(w, 0)
    return len(w)


def end_frame(w: BytesWriter, mark: i64) -> None:
    """Close a frame: its size becomes known, its last octet is appended."""
    size = i64(len(w)) - mark
    if size > MAX_U32:
        raise EncodeError("frame.size", f"{size} bytes do not fit one frame")
    if size > 0xFFFF:
        w[mark - 4] = u8((size >> 24) & 0xFF)
        w[mark - 3] = u8((size >> 16) & 0xFF)
    w[mark - 2] = u8((size >> 8) & 0xFF)
    w[mark - 1] = u8(size & 0xFF)
    w.append(END)


def write_raw_header(
    w: BytesWriter, channel: i64, class_id: i64, body_size: int, properties: bytes
) -> None:
    """Append a header frame; `properties` are the property flags and the properties as bytes."""
    mark = begin_frame(w, HEADER, channel)
    write_u16(w, class_id)
    write_u16(w, 0)
    if 0 <= body_size <= 0x7FFFFFFFFFFFFFFF:
        write_i64_be(w, i64(body_size))
    else:
        write_longlong(w, body_size, "header.body-size")
    w.write(properties)
    end_frame(w, mark)


def write_body_frames(w: BytesWriter, channel: i64, body: bytes, frame_max: i64) -> None:
    """Append the body frames of a content: none for an empty body.

    `frame_max` is the largest size of a frame in bytes, with its envelope; 0 means no limit.
    """
    size: i64 = len(body)
    room = frame_max - OVERHEAD if frame_max != 0 else MAX_U32
    if room <= 0:
        raise EncodeError("frame.size", f"a frame of {frame_max} bytes has no room for a body")
    if size <= room:
        if size > 0:
            _write_body(w, channel, body, size)
        return
    start: i64 = 0
    while start < size:
        piece = body[start : start + room]
        _write_body(w, channel, piece, len(piece))
        start += room


def _write_body(w: BytesWriter, channel: i64, piece: bytes, size: i64) -> None:
    w.append(BODY)
    write_u16(w, channel)
    write_u32(w, size)
    w.write(piece)
    w.append(END)


def write_heartbeat(w: BytesWriter) -> None:
    """Append a heartbeat frame, which is on channel 0 and has no payload (AMQP 0-9-1 §4.2.7)."""
    w.append(HEARTBEAT)
    write_u16(w, 0)
    write_u32(w, 0)
    w.append(END)
