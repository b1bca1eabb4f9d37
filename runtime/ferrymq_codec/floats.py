"""IEEE 754 binary32 in a Python float, which is a binary64 (AMQP 1.0 §1.6.11).

Processors make a signalling NaN quiet when they convert between the two formats, so the bits of
NaNs are copied without such a conversion.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    read_i32_be,
    read_i64_be,
    write_f32_be,
    write_f64_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64

# The number of additional bits in the fraction of a binary64.
_SHIFT: Final = 29
_FRACTION: Final = 0x7FFFFF
_QUIET: Final = 0x400000


def read_float32(data: bytes, pos: i64) -> float:
    """Read the four bytes at `pos`, which must be there."""
    value = read_f32_be(data, pos)
    if value == value:
        return value
    bits = i64(read_i32_be(data, pos))
    w = BytesWriter()
    number: i64 = 0x7FF0000000000000 | ((bits & _FRACTION) << _SHIFT)
    # A negative number has the uppermost bit, the sign.
    write_i64_be(w, number if bits >= 0 else number - 0x7FFFFFFFFFFFFFFF - 1)
    return read_f64_be(w.getvalue(), 0)


def write_float32(w: BytesWriter, value: float) -> None:
    """Append four bytes; `value` is rounded, a NaN keeps its sign and the bits that fit."""
    if value == value:
        write_f32_be(w, value)
        return
    scratch = BytesWriter()
    write_f64_be(scratch, value)
    bits = read_i64_be(scratch.getvalue(), 0)
    fraction = (bits >> _SHIFT) & _FRACTION
    if fraction == 0:
        # Without this bit the result would be infinity.
        fraction = _QUIET
    number: i64 = 0x7F800000 | fraction
    write_i32_be(w, i32(number if bits >= 0 else number - 0x80000000))
