"""Appends primitive values to a BytesWriter, always in the shortest encoding (AMQP 1.0 §1.6).

Every function raises EncodeError for a value that the type cannot hold. The bytes that it has
appended before the error are undefined: drop the writer, or truncate it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from librt.strings import (
    BytesWriter,
    write_f64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from ferrymq_codec import codes
from ferrymq_codec.compound import (
    begin_composite,
    begin_list,
    begin_map,
    end_list,
    end_map,
    write_descriptor,
    write_empty_composite,
    write_u32,
)
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.floats import write_float32
from ferrymq_codec.limits import MAX_U32

__all__ = [
    "begin_composite",
    "begin_list",
    "begin_map",
    "end_list",
    "end_map",
    "write_descriptor",
    "write_empty_composite",
    "write_null",
    "write_boolean",
    "write_ubyte",
    "write_ushort",
    "write_uint",
    "write_ulong",
    "write_byte",
    "write_short",
    "write_int",
    "write_long",
    "write_float",
    "write_double",
    "write_char",
    "write_timestamp",
    "write_uuid",
    "write_binary",
    "write_string",
    "write_symbol",
    "char_point",
    "check_float",
    "encode_string",
    "encode_symbol",
    "to_milliseconds",
]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
# Halfway between the largest binary32 and the next power of two: from here on rounding gives
# infinity.
FLOAT_OVERFLOW: Final = 3.4028235677973366e38


def write_null(w: BytesWriter) -> None:
    """Append null (AMQP 1.0 §1.6.1)."""
    w.append(codes.NULL)


def write_boolean(w: BytesWriter, value: bool, field: str) -> None:
    """Append a boolean (AMQP 1.0 §1.6.2)."""
    w.append(codes.TRUE if value else codes.FALSE)


def write_ubyte(w: BytesWriter, value: int, field: str) -> None:
    """Append a ubyte, 0 to 255 (AMQP 1.0 §1.6.3)."""
    if value < 0 or value > 0xFF:
        _out_of_range(value, "ubyte", field)
    w.append(codes.UBYTE)
    w.append(u8(value))


def write_ushort(w: BytesWriter, value: int, field: str) -> None:
    """Append a ushort, 0 to 65 535 (AMQP 1.0 §1.6.4)."""
    if value < 0 or value > 0xFFFF:
        _out_of_range(value, "ushort", field)
    number: i64 = value
    w.append(codes.USHORT)
    write_i16_be(w, i16(number if number < 0x8000 else number - 0x10000))


def write_uint(w: BytesWriter, value: int, field: str) -> None:
    """Append a uint, 0 to 2**32 - 1 (AMQP 1.0 §1.6.5)."""
    if value < 0 or value > 0xFFFFFFFF:
        _out_of_range(value, "uint", field)
    number: i64 = value
    if number == 0:
        w.append(codes.UINT0)
    elif number < 256:
        w.append(codes.SMALL_UINT)
        w.append(u8(number))
    else:
        w.append(codes.UINT)
        write_i32_be(w, i32(number if number < 0x80000000 else number - 0x100000000))


def write_ulong(w: BytesWriter, value: int, field: str) -> None:
    """Append a ulong, 0 to 2**64 - 1 (AMQP 1.0 §1.6.6)."""
    if value < 0 or value > 0xFFFFFFFFFFFFFFFF:
        _out_of_range(value, "ulong", field)
    if value == 0:
        w.append(codes.ULONG0)
    elif value < 256:
        w.append(codes.SMALL_ULONG)
        w.append(u8(value))
    else:
        w.append(codes.ULONG)
        write_i64_be(w, i64(value if value <= 0x7FFFFFFFFFFFFFFF else value - (1 << 64)))


def write_byte(w: BytesWriter, value: int, field: str) -> None:
    """Append a byte, -128 to 127 (AMQP 1.0 §1.6.7)."""
    if value < -128 or value > 127:
        _out_of_range(value, "byte", field)
    number: i64 = value
    w.append(codes.BYTE)
    w.append(u8(number & 0xFF))


def write_short(w: BytesWriter, value: int, field: str) -> None:
    """Append a short, -32 768 to 32 767 (AMQP 1.0 §1.6.8)."""
    if value < -0x8000 or value > 0x7FFF:
        _out_of_range(value, "short", field)
    w.append(codes.SHORT)
    write_i16_be(w, i16(value))


def write_int(w: BytesWriter, value: int, field: str) -> None:
    """Append an int, -2**31 to 2**31 - 1 (AMQP 1.0 §1.6.9)."""
    if value < -0x80000000 or value > 0x7FFFFFFF:
        _out_of_range(value, "int", field)
    number: i64 = value
    if -128 <= number <= 127:
        w.append(codes.SMALL_INT)
        w.append(u8(number & 0xFF))
    else:
        w.append(codes.INT)
        write_i32_be(w, i32(number))


def write_long(w: BytesWriter, value: int, field: str) -> None:
    """Append a long, -2**63 to 2**63 - 1 (AMQP 1.0 §1.6.10)."""
    if value < -0x8000000000000000 or value > 0x7FFFFFFFFFFFFFFF:
        _out_of_range(value, "long", field)
    number: i64 = value
    if -128 <= number <= 127:
        w.append(codes.SMALL_LONG)
        w.append(u8(number & 0xFF))
    else:
        w.append(codes.LONG)
        write_i64_be(w, number)


def write_float(w: BytesWriter, value: float, field: str) -> None:
    """Append a float, rounded to IEEE 754 binary32 (AMQP 1.0 §1.6.11)."""
    check_float(value, field)
    w.append(codes.FLOAT)
    write_float32(w, value)


def check_float(value: float, field: str) -> None:
    """Raise EncodeError if a finite `value` is too large for IEEE 754 binary32."""
    size = abs(value)
    if FLOAT_OVERFLOW <= size < float("inf"):
        raise EncodeError(field, f"{value} is out of range for float")


def write_double(w: BytesWriter, value: float, field: str) -> None:
    """Append a double, IEEE 754 binary64 (AMQP 1.0 §1.6.12)."""
    w.append(codes.DOUBLE)
    write_f64_be(w, value)


def write_char(w: BytesWriter, value: str, field: str) -> None:
    """Append a char: a str of one Unicode scalar value (AMQP 1.0 §1.6.16)."""
    point = char_point(value, field)
    w.append(codes.CHAR)
    write_i32_be(w, i32(point))


def char_point(value: str, field: str) -> i64:
    """Return the code point of a char; raises EncodeError if it is not one Unicode scalar value."""
    if len(value) != 1:
        raise EncodeError(field, f"a char is one character, not {len(value)}")
    point: i64 = ord(value)
    if 0xD800 <= point <= 0xDFFF:
        raise EncodeError(field, f"the surrogate 0x{int(point):x} is not a Unicode character")
    return point


def write_timestamp(w: BytesWriter, value: int | datetime, field: str) -> None:
    """Append a timestamp, given in ms since the Unix epoch or as an aware datetime.

    AMQP 1.0 §1.6.17. A datetime is rounded down to the millisecond.
    """
    number = to_milliseconds(value, field) if isinstance(value, datetime) else value
    if number < -0x8000000000000000 or number > 0x7FFFFFFFFFFFFFFF:
        _out_of_range(number, "timestamp", field)
    w.append(codes.TIMESTAMP)
    write_i64_be(w, i64(number))


def to_milliseconds(value: datetime, field: str) -> int:
    """Convert an aware datetime to ms since the Unix epoch; raises EncodeError for a naive one."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise EncodeError(field, "a datetime needs a time zone to become a timestamp")
    return (value - EPOCH) // MILLISECOND


