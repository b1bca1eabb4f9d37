"""AMQP 1.0 type system on the wire: primitive encodings, untyped values, limits and errors.

Theory of operation. A `Reader` walks over bytes with one method per primitive type; functions of
`writer` append to a `librt.strings.BytesWriter`, shortest encoding first. Generated types call
those directly. Where the specification leaves a type open, `values` maps AMQP values to Python
values and back without losing the type, with the classes of `scalars`, `Described` and `Array`.

The modules run interpreted or compiled by mypyc, with the same behaviour.
"""

from __future__ import annotations

from ferrymq_codec.containers import Array, PairMap
from ferrymq_codec.errors import AmqpError, CodecError, DecodeError, EncodeError
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

__all__ = [
    "AmqpError",
    "CodecError",
    "DecodeError",
    "EncodeError",
    "UByte",
    "UShort",
    "UInt",
    "ULong",
    "Byte",
    "Short",
    "Int",
    "Float32",
    "Decimal32",
    "Decimal64",
    "Char",
    "Symbol",
    "Timestamp",
    "Described",
    "Array",
    "PairMap",
]
