"""Values of AMQP 1.0 for the values of field tables, from bytes to bytes: no type gets lost.

| letter | value of AMQP 1.0 |
|---|---|
| `t` | boolean |
| `b`, `B`, `s` `U`, `u`, `I`, `i`, `l` `L` | byte, ubyte, short, ushort, int, uint, long |
| `f`, `d`, `D` | float, double, decimal128 |
| `S` | string if it is UTF-8, else binary |
| `x` | binary |
| `T` | timestamp, in milliseconds; a long of seconds if they do not fit |
| `A` | list |
| `F` | map with strings as keys |
| `V` | null |
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, write_i64_be
from mypy_extensions import i64, u8

from ferrymq_codec import codes
from ferrymq_codec.compound import begin_list, begin_map, end_list, end_map, write_u32
from ferrymq_codec.decimals import write_decimal128
from ferrymq_codec.limits import MAX_DEPTH, SECTION_ELEMENTS
from ferrymq_codec.writer import write_long, write_ulong
from ferrymq_codec_0_9_1 import letters
from ferrymq_codec_0_9_1.reader import FieldReader

FIELD: Final = "basic.headers"

# The values are put into a map in a map of annotations.
_DEEPEST: Final = MAX_DEPTH - 4
_MAX_SECONDS: Final = 0x7FFFFFFFFFFFFFFF // 1000


@final
class FieldValues:
    """The values of one field table: the bytes of `data` from `pos` to `end`.

    `repeated` is set once a name stands twice in one table. A map of AMQP 1.0 must not have a key
    twice, so what has been written is not a valid value then.
    """

    __slots__ = ("reader", "repeated")

    def __init__(self, data: bytes, pos: i64, end: i64) -> None:
        self.reader: FieldReader = FieldReader(data, pos, end)
        self.reader.budget = SECTION_ELEMENTS
        self.repeated: bool = False

    def convert(self, w: BytesWriter) -> None:
        """Read the next value and append it as a value of AMQP 1.0. Raises `DecodeError`."""
        r = self.reader
        if r.budget <= 0:
            r.fail(FIELD, "too many values")
        r.budget -= 1
        letter = r.read_octet(FIELD)
        data = r.data
        at: i64
        if letter == letters.STRING or letter == letters.BYTES:
            raw = r.read_long_string(FIELD)
            if letter == letters.STRING and is_utf8(raw):
                write_variable(w, raw, codes.STRING8)
            else:
                write_variable(w, raw, codes.BINARY8)
        elif letter == letters.INT32:
            at = r.take(4, FIELD)
            w.append(codes.INT)
            w.write(data[at : at + 4])
        elif letter == letters.INT64 or letter == letters.INT64_OLD:
            at = r.take(8, FIELD)
            w.append(codes.LONG)
            w.write(data[at : at + 8])
        elif letter == letters.BOOLEAN:
            w.append(codes.TRUE if r.read_octet(FIELD) != 0 else codes.FALSE)
        elif letter == letters.VOID:
            w.append(codes.NULL)
        elif letter == letters.TABLE:
            self._convert_table(w)
        elif letter == letters.ARRAY:
            self._convert_array(w)
        elif letter == letters.TIMESTAMP:
            write_time(w, r.read_longlong(FIELD))
        else:
            self._convert_number(w, letter)

    def _convert_number(self, w: BytesWriter, letter: i64) -> None:
        r = self.reader
        data = r.data
        code: u8
        size: i64
        if letter == letters.DOUBLE:
            code, size = codes.DOUBLE, 8
        elif letter == letters.INT8:
            code, size = codes.BYTE, 1
        elif letter == letters.UINT8:
            code, size = codes.UBYTE, 1
        elif letter == letters.INT16 or letter == letters.INT16_OLD:
            code, size = codes.SHORT, 2
        elif letter == letters.UINT16:
            code, size = codes.USHORT, 2
        elif letter == letters.UINT32:
            code, size = codes.UINT, 4
        elif letter == letters.FLOAT:
            code, size = codes.FLOAT, 4
        elif letter == letters.DECIMAL:
            places = int(r.read_octet(FIELD))
            unscaled = i64(read_i32_be(data, r.take(4, FIELD)))
            write_decimal128(w, Decimal(int(unscaled)).scaleb(-places), FIELD)
            return
        else:
            r.pos -= 1
            r.fail(FIELD, f"0x{letter:02x} is not the letter of a type")
        at = r.take(size, FIELD)
        w.append(code)
        w.write(data[at : at + size])

    def _convert_table(self, w: BytesWriter) -> None:
        r = self.reader
        outer = self._enter()
        mark = begin_map(w)
        count: i64 = 0
        seen: set[bytes] = set()
        while r.pos < r.end:
            start = r.pos
            r.read_short_string(FIELD)
            name = r.data[start + 1 : r.pos]
            if name in seen:
                self.repeated = True
            seen.add(name)
            write_variable(w, name, codes.STRING8)
            self.convert(w)
            count += 2
        end_map(w, mark, count)
        r.end = outer
        r.depth -= 1

    def _convert_array(self, w: BytesWriter) -> None:
        r = self.reader
        outer = self._enter()
        mark = begin_list(w)
        count: i64 = 0
        while r.pos < r.end:
            self.convert(w)
            count += 1
        end_list(w, mark, count)
        r.end = outer
        r.depth -= 1

    def _enter(self) -> i64:
        """Open a table or an array; return the end around it."""
        r = self.reader
        size = r.read_long(FIELD)
        outer = r.end
        if size > outer - r.pos:
            r.fail(FIELD, f"size {size} does not fit the {outer - r.pos} bytes left")
        if r.depth >= _DEEPEST:
            r.fail(FIELD, "nested too deeply")
        r.depth += 1
        r.end = r.pos + size
        return outer


def write_variable(w: BytesWriter, raw: bytes, narrow: u8) -> None:
    """Append a string, a symbol or a binary; `narrow` is its code with a size of one byte."""
    size: i64 = len(raw)
    if size < 256:
        w.append(narrow)
        w.append(u8(size))
    else:
        w.append(narrow + codes.WIDER)
        write_u32(w, size)
    w.write(raw)


def write_time(w: BytesWriter, seconds: int) -> None:
    """Append a timestamp, or a number if the timestamp cannot hold so many seconds."""
    if seconds <= _MAX_SECONDS:
        w.append(codes.TIMESTAMP)
        write_i64_be(w, i64(seconds) * 1000)
    elif seconds <= 0x7FFFFFFFFFFFFFFF:
        write_long(w, seconds, FIELD)
    else:
        write_ulong(w, seconds, FIELD)


def is_utf8(raw: bytes) -> bool:
    """Return whether the bytes are UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
