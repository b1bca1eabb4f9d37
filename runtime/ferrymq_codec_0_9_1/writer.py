"""Appends the fields of methods and of content headers to a BytesWriter (AMQP 0-9-1 §4.2.5).

Every function raises EncodeError for a value that the domain cannot hold. The bytes that it has
appended before the error are undefined: drop the writer, or truncate it.
"""

from __future__ import annotations

import re
from datetime import datetime

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from ferrymq_codec.errors import EncodeError
from ferrymq_codec.limits import MAX_U32
from ferrymq_codec_0_9_1.timestamps import to_seconds


def write_u16(w: BytesWriter, value: i64) -> None:
    """Append two bytes: a number below 2**16."""
    write_i16_be(w, i16(value if value < 0x8000 else value - 0x10000))


def write_u32(w: BytesWriter, value: i64) -> None:
    """Append four bytes: a number below 2**32."""
    write_i32_be(w, i32(value if value < 0x80000000 else value - 0x100000000))


def write_octet(w: BytesWriter, value: int, field: str) -> None:
    """Append an octet, 0 to 255."""
    if value < 0 or value > 0xFF:
        _out_of_range(value, "octet", field)
    w.append(u8(value))


def write_short(w: BytesWriter, value: int, field: str) -> None:
    """Append a short, 0 to 65 535."""
    if value < 0 or value > 0xFFFF:
        _out_of_range(value, "short", field)
    write_u16(w, value)


def write_long(w: BytesWriter, value: int, field: str) -> None:
    """Append a long, 0 to 2**32 - 1."""
    if value < 0 or value > 0xFFFFFFFF:
        _out_of_range(value, "long", field)
    write_u32(w, value)


def write_longlong(w: BytesWriter, value: int, field: str) -> None:
    """Append a longlong, 0 to 2**64 - 1."""
    if value < 0 or value > 0xFFFFFFFFFFFFFFFF:
        _out_of_range(value, "longlong", field)
    write_i64_be(w, i64(value if value <= 0x7FFFFFFFFFFFFFFF else value - (1 << 64)))


def write_short_string(w: BytesWriter, value: str, field: str) -> None:
    """Append a short string: at most 255 bytes of UTF-8."""
    try:
        raw = value.encode("utf-8")
    except UnicodeEncodeError:
        raise EncodeError(field, "a string with a lone surrogate has no UTF-8 form") from None
    size: i64 = len(raw)
    if size > 255:
        raise EncodeError(field, f"{size} bytes do not fit a short string of at most 255")
    w.append(u8(size))
    w.write(raw)


def write_long_string(w: BytesWriter, value: bytes, field: str) -> None:
    """Append a long string."""
    size: i64 = len(value)
    if size > MAX_U32:
        raise EncodeError(field, f"{size} bytes do not fit a long string")
    write_u32(w, size)
    w.write(value)


def write_timestamp(w: BytesWriter, value: datetime | int, field: str) -> None:
    """Append a timestamp: seconds since the Unix epoch, or an aware datetime, rounded down."""
    if isinstance(value, datetime):
        try:
            seconds = to_seconds(value)
        except ValueError as error:
            raise EncodeError(field, str(error)) from None
    else:
        seconds = value
    if seconds < 0 or seconds > 0xFFFFFFFFFFFFFFFF:
        _out_of_range(seconds, "timestamp", field)
    write_longlong(w, seconds, field)


def check_length(value: str | bytes, limit: i64, field: str) -> None:
    """Raise EncodeError if a string is longer than `limit` bytes."""
    size = len(value.encode("utf-8", "replace")) if isinstance(value, str) else len(value)
    if size > limit:
        raise EncodeError(field, f"{size} bytes, not at most {limit}")


def check_pattern(value: str, pattern: re.Pattern[str], field: str) -> None:
    """Raise EncodeError if a string does not match `pattern`."""
    if pattern.fullmatch(value) is None:
        raise EncodeError(field, f"{value!r} does not match {pattern.pattern}")


def _out_of_range(value: int, kind: str, field: str) -> None:
    raise EncodeError(field, f"{value} is out of range for {kind}")
