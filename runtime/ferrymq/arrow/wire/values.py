"""Transfer of single values from a message into a column, without a Python object for each."""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be, read_i64_le
from mypy_extensions import i64

from ferrymq.arrow.wire.columns import Numbers, Texts
from ferrymq.arrow.wire.texts import binary_text, json_of, text_of, uuid_text
from ferrymq_codec import codes
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_value

# The highest bit of each of eight bytes: none of them is set in ASCII.
_HIGH_BITS: Final = -0x7F7F7F7F7F7F7F80
# The times in ms that are within 64 bits in µs.
_MAX_TIME: Final = 9_223_372_036_854_775


def enter_variable(r: Reader, narrow: i64, wide: i64, field: str) -> i64:
    """Move to the first byte of a value of variable width, and return its size.

    All of its bytes exist. Raises `DecodeError`, also for a constructor other than these two.
    """
    pos = r.pos
    size: i64
    if pos + 2 <= r.end:
        code: i64 = r.data[pos]
        if code == narrow:
            size = r.data[pos + 1]
            if size <= r.end - pos - 2:
                r.pos = pos + 2
                return size
        elif code == wide and pos + 5 <= r.end:
            size = i64(read_i32_be(r.data, pos + 1)) & 0xFFFFFFFF
            if size <= r.end - pos - 5:
                r.pos = pos + 5
                return size
    r.fail(field, "truncated, or of another type")


def check_utf8(r: Reader, start: i64, size: i64, field: str) -> None:
    """Raise `DecodeError` unless the bytes are UTF-8."""
    if not _is_ascii(r.data, start, size):
        try:
            r.data[start : start + size].decode("utf-8")
        except UnicodeDecodeError:
            r.fail(field, "string is not UTF-8")


def check_ascii(r: Reader, start: i64, size: i64, field: str) -> None:
    """Raise `DecodeError` unless the bytes are ASCII."""
    if not _is_ascii(r.data, start, size):
        r.fail(field, "symbol is not ASCII")


def _is_ascii(data: bytes, at: i64, size: i64) -> bool:
    end = at + size
    while at + 8 <= end:
        if read_i64_le(data, at) & _HIGH_BITS != 0:
            return False
        at += 8
    while at < end:
        if i64(data[at]) > 127:
            return False
        at += 1
    return True


def skip(r: Reader, field: str) -> None:
    """Skip one value by its size, whatever its content. Raises `DecodeError` at the end."""
    pos = r.pos
    end = r.end
    if pos < end:
        code: i64 = r.data[pos]
        size: i64 = -1
        if code >= codes.VARIABLE_1:
            if code & codes.WIDER == 0:
                if pos + 2 <= end:
                    size = 2 + i64(r.data[pos + 1])
            elif pos + 5 <= end:
                size = 5 + (i64(read_i32_be(r.data, pos + 1)) & 0xFFFFFFFF)
        elif code >= codes.FIXED_1:
            size = 1 + (1 << ((code - codes.FIXED_1) >> 4))
        elif code >= codes.FIXED_0:
            size = 1
        if size > 0 and size <= end - pos:
            r.pos = pos + size
            return
    r.skip_value(field)


def add_string(r: Reader, column: Texts | None, field: str) -> None:
    """Add a string; null adds no row."""
    if r.take_null():
        return
    if column is None:
        skip(r, field)
        return
    size = enter_variable(r, codes.STRING8, codes.STRING32, field)
    start = r.pos
    check_utf8(r, start, size, field)
    column.view(start, size)
    r.pos = start + size


def add_symbol(r: Reader, column: Texts | None, field: str) -> None:
    """Add a symbol; null adds no row."""
    if r.take_null():
        return
    if column is None:
        skip(r, field)
        return
    size = enter_variable(r, codes.SYMBOL8, codes.SYMBOL32, field)
    start = r.pos
    check_ascii(r, start, size, field)
    column.view(start, size)
    r.pos = start + size


def add_binary(r: Reader, column: Texts | None, field: str) -> None:
    """Add bytes; null adds no row."""
    if r.take_null():
        return
    if column is None:
        skip(r, field)
        return
    size = enter_variable(r, codes.BINARY8, codes.BINARY32, field)
    start = r.pos
    column.view(start, size)
    r.pos = start + size


def add_id(r: Reader, column: Texts | None, field: str) -> None:
    """Add a message-id; null adds no row."""
    if r.take_null():
        return
    if column is None:
        skip(r, field)
        return
    code = r.peek_code(field)
    if code == codes.STRING8 or code == codes.STRING32:
        add_string(r, column, field)
    elif (
        code == codes.ULONG
        or code == codes.SMALL_ULONG
        or code == codes.ULONG0
        or code == codes.BINARY8
        or code == codes.BINARY32
        or code == codes.UUID
    ):
        add_text(r, column, field)
    else:
        r.fail(field, "not a message-id")


