"""Reads and writes arrays of every element type (AMQP 1.0 §1.2.4, §1.6.24).

The elements share one constructor, written once. Elements without bytes of their own (null, true,
uint0, the empty list, …) stay lazy: a count of four thousand million costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from librt.strings import BytesWriter, read_i32_be, write_f64_be
from mypy_extensions import i64, u8

from ferrymq_codec.codes import TYPE_NAMES, describe_code
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

# The constructors among which the encoder chooses, narrowest first. Zero-width ones are not among
# them: many peers cannot read an array of those.
_CODES: Final[dict[str, tuple[int, int]]] = {
    "null": (0x40, 0x40),
    "boolean": (0x56, 0x56),
    "ubyte": (0x50, 0x50),
    "ushort": (0x60, 0x60),
    "uint": (0x52, 0x70),
    "ulong": (0x53, 0x80),
    "byte": (0x51, 0x51),
    "short": (0x61, 0x61),
    "int": (0x54, 0x71),
    "long": (0x55, 0x81),
    "float": (0x72, 0x72),
    "double": (0x82, 0x82),
    "decimal32": (0x74, 0x74),
    "decimal64": (0x84, 0x84),
    "decimal128": (0x94, 0x94),
    "char": (0x73, 0x73),
    "timestamp": (0x83, 0x83),
    "uuid": (0x98, 0x98),
    "binary": (0xA0, 0xB0),
    "string": (0xA1, 0xB1),
    "symbol": (0xA3, 0xB3),
    "list": (0xC0, 0xD0),
    "map": (0xC1, 0xD1),
    "array": (0xE0, 0xF0),
}

# Integer constructors: bytes, lowest and highest value.
_RANGES: Final[dict[int, tuple[int, int, int]]] = {
    0x50: (1, 0, 0xFF),
    0x51: (1, -0x80, 0x7F),
    0x52: (1, 0, 0xFF),
    0x53: (1, 0, 0xFF),
    0x54: (1, -0x80, 0x7F),
    0x55: (1, -0x80, 0x7F),
    0x60: (2, 0, 0xFFFF),
    0x61: (2, -0x8000, 0x7FFF),
    0x70: (4, 0, 0xFFFFFFFF),
    0x71: (4, -0x80000000, 0x7FFFFFFF),
    0x80: (8, 0, 0xFFFFFFFFFFFFFFFF),
    0x81: (8, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF),
    0x83: (8, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF),
}


def read_array(r: Reader, field: str) -> Array:
    """Read an array; raises DecodeError for anything else."""
    code = r.peek_code(field)
    if code != 0xE0 and code != 0xF0:
        r.unexpected(field, "array")
    r.pos += 1
    return read_array_content(r, code == 0xF0, field)


def read_array_content(r: Reader, wide: bool, field: str) -> Array:
    """Read an array whose own constructor has been read, with one- or four-byte sizes."""
    if r.depth >= MAX_DEPTH:
        r.fail(field, "nested too deeply")
    outer = r.end
    count = enter_array(r, wide, field)
    r.depth += 1
    descriptors: list[object] = []
    code = r.peek_code(field)
    while code == 0:
        if r.depth + len(descriptors) >= MAX_DEPTH:
            r.fail(field, "nested too deeply")
        r.pos += 1
        descriptors.append(read_value(r, field))
        code = r.peek_code(field)
    name = TYPE_NAMES.get(code)
    if name is None:
        r.fail(field, f"{describe_code(code)} is not a constructor")
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
    if code < 0x50:
        return Repeated(read_payload(r, code, field), count)
    category = code >> 4
    least: i64
    if category < 0xA:
        least = 1 << (category - 5)
    elif category == 0xA or category == 0xB:
        least = 1 if category == 0xA else 4
    elif category == 0xC or category == 0xD:
        least = 2 if category == 0xC else 8
    else:
        least = 3 if category == 0xE else 9
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
    w.append(0xE0)
    w.append(0)
    w.append(0)
    mark: i64 = len(w)
    for descriptor in value.descriptors:
        w.append(0)
        write_nested(w, descriptor, field, depth + 1)
    narrow, wide = _CODES[kind]
    code: i64 = wide if value.code is None else value.code
    if code < 0x50:
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
        if value.code is None and all(element.is_narrow() for element in elements):
            code = narrow
        w.append(u8(code))
        for element in elements:
            element.write(w, code < 0xD0 or code == 0xE0, field)
    else:
        if value.code is None and narrow != wide and _all_narrow(items, narrow):
            code = narrow
        w.append(u8(code))
        for item in items:
            _write_fixed(w, code, kind, item, field)
    size = i64(len(w)) - mark + 1
    if size < 256 and count < 256:
        w[mark - 2] = u8(size)
        w[mark - 1] = u8(count)
    else:
        widen(w, mark, count, 0xF0)


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
        raise EncodeError(field, f"elements of {describe_code(code)} are all {wanted!r}")


def _all_narrow(items: tuple[object, ...] | Repeated, code: int) -> bool:
    _, low, high = _RANGES[code]
    if isinstance(items, Repeated):
        return items.count == 0 or (isinstance(items.value, int) and low <= items.value <= high)
    return all(isinstance(item, int) and low <= item <= high for item in items)


def _to_bytes(item: object, kind: str, field: str) -> bytes:
    if kind == "binary":
        if isinstance(item, bytes):
            return item
    elif isinstance(item, str):
        return encode_string(item, field) if kind == "string" else encode_symbol(item, field)
    _refuse(item, kind, field)
    return b""


def _write_size(w: BytesWriter, size: i64, code: i64, field: str) -> None:
    if code >= 0xB0:
        write_u32(w, size)
    elif size < 256:
        w.append(u8(size))
    else:
        raise EncodeError(field, f"an element of {size} bytes needs a wider constructor")


def _write_fixed(w: BytesWriter, code: i64, kind: str, item: object, field: str) -> None:
    if code == 0x56:
        if not isinstance(item, bool):
            _refuse(item, kind, field)
        w.append(1 if item else 0)
    elif code == 0x72 or code == 0x82:
        if not isinstance(item, (float, int)):
            _refuse(item, kind, field)
            return
        number = float(item)
        if code == 0x72:
            check_float(number, field)
            write_float32(w, number)
        else:
            write_f64_be(w, number)
    elif code == 0x73:
        if not isinstance(item, str):
            _refuse(item, kind, field)
            return
        write_u32(w, char_point(item, field))
    elif code == 0x98:
        if not isinstance(item, UUID):
            _refuse(item, kind, field)
            return
        w.write(item.bytes)
    elif code == 0x74 or code == 0x84 or code == 0x94:
        if not isinstance(item, Decimal):
            _refuse(item, kind, field)
            return
        w.write(pack_decimal(item, 4 if code == 0x74 else 8 if code == 0x84 else 16, field))
    else:
        if code == 0x83 and isinstance(item, datetime):
            item = to_milliseconds(item, field)
        if isinstance(item, bool) or not isinstance(item, int):
            _refuse(item, kind, field)
            return
        width, low, high = _RANGES[code]
        if item < low or item > high:
            raise EncodeError(field, f"{item} is out of range for {describe_code(code)}")
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
        if TYPE_NAMES.get(code) != kind:
            _refuse(item, kind, field)
        if code == 0x45:
            self.count: i64 = 0
            self.content = b""
        elif code < 0xD0 or code == 0xE0:
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


# The modules need each other: a value may be an array, an element may be any value.
from ferrymq_codec.value_reader import read_payload, read_value  # noqa: E402
from ferrymq_codec.value_writer import write_nested  # noqa: E402
