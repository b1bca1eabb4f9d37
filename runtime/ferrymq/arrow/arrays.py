"""Filled columns as Arrow arrays: no single value passes through Python."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ferrymq.arrow.wire.columns import Booleans, Maps, Numbers, Texts

_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
# The times in ms that are within 64 bits in µs.
_MAX_TIME: Final = 9_223_372_036_854_775
_STRUCT: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
)


def text_array(column: Texts, data: pa.Buffer, kind: pa.DataType) -> pa.Array:
    """Return strings or binary, copied together from `data`, to which their views point."""
    rows = int(column.validity.rows)
    nulls = int(column.validity.nulls)
    if nulls == rows:
        return pa.nulls(rows, kind)
    views = pa.string_view() if kind == pa.string() else pa.binary_view()
    buffers = [
        _buffer(column.validity.getvalue()),
        pa.py_buffer(column.views()),
        data,
        pa.py_buffer(column.rendered()),
    ]
    return pa.Array.from_buffers(views, rows, buffers, null_count=nulls).cast(kind)


def map_array(column: Maps, data: pa.Buffer, kind: pa.DataType) -> pa.Array:
    """Return maps of strings."""
    rows = int(column.validity.rows)
    nulls = int(column.validity.nulls)
    if nulls == rows:
        return pa.nulls(rows, kind)
    keys = text_array(column.keys, data, pa.string())
    items = text_array(column.items, data, pa.string())
    entries = pa.StructArray.from_arrays([keys, items], fields=list(_STRUCT))
    buffers = [_buffer(column.validity.getvalue()), pa.py_buffer(column.ends())]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=nulls, children=[entries])


def entries_array(column: Maps, data: pa.Buffer, kind: pa.DataType) -> pa.Array:
    """Return lists of entries: strings with bytes. A map without entries is null."""
    rows = int(column.validity.rows)
    if column.validity.nulls == rows:
        return pa.nulls(rows, kind)
    keys = text_array(column.keys, data, pa.string())
    items = text_array(column.items, data, pa.binary())
    entries = pa.StructArray.from_arrays([keys, items], fields=list(kind.value_type))
    ends = pa.py_buffer(column.ends())
    positions = pa.Array.from_buffers(pa.int32(), rows + 1, [None, ends], null_count=0)
    some = pc.not_equal(positions[1:], positions[:-1])
    return pa.Array.from_buffers(kind, rows, [some.buffers()[1], ends], children=[entries])


def integers(column: Numbers, kind: pa.DataType) -> pa.Array:
    """Return integers of any width that holds them, or times in µs."""
    wide = kind if pa.types.is_timestamp(kind) else pa.int64()
    array = pa.Array.from_buffers(
        wide,
        int(column.validity.rows),
        [_buffer(column.validity.getvalue()), pa.py_buffer(column.values())],
        null_count=int(column.validity.nulls),
    )
    return array if wide == kind else array.cast(kind)


def booleans(column: Booleans) -> pa.Array:
    """Return booleans."""
    return pa.Array.from_buffers(
        pa.bool_(),
        int(column.validity.rows),
        [_buffer(column.validity.getvalue()), pa.py_buffer(column.values())],
        null_count=int(column.validity.nulls),
    )


def times(values: pa.Buffer, count: int) -> pa.Array:
    """Return times given in ms since the epoch; null where µs do not fit into 64 bits."""
    array = pa.Array.from_buffers(_MILLISECONDS, count, [None, values], null_count=0)
    try:
        return array.cast(_MICROSECONDS)
    except pa.ArrowInvalid:
        numbers = array.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(numbers, -_MAX_TIME), pc.less_equal(numbers, _MAX_TIME))
        return pc.if_else(fits, array, None).cast(_MICROSECONDS)


def _buffer(validity: bytes | None) -> pa.Buffer | None:
    return None if validity is None else pa.py_buffer(validity)