def write_uuid(w: BytesWriter, value: UUID, field: str) -> None:
    """Append a uuid (AMQP 1.0 §1.6.18)."""
    w.append(codes.UUID)
    w.write(value.bytes)


def write_binary(w: BytesWriter, value: bytes, field: str) -> None:
    """Append a binary (AMQP 1.0 §1.6.19)."""
    _write_variable(w, value, codes.BINARY8, field)


def write_string(w: BytesWriter, value: str, field: str) -> None:
    """Append a string as UTF-8 (AMQP 1.0 §1.6.20)."""
    _write_variable(w, encode_string(value, field), codes.STRING8, field)


def write_symbol(w: BytesWriter, value: str, field: str) -> None:
    """Append a symbol as ASCII (AMQP 1.0 §1.6.21)."""
    _write_variable(w, encode_symbol(value, field), codes.SYMBOL8, field)


def encode_string(value: str, field: str) -> bytes:
    """Return the bytes of a string; raises EncodeError if it holds a lone surrogate."""
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise EncodeError(field, "a string with a lone surrogate has no UTF-8 form") from None


def encode_symbol(value: str, field: str) -> bytes:
    """Return the bytes of a symbol; raises EncodeError if it is not ASCII."""
    try:
        return value.encode("ascii")
    except UnicodeEncodeError:
        raise EncodeError(field, "a symbol is ASCII only") from None


def symbol_bytes(value: str) -> bytes:
    """Return the bytes that `write_symbol` writes, for names that are known beforehand."""
    w = BytesWriter()
    write_symbol(w, value, "symbol")
    return w.getvalue()


def _write_variable(w: BytesWriter, value: bytes, narrow: u8, field: str) -> None:
    size: i64 = len(value)
    if size < 256:
        w.append(narrow)
        w.append(u8(size))
    else:
        if size > MAX_U32:
            raise EncodeError(field, f"{size} bytes do not fit one value")
        w.append(narrow + codes.WIDER)
        write_u32(w, size)
    w.write(value)


def _out_of_range(value: int, kind: str, field: str) -> None:
    raise EncodeError(field, f"{value} is out of range for {kind}")
