"""Positions within a message: how much of it has arrived (AMQP 1.0 §3.4.1, §3.4.6).

A `received` state names a section, counted from 0, and a byte within the encoded section. These
functions convert positions to offsets in the encoded message and back.
"""

from __future__ import annotations

from mypy_extensions import i64

from ferrymq.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types.messaging import Received


def position_at_end(data: bytes) -> Received:
    """Return the first position after `data`, the beginning of an encoded message."""
    reader = Reader(data)
    number = 0
    start: i64 = 0
    while reader.pos < reader.end:
        start = reader.pos
        try:
            reader.skip_value("message")
        except DecodeError:
            return Received(section_number=number, section_offset=len(data) - start)
        number += 1
    return Received(section_number=number, section_offset=0)


def offset_of(data: bytes, position: Received) -> i64:
    """Return the offset of `position` in `data`, in bytes; −1 if it is beyond the end."""
    reader = Reader(data)
    number = position.section_number
    while number > 0:
        if reader.pos >= reader.end:
            return -1
        try:
            reader.skip_value("message")
        except DecodeError:
            return -1
        number -= 1
    offset = reader.pos + position.section_offset
    return offset if offset <= len(data) else -1


def is_before(a: Received, b: Received) -> bool:
    """Return whether position `a` is before position `b`."""
    if a.section_number != b.section_number:
        return a.section_number < b.section_number
    return a.section_offset < b.section_offset
