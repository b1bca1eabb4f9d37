"""Reads values of any type, keeping the type; the table is in `ferrymq_codec.values`."""

from __future__ import annotations

from uuid import UUID

from librt.strings import read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_codec import codes
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
    # The types of most application data are read with the methods of the Reader.
    if code == codes.STRING8 or code == codes.STRING32:
        return r.read_string(field)
    if code == codes.SMALL_LONG or code == codes.LONG:
        return int(r.read_long(field))
    if code == codes.BINARY8 or code == codes.BINARY32:
        return r.read_binary(field)
    if code == codes.DESCRIBED:
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
    if code < codes.FIXED_1:
        return _constant(r, code, field)
    if code < codes.VARIABLE_1:
        width: i64 = 1 << ((code - codes.FIXED_1) >> 4)
        if r.end - r.pos < width:
            r.fail(field, f"truncated {codes.describe_code(code)}")
        pos = r.pos
        r.pos = pos + width
        return _fixed(r, pos, code, field)
    if code < codes.COMPOUND_1:
        return _variable(r, code, field)
    outer = r.end
    if code == codes.LIST8:
        return _read_elements(r, r.enter_narrow(field), outer, field)
    if code == codes.LIST32:
        return _read_elements(r, r.enter_wide(field), outer, field)
    if code == codes.MAP8:
        return read_pairs(r, r.enter_narrow(field), outer, field)
    if code == codes.MAP32:
        return read_pairs(r, r.enter_wide(field), outer, field)
    if code == codes.ARRAY8 or code == codes.ARRAY32:
        return read_array_content(r, code == codes.ARRAY32, field)
    r.fail(field, f"{codes.describe_code(code)} is not a constructor")


def _constant(r: Reader, code: i64, field: str) -> object:
    if code == codes.NULL:
        return None
    if code == codes.TRUE:
        return True
    if code == codes.FALSE:
        return False
    if code == codes.UINT0:
        return UInt(0)
    if code == codes.ULONG0:
        return ULong(0)
    if code == codes.LIST0:
        if r.depth >= MAX_DEPTH:
            r.fail(field, "nested too deeply")
        empty: list[object] = []
        return empty
    r.fail(field, f"{codes.describe_code(code)} is not a constructor")


def _fixed(r: Reader, pos: i64, code: i64, field: str) -> object:
    data = r.data
    number: i64
    if code < codes.FIXED_2:
        number = data[pos]
        if code == codes.BOOLEAN:
            if number > 1:
                r.fail(field, f"boolean byte 0x{number:02x} is neither 0 nor 1")
            return number == 1
        if code == codes.UBYTE:
            return int.__new__(UByte, number)
        if code == codes.SMALL_UINT:
            return int.__new__(UInt, number)
        if code == codes.SMALL_ULONG:
            return int.__new__(ULong, number)
        if number > 127:
            number -= 256
        if code == codes.BYTE:
            return int.__new__(Byte, number)
        if code == codes.SMALL_INT:
            return int.__new__(Int, number)
        if code == codes.SMALL_LONG:
            return int(number)
    elif code < codes.FIXED_4:
        number = i64(read_i16_be(data, pos))
        if code == codes.USHORT:
            return int.__new__(UShort, number & 0xFFFF)
        if code == codes.SHORT:
            return int.__new__(Short, number)
    elif code < codes.FIXED_8:
        if code == codes.FLOAT:
            return float.__new__(Float32, read_float32(data, pos))
        if code == codes.DECIMAL32:
            return Decimal32(unpack_decimal(data[pos : pos + 4]))
        number = i64(read_i32_be(data, pos))
        if code == codes.INT:
            return int.__new__(Int, number)
        number &= 0xFFFFFFFF
        if code == codes.UINT:
            return int.__new__(UInt, number)
        if code == codes.CHAR:
            if number > 0x10FFFF or (0xD800 <= number <= 0xDFFF):
                r.fail(field, f"0x{number:x} is not a Unicode character")
            return Char(chr(number))
    elif code < codes.FIXED_16:
        if code == codes.DOUBLE:
            return read_f64_be(data, pos)
        if code == codes.DECIMAL64:
            return Decimal64(unpack_decimal(data[pos : pos + 8]))
        number = read_i64_be(data, pos)
        if code == codes.LONG:
            return int(number)
        if code == codes.TIMESTAMP:
            return int.__new__(Timestamp, number)
        if code == codes.ULONG:
            return int.__new__(ULong, int(number) if number >= 0 else int(number) + (1 << 64))
    elif code == codes.UUID:
        return UUID(bytes=data[pos : pos + 16])
    elif code == codes.DECIMAL128:
        return unpack_decimal(data[pos : pos + 16])
    r.fail(field, f"{codes.describe_code(code)} is not a constructor")


def _variable(r: Reader, code: i64, field: str) -> object:
    size: i64
    left = r.end - r.pos
    if code < codes.VARIABLE_4:
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
        r.fail(field, f"{codes.describe_code(code)} of {size} bytes, only {r.end - start} are left")
    content = r.data[start : start + size]
    r.pos = start + size
    if code == codes.BINARY8 or code == codes.BINARY32:
        return content
    if code == codes.STRING8 or code == codes.STRING32:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            r.fail(field, "string is not UTF-8")
    if code == codes.SYMBOL8 or code == codes.SYMBOL32:
        try:
            return str.__new__(Symbol, content.decode("ascii"))
        except UnicodeDecodeError:
            r.fail(field, "symbol is not ASCII")
    r.fail(field, f"{codes.describe_code(code)} is not a constructor")


def _read_elements(r: Reader, count: i64, outer: i64, field: str) -> list[object]:
    r.charge(count, field)
    items: list[object] = []
    i: i64 = 0
    while i < count:
        items.append(read_value(r, field))
        i += 1
    r.leave(outer, field)
    return items


def _read_described(r: Reader, field: str) -> object:
    if r.depth >= MAX_DEPTH:
        r.fail(field, "nested too deeply")
    types = r.types
    if types is not None:
        start = r.pos
        code: int = r.read_descriptor(field)
        if code == -1:
            code = types.codes.get(r.symbol, -2)
        decoder = types.decoders.get(code)
        if decoder is not None:
            r.depth += 1
            typed = decoder(r)
            r.depth -= 1
            return typed
        r.pos = start
    r.depth += 1
    r.pos += 1
    descriptor = read_value(r, field)
    value = read_value(r, field)
    r.depth -= 1
    return Described.reserved(descriptor, value)


# The modules import each other: a value may be a map or an array, whose elements may be any value.
from ferrymq_codec.arrays import read_array_content  # noqa: E402
from ferrymq_codec.maps import read_pairs  # noqa: E402
