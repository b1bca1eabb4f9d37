"""Values in untyped places: any AMQP value to a Python value and back, the type kept.

| AMQP | Python |
|---|---|
| null, boolean | `None`, `bool` |
| long, double, string, binary, uuid | `int`, `float`, `str`, `bytes`, `uuid.UUID` |
| ubyte … ulong, byte … int, float, char, symbol | `UByte` … `ULong`, `Byte` … `Int`, `Float32`, … |
| timestamp | `Timestamp`; an aware `datetime` is written as one too |
| decimal32, decimal64, decimal128 | `Decimal32`, `Decimal64`, `Decimal` |
| list, map, array | `list`, `dict` (`PairMap` where a dict cannot hold the keys), `Array` |
| described | `Described`; composites are written through their `encode` |
"""

from __future__ import annotations

import threading
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    read_i64_be,
)
from mypy_extensions import i64

from ferrymq_codec.codes import describe_code
from ferrymq_codec.composite import Composite
from ferrymq_codec.compound import begin_list, begin_map, end_list, end_map
from ferrymq_codec.containers import Array, PairMap
from ferrymq_codec.decimals import (
    unpack_decimal,
    write_decimal32,
    write_decimal64,
    write_decimal128,
)
from ferrymq_codec.errors import EncodeError
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
from ferrymq_codec.writer import (
    write_binary,
    write_byte,
    write_char,
    write_double,
    write_float,
    write_int,
    write_long,
    write_short,
    write_string,
    write_symbol,
    write_timestamp,
    write_ubyte,
    write_uint,
    write_ulong,
    write_ushort,
    write_uuid,
)

__all__ = [
    "read_value",
    "write_value",
    "read_map",
    "write_map",
    "read_symbol_map",
    "write_symbol_map",
    "read_annotations",
    "write_annotations",
    "read_string_map",
    "write_string_map",
    "read_array",
    "write_array",
    "read_list",
    "write_list",
    "read_multiple",
    "write_multiple",
    "read_multiple_symbol",
    "write_multiple_symbol",
    "read_payload",
    "write_nested",
]


class _Nesting(threading.local):
    """How deeply the composites are nested that this thread is encoding in untyped places."""

    depth = 0


_nesting: Final = _Nesting()


# ── Reading ────────────────────────────────────────────────────────────────────────────────────


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
    if category == 4:
        return _constant(r, code, field)
    if category < 0xA:
        width: i64 = 1 << (category - 5)
        if r.end - r.pos < width:
            r.fail(field, f"truncated {describe_code(code)}")
        pos = r.pos
        r.pos = pos + width
        return _fixed(r, pos, code, field)
    if category == 0xA or category == 0xB:
        # Back to the size: the methods of the Reader start at the constructor.
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
            return float.__new__(Float32, read_f32_be(data, pos))
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


# ── Writing ────────────────────────────────────────────────────────────────────────────────────


def write_value(w: BytesWriter, value: object, field: str) -> None:
    """Append one value of any type; raises EncodeError if it has none or does not fit."""
    write_nested(w, value, field, 0)


def write_list(w: BytesWriter, value: list[object], field: str) -> None:
    """Append a list of any values; raises EncodeError."""
    write_nested(w, value, field, 0)


