"""Reads and writes arrays of every element type (AMQP 1.0 §1.2.4, §1.6.24).

The elements share one constructor, written once. Elements without bytes of their own (null, true,
uint0, the empty list, …) are not stored one by one, so that a count of four billion takes no
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from librt.strings import BytesWriter, read_i32_be, write_f64_be
from mypy_extensions import i64, u8

from ferrymq_codec import codes
from ferrymq_codec.compound import widen, write_u32
from ferrymq_codec.containers import Array, Repeated
from ferrymq_codec.decimals import pack_decimal
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.floats import write_float32
from ferrymq_codec.limits import MAX_DEPTH
from ferrymq_codec.reader import Reader
from ferrymq_codec.writer import (
    char_point,
    check_float,
    encode_string,
    encode_symbol,
    to_milliseconds,
)

# The constructors from which the encoder chooses, narrowest first. Those that RabbitMQ cannot read
# in an array are left out: of zero width, of small integers, and of lists, maps and arrays with one
# byte of size.
_CODES: Final[dict[str, tuple[int, int]]] = {
    "null": (codes.NULL, codes.NULL),
    "boolean": (codes.BOOLEAN, codes.BOOLEAN),
    "ubyte": (codes.UBYTE, codes.UBYTE),
    "ushort": (codes.USHORT, codes.USHORT),
    "uint": (codes.UINT, codes.UINT),
    "ulong": (codes.ULONG, codes.ULONG),
    "byte": (codes.BYTE, codes.BYTE),
    "short": (codes.SHORT, codes.SHORT),
    "int": (codes.INT, codes.INT),
    "long": (codes.LONG, codes.LONG),
    "float": (codes.FLOAT, codes.FLOAT),
    "double": (codes.DOUBLE, codes.DOUBLE),
    "decimal32": (codes.DECIMAL32, codes.DECIMAL32),
    "decimal64": (codes.DECIMAL64, codes.DECIMAL64),
    "decimal128": (codes.DECIMAL128, codes.DECIMAL128),
    "char": (codes.CHAR, codes.CHAR),
    "timestamp": (codes.TIMESTAMP, codes.TIMESTAMP),
    "uuid": (codes.UUID, codes.UUID),
    "binary": (codes.BINARY8, codes.BINARY32),
    "string": (codes.STRING8, codes.STRING32),
    "symbol": (codes.SYMBOL8, codes.SYMBOL32),
    "list": (codes.LIST32, codes.LIST32),
    "map": (codes.MAP32, codes.MAP32),
    "array": (codes.ARRAY32, codes.ARRAY32),
}

# Integer constructors: bytes, lowest and highest value.
_RANGES: Final[dict[int, tuple[int, int, int]]] = {
    codes.UBYTE: (1, 0, 0xFF),
    codes.BYTE: (1, -128, 127),
    codes.SMALL_UINT: (1, 0, 0xFF),
    codes.SMALL_ULONG: (1, 0, 0xFF),
    codes.SMALL_INT: (1, -128, 127),
    codes.SMALL_LONG: (1, -128, 127),
    codes.USHORT: (2, 0, 0xFFFF),
    codes.SHORT: (2, -0x8000, 0x7FFF),
    codes.UINT: (4, 0, 0xFFFFFFFF),
    codes.INT: (4, -0x80000000, 0x7FFFFFFF),
    codes.ULONG: (8, 0, 0xFFFFFFFFFFFFFFFF),
    codes.LONG: (8, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF),
    codes.TIMESTAMP: (8, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF),
}


def read_array(r: Reader, field: str) -> Array:
    """Read an array; raises DecodeError for anything else."""
    code = r.peek_code(field)
    if code != codes.ARRAY8 and code != codes.ARRAY32:
        r.unexpected(field, "array")
    r.pos += 1
    return read_array_content(r, code == codes.ARRAY32, field)


def read_array_content(r: Reader, wide: bool, field: str) -> Array:
    """Read an array whose own constructor has been read, with one- or four-byte sizes."""
    if r.depth >= MAX_DEPTH:
        r.fail(field, "nested too deeply")
    outer = r.end
    count = enter_array(r, wide, field)
    r.depth += 1
    descriptors: list[object] = []
    code = r.peek_code(field)
    while code == codes.DESCRIBED:
        if r.depth + len(descriptors) >= MAX_DEPTH:
            r.fail(field, "nested too deeply")
        r.pos += 1
        descriptors.append(read_value(r, field))
        code = r.peek_code(field)
    name = codes.TYPE_NAMES.get(code)
    if name is None:
        r.fail(field, f"{codes.describe_code(code)} is not a constructor")
    r.pos += 1
    array = Array(name, _read_items(r, code, count, field), code=code)
    array.descriptors = tuple(descriptors)
    r.leave(outer, field)
    return array


def enter_array(r: Reader, wide: bool, field: str) -> i64:
    """Read size and count, and narrow the Reader's `end` to the end of the array."""
    pos = r.pos
    size: i64
    count: i64
    if wide:
        if pos + 8 > r.end:
            r.fail(field, "truncated size")
        size = i64(read_i32_be(r.data, pos)) & 0xFFFFFFFF
        count = i64(read_i32_be(r.data, pos + 4)) & 0xFFFFFFFF
        pos += 4
        content = size - 4
    else:
        if pos + 2 > r.end:
            r.fail(field, "truncated size")
        size = r.data[pos]
        count = r.data[pos + 1]
        pos += 1
        content = size - 1
    if content < 1 or size > r.end - pos:
        r.fail(field, f"size {size} does not fit the {r.end - pos} bytes left")
    r.end = pos + size
    r.pos = r.end - content
    return count


