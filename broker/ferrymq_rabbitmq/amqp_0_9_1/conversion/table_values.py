"""Values of field tables for values of AMQP 1.0, from bytes to bytes: no type gets lost.

| value of AMQP 1.0 | letter |
|---|---|
| boolean, null | `t`, `V` |
| byte, ubyte, short, ushort, int, uint, long | `b`, `B`, `s`, `u`, `I`, `i`, `l` |
| ulong | `l`; `S` with digits, if it does not fit |
| float, double | `f`, `d` |
| decimal32, decimal64, decimal128 | `D`; `S` with digits, if it does not fit |
| string, symbol, char | `S` |
| uuid | `S`: ``urn:uuid:…`` |
| binary | `x` |
| timestamp | `T`, rounded down to seconds; `l` before 1970 |
| list, array | `A` |
| map | `F`, without the keys that are no strings or have more than 255 bytes |
| described value | none: it is left out, or `V` inside of a list or map |
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final
from uuid import UUID

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64, u8

from ferrymq_codec import codes
from ferrymq_codec.compound import write_u32
from ferrymq_codec.containers import Array
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_codec.value_reader import read_value
from ferrymq_codec.value_writer import write_value
from ferrymq_codec_0_9_1 import letters
from ferrymq_codec_0_9_1.tables import write_table
from ferrymq_rabbitmq.amqp_0_9_1.conversion.field_values import is_utf8

_FIELD: Final = "message.value"
_MAX_NAME: Final = 255


def write_field_value(w: BytesWriter, r: Reader) -> bool:
    """Read the next value and append it with its letter; return false, and append nothing, if there
    is no letter for it. Raises `DecodeError`."""
    code = r.peek_code(_FIELD)
    pos = r.pos
    if (
        code == codes.STRING8
        or code == codes.SYMBOL8
        or code == codes.STRING32
        or (code == codes.SYMBOL32)
    ):
        write_sized(w, letters.STRING, take_text(r))
    elif code == codes.BINARY8 or code == codes.BINARY32:
        write_sized(w, letters.BYTES, r.read_binary(_FIELD))
    elif code == codes.NULL:
        r.pos = pos + 1
        w.append(letters.VOID)
    elif code == codes.TRUE or code == codes.FALSE or code == codes.BOOLEAN:
        value = r.read_boolean(_FIELD)
        w.append(letters.BOOLEAN)
        w.append(1 if value else 0)
    elif code == codes.INT or code == codes.SMALL_INT:
        w.append(letters.INT32)
        write_u32(w, r.read_int(_FIELD) & 0xFFFFFFFF)
    elif code == codes.LONG or code == codes.SMALL_LONG:
        w.append(letters.INT64)
        write_i64_be(w, r.read_long(_FIELD))
    elif code == codes.UINT or code == codes.SMALL_UINT or code == codes.UINT0:
        w.append(letters.UINT32)
        write_u32(w, r.read_uint(_FIELD))
    elif code == codes.LIST8 or code == codes.LIST32 or code == codes.LIST0:
        _write_list(w, r)
    elif code == codes.MAP8 or code == codes.MAP32:
        _write_map(w, r)
    elif code == codes.TIMESTAMP:
        _write_timestamp(w, r.read_timestamp(_FIELD))
    elif code == codes.DESCRIBED:
        r.skip_value(_FIELD)
        return False
    elif code == codes.DOUBLE:
        _copy(w, r, letters.DOUBLE, 8)
    elif code == codes.FLOAT:
        _copy(w, r, letters.FLOAT, 4)
    elif code == codes.UBYTE:
        _copy(w, r, letters.UINT8, 1)
    elif code == codes.BYTE:
        _copy(w, r, letters.INT8, 1)
    elif code == codes.USHORT:
        _copy(w, r, letters.UINT16, 2)
    elif code == codes.SHORT:
        _copy(w, r, letters.INT16, 2)
    else:
        return _write_rare(w, read_value(r, _FIELD))
    return True


def take_text(r: Reader) -> bytes:
    """Read a string or a symbol as its bytes. Raises `DecodeError` for anything else."""
    code = r.peek_code(_FIELD)
    head: i64
    if code == codes.STRING8 or code == codes.SYMBOL8:
        head = 2
    elif code == codes.STRING32 or code == codes.SYMBOL32:
        head = 5
    else:
        r.fail(_FIELD, f"expected a string or a symbol, found {codes.describe_code(code)}")
    start = r.pos + head
    r.skip_value(_FIELD)
    return r.data[start : r.pos]


def write_sized(w: BytesWriter, letter: u8, raw: bytes) -> None:
    """Append a long string or a byte array."""
    w.append(letter)
    write_u32(w, len(raw))
    w.write(raw)


def begin_sized(w: BytesWriter) -> i64:
    """Append room for the size of a table or an array; return where the counted bytes begin."""
    write_u32(w, 0)
    return len(w)


def end_sized(w: BytesWriter, mark: i64) -> None:
    """Write the size of what has been appended since `mark` in front of it."""
    size = i64(len(w)) - mark
    w[mark - 4] = u8((size >> 24) & 0xFF)
    w[mark - 3] = u8((size >> 16) & 0xFF)
    w[mark - 2] = u8((size >> 8) & 0xFF)
    w[mark - 1] = u8(size & 0xFF)


def _copy(w: BytesWriter, r: Reader, letter: u8, size: i64) -> None:
    """Append a value that is encoded equally in both versions, in `size` bytes."""
    start = r.pos + 1
    r.skip_value(_FIELD)
    w.append(letter)
    w.write(r.data[start : start + size])


def _write_timestamp(w: BytesWriter, milliseconds: i64) -> None:
    w.append(letters.TIMESTAMP if milliseconds >= 0 else letters.INT64)
    write_i64_be(w, milliseconds // 1000)


def _write_list(w: BytesWriter, r: Reader) -> None:
    outer = r.end
    count = r.enter_list(_FIELD)
    r.charge(count, _FIELD)
    w.append(letters.ARRAY)
    mark = begin_sized(w)
    for _ in range(count):
        if not write_field_value(w, r):
            w.append(letters.VOID)
    end_sized(w, mark)
    r.leave(outer, _FIELD)


def _write_map(w: BytesWriter, r: Reader) -> None:
    outer = r.end
    count = r.enter_map(_FIELD)
    r.charge(count, _FIELD)
    if count % 2 != 0:
        r.fail(_FIELD, f"map of {count} items: a key has no value")
    w.append(letters.TABLE)
    mark = begin_sized(w)
    seen: set[bytes] = set()
    for _ in range(count // 2):
        code = r.peek_code(_FIELD)
        if code != codes.STRING8 and code != codes.SYMBOL8:
            # Other strings may be short, too, but no encoder writes them so.
            r.skip_value(_FIELD)
            r.skip_value(_FIELD)
            continue
        name = take_text(r)
        if name in seen or not is_utf8(name):
            r.skip_value(_FIELD)
            continue
        seen.add(name)
        w.append(u8(len(name)))
        w.write(name)
        if not write_field_value(w, r):
            w.append(letters.VOID)
    end_sized(w, mark)
    r.leave(outer, _FIELD)


def _write_rare(w: BytesWriter, value: object) -> bool:
    """Append a value of a type that is rarely used."""
    if isinstance(value, Array):
        return _write_array(w, value)
    if isinstance(value, UUID):
        text = f"urn:uuid:{value}"
    elif isinstance(value, Decimal):
        if _write_decimal(w, value):
            return True
        text = str(value)
    elif isinstance(value, int):
        number = int(value)
        if number <= 0x7FFFFFFFFFFFFFFF:
            w.append(letters.INT64)
            write_i64_be(w, i64(number))
            return True
        text = str(number)
    elif isinstance(value, str):
        text = str(value)
    else:
        return False
    write_sized(w, letters.STRING, text.encode())
    return True


def _write_array(w: BytesWriter, value: Array) -> bool:
    """Append an array as its elements; not one whose elements take no bytes, which may be many."""
    if len(value) > SECTION_ELEMENTS:
        return False
    scratch = BytesWriter()
    try:
        write_value(scratch, list(value), _FIELD)
    except EncodeError:
        return False
    _write_list(w, Reader(scratch.getvalue()))
    return True


def _write_decimal(w: BytesWriter, value: Decimal) -> bool:
    scratch = BytesWriter()
    try:
        write_table(scratch, {"": value}, _FIELD)
    except EncodeError:
        return False
    # Behind the size of the table and the empty name.
    w.write(scratch.getvalue()[5:])
    return True
