"""Writes values of any type; the table is in `ferrymq_codec.values`."""

from __future__ import annotations

import threading
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_codec import codes
from ferrymq_codec.composite import Composite
from ferrymq_codec.compound import begin_list, begin_map, end_list, end_map
from ferrymq_codec.containers import Array, PairMap
from ferrymq_codec.decimals import write_decimal32, write_decimal64, write_decimal128
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.limits import MAX_DEPTH
from ferrymq_codec.scalars import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from ferrymq_codec.writer import (
    write_binary,
    write_byte,
    write_char,
    write_double,
    write_float,
    write_int,
    write_long,
    write_short,
    write_string,
    write_symbol,
    write_timestamp,
    write_ubyte,
    write_uint,
    write_ulong,
    write_ushort,
    write_uuid,
)


class _Nesting(threading.local):
    """Nesting depth of the composites that this thread is encoding in untyped places."""

    depth = 0


_nesting: Final = _Nesting()


def write_value(w: BytesWriter, value: object, field: str) -> None:
    """Append one value of any type; raises EncodeError if the value has no AMQP type or does not
    fit."""
    write_nested(w, value, field, 0)


def write_list(w: BytesWriter, value: list[object], field: str) -> None:
    """Append a list of any values; raises EncodeError."""
    write_nested(w, value, field, 0)


def write_nested(w: BytesWriter, value: object, field: str, depth: i64) -> None:
    """Append a value inside `depth` other containers."""
    if value is None:
        w.append(codes.NULL)
    elif isinstance(value, str):
        if type(value) is str:
            write_string(w, value, field)
        elif isinstance(value, Symbol):
            write_symbol(w, value, field)
        elif isinstance(value, Char):
            write_char(w, value, field)
        else:
            write_string(w, value, field)
    elif type(value) is int:
        write_long(w, value, field)
    elif value is True:
        w.append(codes.TRUE)
    elif value is False:
        w.append(codes.FALSE)
    elif type(value) is float:
        write_double(w, value, field)
    elif isinstance(value, bytes):
        write_binary(w, value, field)
    elif isinstance(value, dict):
        _write_pairs(w, list(value.items()), field, depth, False)
    elif isinstance(value, (list, tuple)):
        if depth >= MAX_DEPTH:
            raise EncodeError(field, "nested too deeply")
        mark = begin_list(w)
        for item in value:
            write_nested(w, item, field, depth + 1)
        end_list(w, mark, len(value))
    elif isinstance(value, Array):
        write_nested_array(w, value, field, depth)
    elif isinstance(value, Described):
        if depth >= MAX_DEPTH:
            raise EncodeError(field, "nested too deeply")
        w.append(0)
        write_nested(w, value.descriptor, field, depth + 1)
        write_nested(w, value.value, field, depth + 1)
    elif isinstance(value, Composite):
        _write_composite(w, value, field, depth)
    elif isinstance(value, PairMap):
        _write_pairs(w, list(value.pairs), field, depth, True)
    else:
        _write_number(w, value, field)


# `value` stays an object here: compiled code would turn what is declared int or float into a plain
# one, and forget the subclass.
def _write_number(w: BytesWriter, value: object, field: str) -> None:
    if isinstance(value, UInt):
        write_uint(w, value, field)
    elif isinstance(value, ULong):
        write_ulong(w, value, field)
    elif isinstance(value, Int):
        write_int(w, value, field)
    elif isinstance(value, Timestamp):
        write_timestamp(w, value, field)
    elif isinstance(value, UShort):
        write_ushort(w, value, field)
    elif isinstance(value, UByte):
        write_ubyte(w, value, field)
    elif isinstance(value, Short):
        write_short(w, value, field)
    elif isinstance(value, Byte):
        write_byte(w, value, field)
    elif isinstance(value, Float32):
        write_float(w, value, field)
    elif isinstance(value, int):
        write_long(w, value, field)
    elif isinstance(value, float):
        write_double(w, value, field)
    else:
        _write_rare(w, value, field)


def _write_rare(w: BytesWriter, value: object, field: str) -> None:
    if isinstance(value, UUID):
        write_uuid(w, value, field)
    elif isinstance(value, datetime):
        write_timestamp(w, value, field)
    elif isinstance(value, Decimal):
        if isinstance(value, Decimal32):
            write_decimal32(w, value, field)
        elif isinstance(value, Decimal64):
            write_decimal64(w, value, field)
        else:
            write_decimal128(w, value, field)
    elif isinstance(value, (bytearray, memoryview)):
        write_binary(w, bytes(value), field)
    else:
        raise EncodeError(field, f"{type(value).__name__} has no AMQP type")


def _write_pairs(
    w: BytesWriter, pairs: list[tuple[object, object]], field: str, depth: i64, repeats: bool
) -> None:
    # With `repeats` the keys are checked for repetitions. A dict cannot repeat a key, except for
    # NaNs and for times within one millisecond.
    if depth >= MAX_DEPTH:
        raise EncodeError(field, "nested too deeply")
    mark = begin_map(w)
    seen: set[bytes] | None = None
    for key, value in pairs:
        if repeats or isinstance(key, (float, Decimal, datetime)):
            scratch = BytesWriter()
            write_nested(scratch, key, field, depth + 1)
            encoded = scratch.getvalue()
            if seen is None:
                seen = set()
            elif encoded in seen:
                raise EncodeError(field, f"duplicate key {key!r:.80}")
            seen.add(encoded)
            w.write(encoded)
        else:
            write_nested(w, key, field, depth + 1)
        write_nested(w, value, field, depth + 1)
    end_map(w, mark, 2 * len(pairs))


def _write_composite(w: BytesWriter, value: Composite, field: str, depth: i64) -> None:
    # A composite starts a new count for the values inside it, so the nesting of composites is
    # counted here: a composite that contains itself must end in an error, not in a stack overflow.
    before = _nesting.depth
    if before + depth >= MAX_DEPTH:
        raise EncodeError(field, "nested too deeply")
    _nesting.depth = before + int(depth) + 1
    try:
        value.encode(w)
    finally:
        _nesting.depth = before


# The modules import each other: a value may be an array, whose elements may be any value.
from ferrymq_codec.arrays import write_nested_array  # noqa: E402