def _read_items(r: Reader, code: i64, count: i64, field: str) -> Sequence[object] | Repeated:
    if code < codes.FIXED_1:
        return Repeated(read_payload(r, code, field), count)
    least: i64
    if code < codes.VARIABLE_1:
        least = 1 << ((code - codes.FIXED_1) >> 4)
    elif code < codes.COMPOUND_1:
        least = 1 if code < codes.VARIABLE_4 else 4
    elif code < codes.ARRAY_1:
        least = 2 if code < codes.COMPOUND_4 else 8
    else:
        least = 3 if code < codes.ARRAY_4 else 9
    if count > (r.end - r.pos) // least:
        r.fail(field, f"count {count} exceeds the {r.end - r.pos} bytes of content")
    r.charge(count, field)
    items: list[object] = []
    i: i64 = 0
    while i < count:
        items.append(read_payload(r, code, field))
        i += 1
    return items


def write_array(w: BytesWriter, value: Array, field: str) -> None:
    """Append an array; raises EncodeError for an element that its type cannot hold."""
    write_nested_array(w, value, field, 0)


def write_nested_array(w: BytesWriter, value: Array, field: str, depth: i64) -> None:
    """Append an array inside `depth` other containers."""
    if depth + len(value.descriptors) >= MAX_DEPTH:
        raise EncodeError(field, "nested too deeply")
    items = value.items
    kind = value.element_type
    count: i64 = len(items)
    w.append(codes.ARRAY8)
    w.append(0)
    w.append(0)
    mark: i64 = len(w)
    for descriptor in value.descriptors:
        w.append(codes.DESCRIBED)
        write_nested(w, descriptor, field, depth + 1)
    narrow, wide = _CODES[kind]
    code: i64 = wide if value.code is None else value.code
    if code < codes.FIXED_1:
        w.append(u8(code))
        _check_zero_width(items, code, field)
    elif kind == "binary" or kind == "string" or kind == "symbol":
        texts = [_to_bytes(item, kind, field) for item in items]
        if value.code is None and all(len(text) < 256 for text in texts):
            code = narrow
        w.append(u8(code))
        for text in texts:
            _write_size(w, len(text), code, field)
            w.write(text)
    elif kind == "list" or kind == "map" or kind == "array":
        elements = [_Element(item, kind, field, depth + 1) for item in items]
        w.append(u8(code))
        for element in elements:
            element.write(w, code < codes.COMPOUND_4 or code == codes.ARRAY8, field)
    else:
        w.append(u8(code))
        for item in items:
            _write_fixed(w, code, kind, item, field)
    size = i64(len(w)) - mark + 1
    if size < 256 and count < 256:
        w[mark - 2] = u8(size)
        w[mark - 1] = u8(count)
    else:
        widen(w, mark, count, codes.ARRAY32)