def write_nested(w: BytesWriter, value: object, field: str, depth: i64) -> None:
    """Append a value inside `depth` other containers."""
    if value is None:
        w.append(0x40)
    elif isinstance(value, str):
        if type(value) is str:
            write_string(w, value, field)
        elif isinstance(value, Symbol):
            write_symbol(w, value, field)
        elif isinstance(value, Char):
            write_char(w, value, field)
        else:
            write_string(w, value, field)
    elif type(value) is int:
        write_long(w, value, field)
    elif value is True:
        w.append(0x41)
    elif value is False:
        w.append(0x42)
    elif type(value) is float:
        write_double(w, value, field)
    elif isinstance(value, bytes):
        write_binary(w, value, field)
    elif isinstance(value, dict):
        _write_pairs(w, list(value.items()), field, depth)
    elif isinstance(value, (list, tuple)):
        if depth >= MAX_DEPTH:
            raise EncodeError(field, "nested too deeply")
        mark = begin_list(w)
        for item in value:
            write_nested(w, item, field, depth + 1)
        end_list(w, mark, len(value))
    elif isinstance(value, Array):
        write_nested_array(w, value, field, depth)
    elif isinstance(value, Described):
        if depth >= MAX_DEPTH:
            raise EncodeError(field, "nested too deeply")
        w.append(0)
        write_nested(w, value.descriptor, field, depth + 1)
        write_nested(w, value.value, field, depth + 1)
    elif isinstance(value, Composite):
        _write_composite(w, value, field, depth)
    elif isinstance(value, PairMap):
        _write_pairs(w, list(value.pairs), field, depth)
    else:
        _write_number(w, value, field)


# `value` stays an object here: compiled code would turn what is declared int or float into a plain
# one, and forget the subclass.
def _write_number(w: BytesWriter, value: object, field: str) -> None:
    if isinstance(value, UInt):
        write_uint(w, value, field)
    elif isinstance(value, ULong):
        write_ulong(w, value, field)
    elif isinstance(value, Int):
        write_int(w, value, field)
    elif isinstance(value, Timestamp):
        write_timestamp(w, value, field)
    elif isinstance(value, UShort):
        write_ushort(w, value, field)
    elif isinstance(value, UByte):
        write_ubyte(w, value, field)
    elif isinstance(value, Short):
        write_short(w, value, field)
    elif isinstance(value, Byte):
        write_byte(w, value, field)
    elif isinstance(value, Float32):
        write_float(w, value, field)
    elif isinstance(value, int):
        write_long(w, value, field)
    elif isinstance(value, float):
        write_double(w, value, field)
    else:
        _write_rare(w, value, field)


def _write_rare(w: BytesWriter, value: object, field: str) -> None:
    if isinstance(value, UUID):
        write_uuid(w, value, field)
    elif isinstance(value, datetime):
        write_timestamp(w, value, field)
    elif isinstance(value, Decimal):
        if isinstance(value, Decimal32):
            write_decimal32(w, value, field)
        elif isinstance(value, Decimal64):
            write_decimal64(w, value, field)
        else:
            write_decimal128(w, value, field)
    elif isinstance(value, (bytearray, memoryview)):
        write_binary(w, bytes(value), field)
    else:
        raise EncodeError(field, f"{type(value).__name__} has no AMQP type")


def _write_pairs(
    w: BytesWriter, pairs: list[tuple[object, object]], field: str, depth: i64
) -> None:
    if depth >= MAX_DEPTH:
        raise EncodeError(field, "nested too deeply")
    mark = begin_map(w)
    for key, value in pairs:
        write_nested(w, key, field, depth + 1)
        write_nested(w, value, field, depth + 1)
    end_map(w, mark, 2 * len(pairs))


def _write_composite(w: BytesWriter, value: Composite, field: str, depth: i64) -> None:
    # A composite starts counting anew for the values inside it, so the nesting of composites is
    # counted here: one that contains itself shall end in an error, not in a stack overflow.
    before = _nesting.depth
    if before + depth >= MAX_DEPTH:
        raise EncodeError(field, "nested too deeply")
    _nesting.depth = before + int(depth) + 1
    try:
        value.encode(w)
    finally:
        _nesting.depth = before


# The modules need each other: a value may be a map or an array, whose elements may be any value.
from ferrymq_codec.arrays import (  # noqa: E402
    read_array,
    read_array_content,
    write_array,
    write_nested_array,
)
from ferrymq_codec.maps import (  # noqa: E402
    read_annotations,
    read_map,
    read_pairs,
    read_string_map,
    read_symbol_map,
    write_annotations,
    write_map,
    write_string_map,
    write_symbol_map,
)
from ferrymq_codec.multiples import (  # noqa: E402
    read_multiple,
    read_multiple_symbol,
    write_multiple,
    write_multiple_symbol,
)
