"""Reads values of any type, keeping the type; the table is in `ferrymq_codec.values`."""

from __future__ import annotations

from uuid import UUID

from librt.strings import read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_codec.codes import describe_code
from ferrymq_codec.decimals import unpack_decimal
from ferrymq_codec.floats import read_float32
from ferrymq_codec.limits import MAX_DEPTH
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def read_value(r: Reader, field: str) -> object:
    """Read one value of any type; raises DecodeError."""
    pos = r.pos
    if pos >= r.end:
        r.fail(field, "truncated")
    code: i64 = r.data[pos]
    # The types of most application data, through the methods of the Reader.
    if code == 0xA1 or code == 0xB1:
        return r.read_string(field)
    if code == 0x55 or code == 0x81:
        return int(r.read_long(field))
    if code == 0xA0 or code == 0xB0:
        return r.read_binary(field)
    if code == 0:
        return _read_described(r, field)
    r.pos = pos + 1
    return read_payload(r, code, field)


def read_list(r: Reader, field: str) -> list[object]:
    """Read a list of any values; raises DecodeError."""
    outer = r.end
    count = r.enter_list(field)
    return _read_elements(r, count, outer, field)


def read_payload(r: Reader, code: i64, field: str) -> object:
    """Read a value whose constructor `code` has been read already, as in an array."""
    category = code >> 4
    if category < 5:
        return _constant(r, code, field)
    if category < 0xA:
        width: i64 = 1 << (category - 5)
        if r.end - r.pos < width:
            r.fail(field, f"truncated {describe_code(code)}")
        pos = r.pos
        r.pos = pos + width
        return _fixed(r, pos, code, field)
    if category == 0xA or category == 0xB:
        return _variable(r, code, field)
    outer = r.end
    if code == 0xC0:
        return _read_elements(r, r.enter_narrow(field), outer, field)
    if code == 0xD0:
        return _read_elements(r, r.enter_wide(field), outer, field)
    if code == 0xC1:
        return read_pairs(r, r.enter_narrow(field), outer, field)
    if code == 0xD1:
        return read_pairs(r, r.enter_wide(field), outer, field)
    if code == 0xE0 or code == 0xF0:
        return read_array_content(r, code == 0xF0, field)
    r.fail(field, f"{describe_code(code)} is not a constructor")


def _constant(r: Reader, code: i64, field: str) -> object:
    if code == 0x40:
        return None
    if code == 0x41:
        return True
    if code == 0x42:
        return False
    if code == 0x43:
        return UInt(0)
    if code == 0x44:
        return ULong(0)
    if code == 0x45:
        if r.depth >= MAX_DEPTH:
            r.fail(field, "nested too deeply")
        empty: list[object] = []
        return empty
    r.fail(field, f"{describe_code(code)} is not a constructor")


def _fixed(r: Reader, pos: i64, code: i64, field: str) -> object:
    data = r.data
    number: i64
    if code < 0x60:
        number = data[pos]
        if code == 0x56:
            if number > 1:
                r.fail(field, f"boolean byte 0x{number:02x} is neither 0 nor 1")
            return number == 1
        if code == 0x50:
            return int.__new__(UByte, number)
        if code == 0x52:
            return int.__new__(UInt, number)
        if code == 0x53:
            return int.__new__(ULong, number)
        if number > 127:
            number -= 256
        if code == 0x51:
            return int.__new__(Byte, number)
        if code == 0x54:
            return int.__new__(Int, number)
        if code == 0x55:
            return int(number)
    elif code < 0x70:
        number = i64(read_i16_be(data, pos))
        if code == 0x60:
            return int.__new__(UShort, number & 0xFFFF)
        if code == 0x61:
            return int.__new__(Short, number)
    elif code < 0x80:
        if code == 0x72:
            return float.__new__(Float32, read_float32(data, pos))
        if code == 0x74:
            return Decimal32(unpack_decimal(data[pos : pos + 4]))
        number = i64(read_i32_be(data, pos))
        if code == 0x71:
            return int.__new__(Int, number)
        number &= 0xFFFFFFFF
        if code == 0x70:
            return int.__new__(UInt, number)
        if code == 0x73:
            if number > 0x10FFFF or (0xD800 <= number <= 0xDFFF):
                r.fail(field, f"0x{number:x} is not a Unicode character")
            return Char(chr(number))
    elif code < 0x90:
        if code == 0x82:
            return read_f64_be(data, pos)
        if code == 0x84:
            return Decimal64(unpack_decimal(data[pos : pos + 8]))
        number = read_i64_be(data, pos)
        if code == 0x81:
            return int(number)
        if code == 0x83:
            return int.__new__(Timestamp, number)
        if code == 0x80:
            return int.__new__(ULong, int(number) if number >= 0 else int(number) + (1 << 64))
    elif code == 0x98:
        return UUID(bytes=data[pos : pos + 16])
    elif code == 0x94:
        return unpack_decimal(data[pos : pos + 16])
    r.fail(field, f"{describe_code(code)} is not a constructor")


def _variable(r: Reader, code: i64, field: str) -> object:
    size: i64
    left = r.end - r.pos
    if code < 0xB0:
        if left < 1:
            r.fail(field, "truncated size")
        size = r.data[r.pos]
        r.pos += 1
    else:
        if left < 4:
            r.fail(field, "truncated size")
        size = i64(read_i32_be(r.data, r.pos)) & 0xFFFFFFFF
        r.pos += 4
    start = r.pos
    if size > r.end - start:
        r.fail(field, f"{describe_code(code)} of {size} bytes, only {r.end - start} are left")
    content = r.data[start : start + size]
    r.pos = start + size
    kind = code & 0xF
    if kind == 0:
        return content
    if kind == 1:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            r.fail(field, "string is not UTF-8")
    if kind == 3:
        try:
            return str.__new__(Symbol, content.decode("ascii"))
        except UnicodeDecodeError:
            r.fail(field, "symbol is not ASCII")
    r.fail(field, f"{describe_code(code)} is not a constructor")


def _read_elements(r: Reader, count: i64, outer: i64, field: str) -> list[object]:
    r.charge(count, field)
    items: list[object] = []
    i: i64 = 0
    while i < count:
        items.append(read_value(r, field))
        i += 1
    r.leave(outer, field)
    return items


def _read_described(r: Reader, field: str) -> Described:
    if r.depth >= MAX_DEPTH:
        r.fail(field, "nested too deeply")
    r.depth += 1
    r.pos += 1
    descriptor = read_value(r, field)
    value = read_value(r, field)
    r.depth -= 1
    return Described.reserved(descriptor, value)


# The modules need each other: a value may be a map or an array, whose elements may be any value.
from ferrymq_codec.arrays import read_array_content  # noqa: E402
from ferrymq_codec.maps import read_pairs  # noqa: E402