def _check_zero_width(items: tuple[object, ...] | Repeated, code: i64, field: str) -> None:
    wanted = read_payload(Reader(b""), code, field)
    fits = True
    if isinstance(items, Repeated):
        fits = items.count == 0 or items.value == wanted
    else:
        for item in items:
            if item != wanted:
                fits = False
    if not fits:
        raise EncodeError(field, f"elements of {codes.describe_code(code)} are all {wanted!r}")


def _to_bytes(item: object, kind: str, field: str) -> bytes:
    if kind == "binary":
        if isinstance(item, bytes):
            return item
    elif isinstance(item, str):
        return encode_string(item, field) if kind == "string" else encode_symbol(item, field)
    _refuse(item, kind, field)
    return b""


def _write_size(w: BytesWriter, size: i64, code: i64, field: str) -> None:
    if code >= codes.VARIABLE_4:
        write_u32(w, size)
    elif size < 256:
        w.append(u8(size))
    else:
        raise EncodeError(field, f"an element of {size} bytes needs a wider constructor")


def _write_fixed(w: BytesWriter, code: i64, kind: str, item: object, field: str) -> None:
    if code == codes.BOOLEAN:
        if not isinstance(item, bool):
            _refuse(item, kind, field)
        w.append(1 if item else 0)
    elif code == codes.FLOAT or code == codes.DOUBLE:
        if not isinstance(item, (float, int)):
            _refuse(item, kind, field)
            return
        number = float(item)
        if code == codes.FLOAT:
            check_float(number, field)
            write_float32(w, number)
        else:
            write_f64_be(w, number)
    elif code == codes.CHAR:
        if not isinstance(item, str):
            _refuse(item, kind, field)
            return
        write_u32(w, char_point(item, field))
    elif code == codes.UUID:
        if not isinstance(item, UUID):
            _refuse(item, kind, field)
            return
        w.write(item.bytes)
    elif code == codes.DECIMAL32 or code == codes.DECIMAL64 or code == codes.DECIMAL128:
        if not isinstance(item, Decimal):
            _refuse(item, kind, field)
            return
        w.write(
            pack_decimal(
                item, 4 if code == codes.DECIMAL32 else 8 if code == codes.DECIMAL64 else 16, field
            )
        )
    else:
        if code == codes.TIMESTAMP and isinstance(item, datetime):
            item = to_milliseconds(item, field)
        if isinstance(item, bool) or not isinstance(item, int):
            _refuse(item, kind, field)
            return
        width, low, high = _RANGES[code]
        if item < low or item > high:
            raise EncodeError(field, f"{item} is out of range for {codes.describe_code(code)}")
        w.write(int(item).to_bytes(width, "big", signed=low < 0))


def _refuse(item: object, kind: str, field: str) -> None:
    raise EncodeError(field, f"{type(item).__name__} is not a {kind}")


class _Element:
    """A list, map or array inside an array: its element count and its content's bytes."""

    __slots__ = ("content", "count")

    def __init__(self, item: object, kind: str, field: str, depth: i64) -> None:
        scratch = BytesWriter()
        write_nested(scratch, item, field, depth)
        data = scratch.getvalue()
        code = data[0]
        if codes.TYPE_NAMES.get(code) != kind:
            _refuse(item, kind, field)
        if code == codes.LIST0:
            self.count: i64 = 0
            self.content = b""
        elif code < codes.COMPOUND_4 or code == codes.ARRAY8:
            self.count = data[2]
            self.content = data[3:]
        else:
            self.count = i64(read_i32_be(data, 5)) & 0xFFFFFFFF
            self.content = data[9:]

    def is_narrow(self) -> bool:
        return self.count < 256 and len(self.content) < 255

    def write(self, w: BytesWriter, narrow: bool, field: str) -> None:
        size: i64 = len(self.content)
        if not narrow:
            write_u32(w, size + 4)
            write_u32(w, self.count)
        elif self.is_narrow():
            w.append(u8(size + 1))
            w.append(u8(self.count))
        else:
            raise EncodeError(field, f"an element of {size} bytes needs a wider constructor")
        w.write(self.content)


# The modules import each other: a value may be an array, an element may be any value.
from ferrymq_codec.value_reader import read_payload, read_value  # noqa: E402
from ferrymq_codec.value_writer import write_nested  # noqa: E402