def add_time(r: Reader, column: Numbers | None, field: str) -> None:
    """Add a timestamp in µs; null adds no row, and neither does a time that does not fit."""
    if r.take_null():
        return
    if column is None:
        skip(r, field)
        return
    time = r.read_timestamp(field)
    if -_MAX_TIME <= time <= _MAX_TIME:
        column.put(time * 1000)


def add_uint(r: Reader, column: Numbers | None, field: str) -> None:
    """Add a uint; null adds no row."""
    if r.take_null():
        return
    if column is None:
        skip(r, field)
        return
    column.put(r.read_uint(field))


def add_text(r: Reader, column: Texts, field: str) -> None:
    """Add the text of a value of any type; null adds a row that is null.

    The value of a binary is its bytes in a `verbatim` column, else their base64.
    """
    pos = r.pos
    data = r.data
    code = r.peek_code(field)
    size: i64
    if code == codes.STRING8 or code == codes.STRING32:
        size = enter_variable(r, codes.STRING8, codes.STRING32, field)
        pos = r.pos
        check_utf8(r, pos, size, field)
        column.view(pos, size)
        r.pos = pos + size
        return
    if code == codes.SYMBOL8 or code == codes.SYMBOL32:
        size = enter_variable(r, codes.SYMBOL8, codes.SYMBOL32, field)
        pos = r.pos
        check_ascii(r, pos, size, field)
        column.view(pos, size)
        r.pos = pos + size
        return
    if code == codes.BINARY8 or code == codes.BINARY32:
        if column.verbatim:
            size = enter_variable(r, codes.BINARY8, codes.BINARY32, field)
            pos = r.pos
            column.view(pos, size)
            r.pos = pos + size
        else:
            column.text(binary_text(r.read_binary(field)).encode("ascii"))
        return
    if code == codes.UUID and pos + 17 <= r.end:
        column.text(uuid_text(data[pos + 1 : pos + 17]).encode("ascii"))
        r.pos = pos + 17
        return
    if code == codes.NULL:
        column.null()
        r.pos = pos + 1
        return
    if code == codes.TRUE or code == codes.FALSE or code == codes.BOOLEAN:
        column.text(b"true" if r.read_boolean(field) else b"false")
        return
    if _add_integer(r, code, column):
        return
    value = read_value(r, field)
    size = r.pos - pos
    room = column.room(size)
    try:
        text = text_of(value, room)
    except DecodeError:
        column.spend(size, room)
        raise
    if text is None:
        column.null()
    else:
        column.spend(size, len(text))
        column.text(text.encode("utf-8"))


def add_json(column: Texts, value: object, size: i64) -> None:
    """Add a value as JSON, which has so many bytes in its message. Raises `DecodeError`."""
    room = column.room(size)
    try:
        text = json_of(value, room)
    except DecodeError:
        column.spend(size, room)
        raise
    column.spend(size, len(text))
    column.text(text.encode("utf-8"))


def _add_integer(r: Reader, code: i64, column: Texts) -> bool:
    # All integers except those with the highest bit of 64 set.
    pos = r.pos
    data = r.data
    left = r.end - pos
    value: i64
    if code == codes.UINT0 or code == codes.ULONG0:
        value = 0
        r.pos = pos + 1
    elif code == codes.UBYTE or code == codes.SMALL_UINT or code == codes.SMALL_ULONG:
        if left < 2:
            return False
        value = data[pos + 1]
        r.pos = pos + 2
    elif code == codes.BYTE or code == codes.SMALL_INT or code == codes.SMALL_LONG:
        if left < 2:
            return False
        value = data[pos + 1]
        if value > 127:
            value -= 256
        r.pos = pos + 2
    elif code == codes.USHORT or code == codes.SHORT:
        if left < 3:
            return False
        value = i64(read_i16_be(data, pos + 1))
        if code == codes.USHORT:
            value &= 0xFFFF
        r.pos = pos + 3
    elif code == codes.UINT or code == codes.INT:
        if left < 5:
            return False
        value = i64(read_i32_be(data, pos + 1))
        if code == codes.UINT:
            value &= 0xFFFFFFFF
        r.pos = pos + 5
    elif code == codes.ULONG or code == codes.LONG:
        if left < 9:
            return False
        value = read_i64_be(data, pos + 1)
        if code == codes.ULONG and value < 0:
            return False
        r.pos = pos + 9
    else:
        return False
    column.number(value)
    return True
