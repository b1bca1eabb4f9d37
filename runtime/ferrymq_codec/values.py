"""Values in untyped places: any AMQP value is converted to a Python value and back, without losing
its type.

| AMQP | Python |
|---|---|
| null, boolean | `None`, `bool` |
| long, double, string, binary, uuid | `int`, `float`, `str`, `bytes`, `uuid.UUID` |
| ubyte … ulong, byte … int, float, char, symbol | `UByte` … `ULong`, `Byte` … `Int`, `Float32`, … |
| timestamp | `Timestamp`; an aware `datetime` is written as one too |
| decimal32, decimal64, decimal128 | `Decimal32`, `Decimal64`, `Decimal` |
| list, map, array | `list`, `dict` (`PairMap` where a dict cannot hold the keys), `Array` |
| described | `Described`; composites are written through their `encode` |
"""

from __future__ import annotations

from ferrymq_codec.arrays import read_array, write_array
from ferrymq_codec.maps import (
    read_annotations,
    read_map,
    read_string_map,
    read_symbol_map,
    write_annotations,
    write_map,
    write_string_map,
    write_symbol_map,
)
from ferrymq_codec.multiples import (
    read_multiple,
    read_multiple_symbol,
    write_multiple,
    write_multiple_symbol,
)
from ferrymq_codec.value_reader import read_list, read_value
from ferrymq_codec.value_writer import write_list, write_value

__all__ = [
    "read_value",
    "write_value",
    "read_map",
    "write_map",
    "read_symbol_map",
    "write_symbol_map",
    "read_annotations",
    "write_annotations",
    "read_string_map",
    "write_string_map",
    "read_array",
    "write_array",
    "read_list",
    "write_list",
    "read_multiple",
    "write_multiple",
    "read_multiple_symbol",
    "write_multiple_symbol",
]
