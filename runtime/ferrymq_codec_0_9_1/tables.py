"""Field tables and field arrays: names and values whose types are written with them.

AMQP 0-9-1 §4.2.5.5, with the letters for types that RabbitMQ and its clients use; they differ from
the text of the specification. What is read:

| letter | on the wire | Python |
|---|---|---|
| `t` | boolean, one octet | bool |
| `b`, `B` | signed, unsigned 8 bits | int |
| `s`, `U`; `u` | signed, unsigned 16 bits | int |
| `I`, `i` | signed, unsigned 32 bits | int |
| `l`, `L` | signed 64 bits | int |
| `f`, `d` | IEEE 754 binary32, binary64 | float |
| `D` | decimal: octet of places, signed 32 bits | Decimal |
| `S` | long string | str if it is UTF-8, else bytes |
| `x` | byte array | bytes |
| `T` | timestamp, seconds | aware datetime in UTC, `EpochSeconds` after the year 9999 |
| `F` | field table | dict |
| `A` | field array | list |
| `V` | no value | None |

What is written: `t` for a bool, `I` for an int of 32 bits, else `l`, `d` for a float, `D`, `S` for
a str, `x` for bytes, `T`, `F`, `A` for a list or a tuple, `V` for None. The sized numbers of
`ferrymq_codec` are written with their own letter: `Byte` as `b`, `UByte` as `B`, `Short` as `s`,
`UShort` as `u`, `Int` as `I`, `UInt` as `i`, `Float32` as `f`. A `Timestamp` of `ferrymq_codec`,
which counts milliseconds, is written as `T`, rounded down.

A name that stands twice in a table has its last value.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from librt.strings import (
    BytesWriter,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_f64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from ferrymq_codec.errors import EncodeError
from ferrymq_codec.floats import read_float32, write_float32
from ferrymq_codec.limits import MAX_DEPTH, MAX_U32
from ferrymq_codec.scalars import (
    Byte,
    Float32,
    Short,
    UByte,
    UInt,
    UShort,
)
from ferrymq_codec.scalars import Timestamp as Milliseconds
from ferrymq_codec_0_9_1.letters import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT16_OLD,
    INT32,
    INT64,
    INT64_OLD,
    STRING,
    TABLE,
    TIMESTAMP,
    UINT8,
    UINT16,
    UINT32,
    VOID,
)
from ferrymq_codec_0_9_1.reader import FieldReader
from ferrymq_codec_0_9_1.timestamps import EpochSeconds
from ferrymq_codec_0_9_1.writer import write_short_string, write_timestamp, write_u16, write_u32


def read_table(r: FieldReader, field: str) -> dict[str, object]:
    """Read a field table: its size in bytes, then names, each with its value."""
    size = r.read_long(field)
    if size == 0:
        return {}
    outer = _enter(r, size, field)
    table: dict[str, object] = {}
    while r.pos < r.end:
        name = r.read_short_string(field)
        table[name] = _read_value(r, field)
    r.end = outer
    r.depth -= 1
    return table


def read_array(r: FieldReader, field: str) -> list[object]:
    """Read a field array: its size in bytes, then values."""
    size = r.read_long(field)
    outer = _enter(r, size, field)
    values: list[object] = []
    while r.pos < r.end:
        values.append(_read_value(r, field))
    r.end = outer
    r.depth -= 1
    return values


def skip_table(r: FieldReader, field: str) -> None:
    """Skip a field table by its size; its content is not checked."""
    r.take(r.read_long(field), field)


def _enter(r: FieldReader, size: i64, field: str) -> i64:
    """Open a table or an array of `size` bytes; return the end around it."""
    outer = r.end
    if size > outer - r.pos:
        r.fail(field, f"size {size} does not fit the {outer - r.pos} bytes left")
    if r.depth >= MAX_DEPTH:
        r.fail(field, "nested too deeply")
    r.depth += 1
    r.end = r.pos + size
    return outer


def _read_value(r: FieldReader, field: str) -> object:
    if r.budget <= 0:
        r.fail(field, "too many values")
    r.budget -= 1
    letter = r.read_octet(field)
    data = r.data
    if letter == STRING:
        raw = r.read_long_string(field)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw
    if letter == INT32:
        return int(i64(read_i32_be(data, r.take(4, field))))
    if letter in (INT64, INT64_OLD):
        return int(read_i64_be(data, r.take(8, field)))
    if letter == BOOLEAN:
        return r.read_octet(field) != 0
    if letter == TABLE:
        return read_table(r, field)
    if letter == ARRAY:
        return read_array(r, field)
    if letter == TIMESTAMP:
        return r.read_timestamp(field)
    if letter == VOID:
        return None
    if letter == DOUBLE:
        return read_f64_be(data, r.take(8, field))
    if letter == BYTES:
        return r.read_long_string(field)
    if letter == INT8:
        small = r.read_octet(field)
        return int(small if small < 128 else small - 256)
    if letter == UINT8:
        return int(r.read_octet(field))
    if letter in (INT16, INT16_OLD):
        return int(i64(read_i16_be(data, r.take(2, field))))
    if letter == UINT16:
        return int(r.read_short(field))
    if letter == UINT32:
        return int(r.read_long(field))
    if letter == FLOAT:
        return read_float32(data, r.take(4, field))
    if letter == DECIMAL:
        places = r.read_octet(field)
        unscaled = i64(read_i32_be(data, r.take(4, field)))
        digits = tuple(int(digit) for digit in str(abs(int(unscaled))))
        return Decimal((1 if unscaled < 0 else 0, digits, -int(places)))
    r.pos -= 1
    r.fail(field, f"0x{letter:02x} is not the letter of a type")


def write_table(w: BytesWriter, table: dict[str, object], field: str) -> None:
    """Append a field table; raises EncodeError for values that no type can hold."""
    if not table:
        write_u32(w, 0)
        return
    _write_table(w, table, 0, field)


def _write_table(w: BytesWriter, table: dict[str, object], depth: i64, field: str) -> None:
    if depth >= MAX_DEPTH:
        raise EncodeError(field, "nested too deeply")
    mark = _begin(w)
    for name, value in table.items():
        if not isinstance(name, str):
            raise EncodeError(field, f"a name is a str, not {type(name).__name__}")
        write_short_string(w, name, field)
        _write_value(w, value, depth, field)
    _end(w, mark, field)


def _write_array(w: BytesWriter, values: list[object], depth: i64, field: str) -> None:
    if depth >= MAX_DEPTH:
        raise EncodeError(field, "nested too deeply")
    mark = _begin(w)
    for value in values:
        _write_value(w, value, depth, field)
    _end(w, mark, field)


def _begin(w: BytesWriter) -> i64:
    """Append room for a size; return where the bytes begin that it counts."""
    write_u32(w, 0)
    return len(w)


def _end(w: BytesWriter, mark: i64, field: str) -> None:
    size = i64(len(w)) - mark
    if size > MAX_U32:
        raise EncodeError(field, f"{size} bytes do not fit one table or array")
    w[mark - 4] = u8((size >> 24) & 0xFF)
    w[mark - 3] = u8((size >> 16) & 0xFF)
    w[mark - 2] = u8((size >> 8) & 0xFF)
    w[mark - 1] = u8(size & 0xFF)


def _write_value(w: BytesWriter, value: object, depth: i64, field: str) -> None:
    if value is None:
        w.append(VOID)
    elif isinstance(value, str):
        try:
            raw = value.encode("utf-8")
        except UnicodeEncodeError:
            raise EncodeError(field, "a string with a lone surrogate has no UTF-8 form") from None
        _write_bytes(w, STRING, raw, field)
    elif type(value) is int:
        _write_integer(w, value, field)
    elif isinstance(value, bool):
        w.append(BOOLEAN)
        w.append(1 if value else 0)
    elif isinstance(value, dict):
        w.append(TABLE)
        _write_table(w, value, depth + 1, field)
    elif isinstance(value, bytes):
        _write_bytes(w, BYTES, value, field)
    elif isinstance(value, (bytearray, memoryview)):
        _write_bytes(w, BYTES, bytes(value), field)
    elif isinstance(value, list):
        w.append(ARRAY)
        _write_array(w, value, depth + 1, field)
    elif isinstance(value, tuple):
        w.append(ARRAY)
        _write_array(w, list(value), depth + 1, field)
    elif type(value) is float:
        w.append(DOUBLE)
        write_f64_be(w, value)
    elif isinstance(value, datetime):
        w.append(TIMESTAMP)
        write_timestamp(w, value, field)
    elif isinstance(value, Decimal):
        _write_decimal(w, value, field)
    else:
        _write_sized(w, value, field)


def _write_bytes(w: BytesWriter, letter: u8, raw: bytes, field: str) -> None:
    size: i64 = len(raw)
    if size > MAX_U32:
        raise EncodeError(field, f"{size} bytes do not fit one value")
    w.append(letter)
    write_u32(w, size)
    w.write(raw)


def _write_integer(w: BytesWriter, value: int, field: str) -> None:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        w.append(INT32)
        write_i32_be(w, i32(value))
    elif -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        w.append(INT64)
        write_i64_be(w, i64(value))
    else:
        raise EncodeError(field, f"{value} does not fit a signed integer of 64 bits")


# `value` stays an object here: compiled code would turn what is declared int or float into a plain
# one, and forget the subclass.
def _write_sized(w: BytesWriter, value: object, field: str) -> None:
    """Append a number whose class states its type, or one of any other class."""
    if isinstance(value, EpochSeconds):
        w.append(TIMESTAMP)
        write_timestamp(w, value, field)
    elif isinstance(value, Milliseconds):
        w.append(TIMESTAMP)
        write_timestamp(w, int(value) // 1000, field)
    elif isinstance(value, Byte):
        w.append(INT8)
        w.append(u8(i64(value) & 0xFF))
    elif isinstance(value, UByte):
        w.append(UINT8)
        w.append(u8(value))
    elif isinstance(value, Short):
        w.append(INT16)
        write_i16_be(w, i16(value))
    elif isinstance(value, UShort):
        w.append(UINT16)
        write_u16(w, value)
    elif isinstance(value, UInt):
        w.append(UINT32)
        write_u32(w, value)
    elif isinstance(value, Float32):
        w.append(FLOAT)
        write_float32(w, value)
    elif isinstance(value, int):
        _write_integer(w, value, field)
    elif isinstance(value, float):
        w.append(DOUBLE)
        write_f64_be(w, value)
    else:
        raise EncodeError(field, f"a field table cannot hold a {type(value).__name__}")


def _write_decimal(w: BytesWriter, value: Decimal, field: str) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise EncodeError(field, f"{value} is not a finite decimal")
    places = max(0, -exponent)
    # A large exponent is refused before its zeros are computed.
    if places > 255 or exponent > 10 or len(digits) > 40:
        raise EncodeError(field, f"{value} does not fit a decimal of 32 bits")
    unscaled = 0
    for digit in digits:
        unscaled = unscaled * 10 + digit
    if exponent > 0:
        unscaled = unscaled * _power_of_ten(exponent)
    if sign:
        unscaled = -unscaled
    if not -0x80000000 <= unscaled <= 0x7FFFFFFF:
        raise EncodeError(field, f"{value} does not fit a decimal of 32 bits")
    w.append(DECIMAL)
    w.append(u8(places))
    write_i32_be(w, i32(unscaled))


def _power_of_ten(exponent: int) -> int:
    power = 1
    for _ in range(exponent):
        power *= 10
    return power
