"""Fields declared `multiple`: one value or an array of them (AMQP 1.0 §1.4).

Callers read and write null, which stands for no values, by themselves.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from ferrymq_codec import codes
from ferrymq_codec.arrays import enter_array, read_array, write_array
from ferrymq_codec.containers import Array, Repeated
from ferrymq_codec.limits import MAX_DEPTH
from ferrymq_codec.reader import Reader


def read_multiple_symbol(r: Reader, field: str) -> list[str]:
    """Read one symbol or an array of symbols; raises DecodeError."""
    code = r.peek_code(field)
    if code != codes.ARRAY8 and code != codes.ARRAY32:
        return [r.read_symbol(field)]
    if r.depth >= MAX_DEPTH:
        r.fail(field, "nested too deeply")
    r.pos += 1
    outer = r.end
    count = enter_array(r, code == codes.ARRAY32, field)
    r.depth += 1
    element = r.peek_code(field)
    if element != codes.SYMBOL8 and element != codes.SYMBOL32:
        r.fail(field, f"expected an array of symbol, found {codes.describe_code(element)}")
    r.pos += 1
    r.charge(count, field)
    result: list[str] = []
    i: i64 = 0
    while i < count:
        result.append(_read_symbol_element(r, element == codes.SYMBOL32, field))
        i += 1
    r.leave(outer, field)
    return result


def _read_symbol_element(r: Reader, wide: bool, field: str) -> str:
    pos = r.pos
    size: i64
    if pos + (4 if wide else 1) > r.end:
        r.fail(field, "truncated size")
    if wide:
        size = i64(read_i32_be(r.data, pos)) & 0xFFFFFFFF
        pos += 4
    else:
        size = r.data[pos]
        pos += 1
    if size > r.end - pos:
        r.fail(field, f"symbol of {size} bytes, only {r.end - pos} are left")
    r.pos = pos + size
    return r.intern_symbol(r.data[pos : pos + size], field)


def write_multiple_symbol(w: BytesWriter, values: list[str], field: str) -> None:
    """Append an array of symbols; raises EncodeError."""
    write_array(w, Array("symbol", values), field)


def read_multiple(r: Reader, type_name: str, field: str) -> list[Any]:
    """Read one value of the primitive `type_name`, or an array of such values.

    The values are plain: int, float, str and Decimal rather than the classes of `scalars`.
    Raises DecodeError for other types, described elements included.
    """
    code = r.peek_code(field)
    if codes.TYPE_NAMES.get(code) == type_name and type_name != "array":
        return [_plain(read_value(r, field))]
    array = read_array(r, field)
    if array.element_type != type_name or array.descriptors:
        r.fail(field, f"expected an array of {type_name}, found one of {array.element_type}")
    if isinstance(array.items, Repeated):
        # Elements without bytes have not been charged, and become a list now.
        r.charge(array.items.count, field)
    return [_plain(item) for item in array]


def write_multiple(w: BytesWriter, type_name: str, values: list[Any], field: str) -> None:
    """Append an array of values of the primitive `type_name`; raises EncodeError."""
    write_array(w, Array(type_name, values), field)


def _plain(value: object) -> object:
    if value is True or value is False:
        return value
    if isinstance(value, int):
        return value + 0
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal):
        return Decimal(value)
    return value


from ferrymq_codec.value_reader import read_value  # noqa: E402
