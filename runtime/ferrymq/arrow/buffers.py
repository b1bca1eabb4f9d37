"""Arrow arrays as inputs of the row encoder: their buffers, cut to the rows of the batch.

A batch is often a slice of a bigger one; only the bytes of its rows are copied.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from ferrymq.arrow.wire.inputs import BitInput, BooleanInput, MapInput, NumberInput, TextInput

_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


def text_input(array: pa.Array, mixed: bool = False) -> TextInput:
    """Return the input for strings or binary, of any layout. `mixed` is that of `TextInput`."""
    if pt.is_large_string(array.type) or pt.is_string_view(array.type):
        array = array.cast(pa.string())
    elif pt.is_large_binary(array.type) or pt.is_binary_view(array.type):
        array = array.cast(pa.binary())
    validity, ends, data = array.buffers()
    positions, first, last = _positions(ends, array.offset, len(array))
    content = b"" if data is None else data.slice(first, last - first).to_pybytes()
    return TextInput(_valid(array, validity), positions, content, first, mixed)


def key_input(array: pa.Array) -> TextInput:
    """Return the input for strings, or for binary that becomes strings where it is UTF-8."""
    return text_input(array, not _is_utf8(array))


def map_input(array: pa.Array) -> MapInput:
    """Return the input for maps of strings."""
    validity, ends = array.buffers()[:2]
    positions, first, last = _positions(ends, array.offset, len(array))
    keys = text_input(array.keys.slice(first, last - first))
    items = text_input(array.items.slice(first, last - first))
    return MapInput(_valid(array, validity), positions, first, keys, items)


def entries_input(array: pa.Array) -> MapInput:
    """Return the input for maps given as lists of a string and a binary each.

    A binary becomes a string where it is UTF-8. Raises ValueError, with the row, for an entry that
    is null or has no key.
    """
    validity, ends = array.buffers()[:2]
    positions, first, last = _positions(ends, array.offset, len(array))
    entries = array.values.slice(first, last - first)
    # Unlike `field`, `flatten` makes the parts of an entry that is null null.
    keys, items = entries.flatten()
    if keys.null_count:
        at = first + pc.index(pc.is_null(keys), True).as_py()
        row = pc.sum(pc.less_equal(array.offsets, at)).as_py() - 1
        raise ValueError(f"row {row}: an entry has no key")
    return MapInput(_valid(array, validity), positions, first, text_input(keys), key_input(items))


def _is_utf8(array: pa.Array) -> bool:
    """Return whether all values of a column of strings or binary are UTF-8."""
    if pt.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    try:
        array.cast(pa.large_string() if pt.is_large_binary(array.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def number_input(array: pa.Array) -> NumberInput:
    """Return the input for integers of any width, and times in µs. Raises `pa.ArrowInvalid` for
    values that do not fit into 64 bits."""
    if pt.is_timestamp(array.type):
        # Parts finer than µs are cut off.
        array = array.cast(_MICROSECONDS, safe=array.type.unit != "ns").cast(pa.int64())
    array = array.cast(pa.int64())
    validity, values = array.buffers()
    content = values.slice(8 * array.offset, 8 * len(array)).to_pybytes()
    return NumberInput(_valid(array, validity), content)


def boolean_input(array: pa.Array) -> BooleanInput:
    """Return the input for booleans."""
    validity, values = array.buffers()
    return BooleanInput(_valid(array, validity), _bits(values, array.offset, len(array)))


def _positions(ends: pa.Buffer | None, offset: int, count: int) -> tuple[bytes, int, int]:
    """Return the positions at which values begin and end, 4 bytes each, and the first and the last
    position."""
    if ends is None or count == 0:
        return bytes(4), 0, 0
    positions = ends.slice(4 * offset, 4 * (count + 1)).to_pybytes()
    first = int.from_bytes(positions[:4], "little")
    return positions, first, int.from_bytes(positions[-4:], "little")


def _valid(array: pa.Array, validity: pa.Buffer | None) -> BitInput | None:
    if validity is None or array.null_count == 0:
        return None
    return _bits(validity, array.offset, len(array))


def _bits(bits: pa.Buffer, offset: int, count: int) -> BitInput:
    first = offset // 8
    size = (offset + count + 7) // 8 - first
    return BitInput(bits.slice(first, size).to_pybytes(), offset % 8)
