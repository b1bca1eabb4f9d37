"""Frames: the 8-byte header around every performative (AMQP 1.0 §2.3).

size (4) | doff (1) | type (1) | channel (2) | extended header | body
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

FRAME_HEADER_SIZE: Final = 8
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

# A frame without a body: it keeps the connection alive (AMQP 1.0 §2.4.5).
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def begin_frame(w: BytesWriter, channel: i64, frame_type: u8 = 0) -> i64:
    """Write a frame header without its size; return the mark for `end_frame`."""
    mark: i64 = len(w)
    w.write(b"\x00\x00\x00\x00\x02")
    w.append(frame_type)
    w.append(u8((channel >> 8) & 0xFF))
    w.append(u8(channel & 0xFF))
    return mark


def end_frame(w: BytesWriter, mark: i64, spliced: i64 = 0) -> i64:
    """Fill in the size of the frame begun at `mark` and return it, in bytes. The last `spliced`
    bytes of the frame are not in `w`."""
    size: i64 = len(w) - mark + spliced
    w[mark] = u8((size >> 24) & 0xFF)
    w[mark + 1] = u8((size >> 16) & 0xFF)
    w[mark + 2] = u8((size >> 8) & 0xFF)
    w[mark + 3] = u8(size & 0xFF)
    return size


def protocol_header(protocol_id: int) -> bytes:
    """Return the 8 bytes that open a layer: ``AMQP``, the protocol id, version 1.0.0 (§2.2)."""
    return b"AMQP" + bytes((protocol_id, 1, 0, 0))
